#include "transport/shm/lender.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace distag {
namespace {

// The most bytes that the other side may have on loan: beyond it frames go by the ring.
constexpr size_t kMaxBytesOut = size_t{1} << 30;
// The size that later messages' loans are assumed to have.
constexpr size_t kLoanBytes = size_t{1} << 20;

// A copy in shared memory; the frame itself if there is no room.
Frame move_to_shared(const Frame& frame) {
  std::byte* const place = shared_memory::allocate(frame.size(), false);
  if (place == nullptr) return frame;
  std::shared_ptr<const void> owner(place, [place](const void*) { shared_memory::free(place); });
  std::memcpy(place, frame.data(), frame.size());
  return Frame(place, frame.size(), std::move(owner));
}

}  // namespace

Lender::Lender(std::shared_ptr<const LaneMemory> memory, const PeerLoans& loans)
    : memory_(std::move(memory)), loans_(loans) {
  free_.reserve(kMaxLoans);
  out_.reserve(kMaxLoans);
  for (uint32_t number = kMaxLoans; number-- > 0;) free_.push_back(number);
}

Lender::~Lender() {
  collect();
  for (const Out& out : out_) shared_memory::abandon(out.frame.data());
}

void Lender::lend(Frames& frames, size_t ahead, LaneSocket& socket) {
  const size_t later = (ahead + kLoanBytes - 1) / kLoanBytes;  // loans
  size_t loans = out_.size() + later;
  size_t bytes = bytes_out_ + ahead;
  for (size_t i = 1; i < frames.size(); ++i) {
    Frame& frame = frames[i];
    const bool has_room = loans < kMaxLoans && bytes + frame.size() <= kMaxBytesOut;
    if (frame.size() < shared_memory::kLeastBytes || !has_room || !find_or_move(frame, socket)) continue;
    frame = frame.as_loan();
    bytes += frame.size();
    ++loans;
  }
}

// Finds the frame in shared memory, or moves it there. False: it cannot be lent.
bool Lender::find_or_move(Frame& frame, LaneSocket& socket) {
  if (const auto found = shared_memory::find(frame.data(), frame.size())) return show(*found, socket);
  if (loans_.find_borrowed(frame.data(), frame.size())) return true;
  const Frame moved = move_to_shared(frame);
  const auto found = shared_memory::find(moved.data(), moved.size());
  if (!found) return false;
  frame = moved;
  return show(*found, socket);
}

// Called before the first loan in the block goes by the ring.
bool Lender::show(const shared_memory::Found& found, LaneSocket& socket) {
  const SharedBlock& block = *found.block;
  if (shown_.contains(block.id())) return true;
  if (shown_.size() >= kMaxShownBlocks) return false;
  const auto place = shown_.emplace(block.id(), found.block).first;
  if (socket.send(ShownBlock{block.id(), block.size()}, block.fd())) return true;
  shown_.erase(place);
  return false;
}

std::vector<Loan> Lender::note(const Frames& frames) {
  std::vector<Loan> loans;
  for (const Frame& frame : frames) {
    if (!frame.is_loan()) continue;
    if (loans.size() >= free_.size()) fail(Status::kInvalidState, "more loans than a lane has made");
    loans.push_back(loan_of(frame, free_[free_.size() - 1 - loans.size()]));
  }
  size_t next = 0;
  for (const Frame& frame : frames) {
    if (!frame.is_loan()) continue;
    free_.pop_back();
    out_.push_back({loans[next++], frame});
    memory_->returned(out_.back().number()).store(0, std::memory_order_relaxed);  // the ring publishes it
    bytes_out_ += frame.size();
  }
  return loans;
}

Loan Lender::loan_of(const Frame& frame, uint32_t number) const {
  Loan loan;
  const auto found = shared_memory::find(frame.data(), frame.size());
  if (found && shown_.contains(found->block->id())) {
    loan = {found->block->id(), found->offset, number, 0};
  } else if (const auto borrowed = loans_.find_borrowed(frame.data(), frame.size())) {
    loan = {borrowed->block, borrowed->offset, number | kGivenBack, 0};
  } else {
    fail(Status::kInvalidState, "a loan of {} bytes that this lane has not made", frame.size());
  }
  loan.check = loan.checksum(frame.size());
  return loan;
}

void Lender::take_back(size_t count) {
  for (; count > 0; --count) {
    free_.push_back(out_.back().number());
    bytes_out_ -= out_.back().frame.size();
    out_.pop_back();
  }
}

void Lender::collect() {
  std::erase_if(out_, [this](const Out& out) {
    if (memory_->returned(out.number()).load(std::memory_order_acquire) == 0) return false;
    free_.push_back(out.number());
    bytes_out_ -= out.frame.size();
    return true;
  });
}

// The bytes may be of several loans that lie one behind the other.
std::optional<Frame> Lender::find(const LentPlace& place, size_t size) const {
  if (place.offset > SIZE_MAX - size) return std::nullopt;
  const auto owners = std::make_shared<std::vector<std::shared_ptr<const void>>>();
  const std::byte* data = nullptr;
  for (uint64_t at = place.offset; at < place.offset + size;) {
    // For a loan that begins behind `at` the difference wraps around, and is larger than any size.
    const auto covers = [&place, at](const Out& out) {
      return !out.is_given_back() && out.loan.block == place.block && at - out.loan.offset < out.frame.size();
    };
    const auto found = std::find_if(out_.begin(), out_.end(), covers);
    if (found == out_.end()) return std::nullopt;
    if (data == nullptr) data = found->frame.data() + (at - found->loan.offset);
    owners->push_back(found->frame.owner());
    at = found->loan.offset + found->frame.size();
  }
  return Frame(data, size, owners);
}

void Lender::forget_retired(LaneSocket& socket) {
  std::erase_if(shown_, [&socket](const auto& shown) {
    return shown.second->is_retired() && socket.send(ShownBlock{shown.first, 0}, -1);
  });
}

}  // namespace distag
