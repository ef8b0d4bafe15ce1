// Reads messages from the ring of a lane, in memory that the other side writes as it likes. Input: steps, each of a
// count of bytes that it says to have written (or any number), and bytes for the ring; and of a name under which it
// gives back what it was lent. What is no message, and a name of anything else, is PROTOCOL.
#include <sys/socket.h>

#include <array>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "base/shared_memory.h"
#include "fuzz/input.h"
#include "transport/shm/borrower.h"
#include "transport/shm/lender.h"
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

// A worker that has lent three parts of a block, the last two one behind the other, and is given back what the other
// side names.
class Owner final : PeerLoans {
 public:
  Owner() {
    int ends[2];
    check(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
    socket_ = LaneSocket(ends[0]);
    Frames frames = {Frame(), part(0), part(2), part(3)};
    lender_.lend(frames, 0, socket_);
    check(lender_.note(frames).size() == 3);
    place_ = shared_memory::find(bytes_, kBytes).value();
  }
  void take(fuzz::Input& input) {
    Loan loan;
    loan.block = place_.block->id() + (input.byte() < 192 ? 0 : static_cast<uint64_t>(input.integer()));
    const uint64_t offset = input.below(6) * kPart + static_cast<uint64_t>(input.integer());
    const auto size =
        static_cast<size_t>(std::max(int64_t{1}, static_cast<int64_t>(input.below(4) * kPart) + input.integer() % 8));
    loan.offset = place_.offset + offset;
    loan.number = kGivenBack | (input.byte() < 192 ? 3 : static_cast<uint32_t>(input.integer()));
    loan.check = loan.checksum(size) + (input.byte() < 192 ? 0 : 1);
    const bool is_lent = loan.block == place_.block->id() && lies_in(offset, size, 0, 1) + lies_in(offset, size, 2, 4);
    const bool is_good = is_lent && (loan.number & ~kGivenBack) < kMaxLoans && loan.check == loan.checksum(size);
    try {
      const Frame frame = borrower_.read(loan, size);
      check(is_good && frame.is_loan() && frame.data() == bytes_ + offset && frame.size() == size);
      check(memory_->returned(loan.number & ~kGivenBack) == 1);
    } catch (const Error& error) {
      check(!is_good && error.status() == Status::kProtocol);
    }
  }

 private:
  static constexpr size_t kPart = shared_memory::kLeastBytes;
  static constexpr size_t kBytes = 5 * kPart;

  Frame part(size_t index) const { return Frame(bytes_ + index * kPart, kPart, nullptr); }
  static bool lies_in(uint64_t offset, size_t size, size_t first, size_t end) {
    return offset >= first * kPart && offset < end * kPart && size <= end * kPart - offset;
  }
  std::optional<LentPlace> find_borrowed(const std::byte*, size_t) const override { return std::nullopt; }
  std::optional<Frame> find_lent(const LentPlace& place, size_t size) const override {
    return lender_.find(place, size);
  }

  const shared_memory::Use use_;
  std::byte* const bytes_ = shared_memory::allocate(kBytes);
  shared_memory::Found place_;
  LaneSocket socket_;
  std::shared_ptr<const LaneMemory> memory_ = std::make_shared<const LaneMemory>(LaneMemory::make(kLaneSizes));
  Lender lender_{memory_, *this};
  Borrower borrower_{memory_, *this, std::make_shared<BorrowedRoom>(), nullptr};
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
  static auto* const owner = new Owner;
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
      if (input.byte() == 1) owner->take(input);
    }
    other.counts().read.store(static_cast<uint64_t>(input.integer()));
    check(writer.room(kRingBytes) <= kRingBytes);
  } catch (const Error& error) {
    check(error.status() == Status::kProtocol);
  }
  return 0;
}
