#include "transport/shm/ring_message.h"

#include <algorithm>
#include <memory>
#include <new>
#include <span>
#include <utility>

#include "base/error.h"

namespace distag {
namespace {

constexpr size_t kAlignment = 64;
// From this size on a frame has a block of its own.
constexpr size_t kLargeBytes = 8u << 10;
// The limit for all frames of a message together: its payload and its header.
constexpr size_t kMaxMessageTotal = 2 * kMaxMessageBytes;
constexpr size_t kMaxFrames = 1u << 16;
// The reader copies one piece while the writer writes the next.
constexpr size_t kPieceBytes = 32u << 10;
constexpr uint32_t kLoanBit = 1u << 31;

constexpr size_t align_up(size_t size) { return (size + kAlignment - 1) & ~(kAlignment - 1); }

// nullptr: there is no memory.
std::shared_ptr<std::byte> make_block(size_t size) noexcept try {
  auto room = std::make_shared_for_overwrite<std::byte[]>(size + kAlignment);
  auto* const aligned = reinterpret_cast<std::byte*>(align_up(reinterpret_cast<uintptr_t>(room.get())));
  return {std::move(room), aligned};
} catch (const std::bad_alloc&) {
  return nullptr;
}

}  // namespace

// Each word is mixed in by an odd factor, so that a change of a single word always shows.
uint32_t Loan::checksum(size_t size) const {
  uint64_t sum = 0x9e3779b97f4a7c15u;
  for (const uint64_t word : {block, offset, uint64_t{number}, uint64_t{size}}) {
    sum = (sum ^ word) * 0xff51afd7ed558ccdu;
    sum ^= sum >> 32;
  }
  return static_cast<uint32_t>(sum);
}

void RingMessageWriter::begin(const Frames& frames, std::vector<Loan> loans) {
  loans_ = std::move(loans);
  next_loan_ = 0;
  size_t bytes = sizeof(uint32_t) * (frames.size() + 1);
  head_.resize(frames.size() + 1);
  head_[0] = static_cast<uint32_t>(frames.size());
  for (size_t i = 0; i < frames.size(); ++i) {
    bytes += frames[i].is_loan() ? sizeof(Loan) : frames[i].size();
    head_[i + 1] = static_cast<uint32_t>(frames[i].size()) | (frames[i].is_loan() ? kLoanBit : 0);
  }
  part_ = 0;
  done_ = 0;
  if (bytes > kPieceBytes || ring_.room(bytes) < bytes) {
    rest_ = frames;
    go_on();
  } else {
    write_from(frames);
  }
}

bool RingMessageWriter::go_on() {
  bool has_written = false;
  while (has_rest() && ring_.room(kPieceBytes) > 0) {
    has_written = true;
    if (write_from(rest_)) rest_.clear();
  }
  return has_written;
}

std::span<const std::byte> RingMessageWriter::bytes_of(const Frame& frame) const {
  if (frame.is_loan()) return std::as_bytes(std::span(&loans_[next_loan_], 1));
  return {frame.data(), frame.size()};
}

// Writes as much of the rest as there is room for, at most a piece. True: all is written.
bool RingMessageWriter::write_from(const Frames& frames) {
  size_t room = std::min(ring_.room(kPieceBytes), kPieceBytes);
  while (part_ <= frames.size()) {
    const std::span<const std::byte> bytes = part_ == 0 ? std::as_bytes(std::span(head_)) : bytes_of(frames[part_ - 1]);
    const size_t size = bytes.size();
    const size_t count = std::min(room, size - done_);
    if (count > 0) ring_.write(bytes.data() + done_, count);
    room -= count;
    done_ += count;
    if (done_ < size) break;
    if (part_ > 0 && frames[part_ - 1].is_loan()) ++next_loan_;
    ++part_;
    done_ = 0;
  }
  ring_.publish();
  return part_ > frames.size();
}

std::optional<Frames> RingMessageReader::next(size_t most) {
  if (!is_under_way_ && !read_head()) return std::nullopt;
  while (current_ < frames_.size()) {
    const bool is_loan = frames_[current_].is_loan();
    const size_t left = (is_loan ? sizeof loan_ : frames_[current_].size()) - done_;
    const size_t wanted = std::min(left, most);
    const size_t count = std::min(wanted, ring_.available(wanted));
    std::byte* const place = is_loan ? reinterpret_cast<std::byte*>(&loan_) : places_[current_];
    if (place == nullptr) {
      ring_.skip(count);
    } else {
      ring_.read(place + done_, count);
    }
    done_ += count;
    most -= count;
    if (count < left) break;
    if (is_loan) frames_[current_] = loan_reader_->read(loan_, frames_[current_].size());
    ++current_;
    done_ = 0;
  }
  ring_.release();
  if (current_ < frames_.size()) return std::nullopt;
  is_under_way_ = false;
  return std::exchange(frames_, {});
}

// Reads all bytes that there are: bytes left in the ring would count as work.
bool RingMessageReader::read_head() {
  for (;;) {
    const size_t left = head_.size() * sizeof(uint32_t) - head_done_;
    const size_t count = std::min(left, ring_.available(left));
    ring_.read(reinterpret_cast<std::byte*>(head_.data()) + head_done_, count);
    head_done_ += count;
    if (count < left) {
      ring_.release();
      return false;
    }
    if (head_.size() > 1) break;
    if (head_[0] == 0 || head_[0] > kMaxFrames) fail(Status::kProtocol, "a message of {} frames in a lane", head_[0]);
    head_.resize(size_t{1} + head_[0]);
  }
  make_frames();
  head_.resize(1);
  head_done_ = 0;
  return true;
}

// A header frame is never a loan, as it is checked in place.
void RingMessageReader::check_loan(bool is_header, size_t size, size_t total) const {
  const bool is_too_large = size == 0 || size > kMaxMessageBytes || total > kMaxMessageTotal;
  if (loan_reader_ == nullptr || is_header || is_too_large) {
    fail(Status::kProtocol, "a loan of {} bytes in a lane, where none may be", size);
  }
}

void RingMessageReader::make_frames() {
  const std::span<const uint32_t> sizes = std::span(head_).subspan(1);
  size_t total = 0;
  size_t small_bytes = 0;
  for (const uint32_t& word : sizes) {
    const size_t size = word & ~kLoanBit;
    total += size;
    if ((word & kLoanBit) != 0) {
      check_loan(&word == sizes.data(), size, total);
      continue;
    }
    if (size > kMaxMessageBytes || total > kMaxMessageTotal) {
      fail(Status::kProtocol, "a message in a lane that is too large, with a frame of {} bytes", size);
    }
    if (size < kLargeBytes) small_bytes += align_up(size);
  }
  frames_.clear();
  frames_.reserve(sizes.size());
  places_.clear();
  places_.reserve(sizes.size());
  std::shared_ptr<std::byte> block = small_bytes == 0 ? nullptr : make_block(small_bytes);
  const bool is_short = small_bytes != 0 && block == nullptr;
  size_t offset = 0;
  for (const uint32_t word : sizes) {
    const size_t size = word & ~kLoanBit;
    if ((word & kLoanBit) != 0 || size == 0) {
      places_.push_back(nullptr);
      frames_.push_back(size == 0 ? Frame() : Frame::lost(size).as_loan());  // until its loan has been read
      continue;
    }
    const bool shares_block = size < kLargeBytes && !is_short;
    std::shared_ptr<std::byte> owner = shares_block ? block : make_block(size);
    if (owner == nullptr && frames_.empty()) throw std::bad_alloc();  // nothing shows what the message is
    std::byte* const place = owner == nullptr ? nullptr : owner.get() + (shares_block ? offset : 0);
    if (shares_block) offset += align_up(size);
    places_.push_back(place);
    frames_.push_back(place == nullptr ? Frame::lost(size) : Frame(place, size, std::move(owner)));
  }
  current_ = 0;
  done_ = 0;
  is_under_way_ = true;
}

}  // namespace distag
