// Reads messages from the ring of a lane, in memory that the other side writes as it likes. Input: steps, each of a
// count of bytes that it says to have written (or any number), and bytes for the ring. What is no message is PROTOCOL.
#include <array>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "fuzz/input.h"
#include "transport/shm/ring_message.h"

namespace {

using namespace distag;
using fuzz::check;

constexpr size_t kRingBytes = 4096;
constexpr size_t kMostMessages = 64;

// The ring of the other side, which writes first and tells then.
class OtherSide {
 public:
  RingReader reader() { return {counts_, bytes_.data(), kRingBytes}; }
  RingCounts& counts() { return counts_; }

  void write(fuzz::Input& input) {
    const size_t count = input.byte();
    for (size_t i = 0; i < count && !input.empty(); ++i) bytes_[written_++ % kRingBytes] = std::byte{input.byte()};
  }
  void tell(fuzz::Input& input) {
    const uint8_t kind = input.byte();
    const uint64_t extra = kind < 192 ? 0 : static_cast<uint64_t>(input.integer());
    counts_.written.store(written_ + extra, std::memory_order_relaxed);
  }

 private:
  RingCounts counts_{};
  std::array<std::byte, kRingBytes> bytes_{};
  uint64_t written_ = 0;
};

// The block of the other side, in which loans lie.
class Block final : public LoanReader {
 public:
  Frame read(const Loan& loan, size_t size) override {
    if (loan.offset > bytes_.size() || size > bytes_.size() - loan.offset) fail(Status::kProtocol, "outside");
    return Frame(bytes_.data() + loan.offset, size, nullptr).as_loan();
  }
  std::vector<Loan> loans_of(const Frames& frames) const {
    std::vector<Loan> loans;
    for (const Frame& frame : frames) {
      if (frame.is_loan()) loans.push_back({1, static_cast<uint64_t>(frame.data() - bytes_.data()), 0, 0});
    }
    return loans;
  }

 private:
  std::vector<std::byte> bytes_ = std::vector<std::byte>(size_t{3} << 20);
};

// Back over a ring of its own.
void check_written(const Frames& frames, Block& block) {
  RingCounts counts{};
  std::array<std::byte, kRingBytes> bytes{};
  RingMessageWriter writer({counts, bytes.data(), kRingBytes});
  RingMessageReader reader({counts, bytes.data(), kRingBytes}, &block);
  writer.begin(frames, block.loans_of(frames));
  std::optional<Frames> back = reader.next();
  while (!back) {
    check(writer.has_rest() && writer.go_on());
    back = reader.next();
  }
  check(!writer.has_rest() && !reader.has_bytes() && back->size() == frames.size());
  for (size_t i = 0; i < frames.size(); ++i) {
    check((*back)[i].size() == frames[i].size() && (*back)[i].is_loan() == frames[i].is_loan());
    check(!frames[i].is_loan() || (*back)[i].data() == frames[i].data());
    check(frames[i].size() == 0 || std::memcmp((*back)[i].data(), frames[i].data(), frames[i].size()) == 0);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::Input input(data, size);
  OtherSide other;
  static Block block;
  RingMessageReader reader(other.reader(), &block);
  RingWriter writer(other.counts(), nullptr, kRingBytes);
  size_t messages = 0;
  try {
    while (!input.empty()) {
      other.write(input);
      other.tell(input);
      while (messages < kMostMessages) {
        const std::optional<Frames> frames = reader.next();
        if (!frames) break;
        ++messages;
        check(!frames->empty());
        check_written(*frames, block);
      }
      if (input.byte() == 0) reader.freeze();
    }
    other.counts().read.store(static_cast<uint64_t>(input.integer()));
    check(writer.room(kRingBytes) <= kRingBytes);
  } catch (const Error& error) {
    check(error.status() == Status::kProtocol);
  }
  return 0;
}
