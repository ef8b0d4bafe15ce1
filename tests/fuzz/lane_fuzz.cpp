// Reads messages from the ring of a lane, in memory that the other side writes as it likes. Input: steps, each of a
// count of bytes that it says to have written (or any number), and bytes for the ring. What is no message is PROTOCOL.
#include <array>
#include <cstring>

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

// Back over a ring of its own.
void check_written(const Frames& frames) {
  RingCounts counts{};
  std::array<std::byte, kRingBytes> bytes{};
  RingMessageWriter writer({counts, bytes.data(), kRingBytes});
  RingMessageReader reader({counts, bytes.data(), kRingBytes});
  writer.begin(frames);
  std::optional<Frames> back = reader.next();
  while (!back) {
    check(writer.has_rest() && writer.go_on());
    back = reader.next();
  }
  check(!writer.has_rest() && !reader.has_bytes() && back->size() == frames.size());
  for (size_t i = 0; i < frames.size(); ++i) {
    check((*back)[i].size() == frames[i].size());
    check(frames[i].size() == 0 || std::memcmp((*back)[i].data(), frames[i].data(), frames[i].size()) == 0);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::Input input(data, size);
  OtherSide other;
  RingMessageReader reader(other.reader());
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
        check_written(*frames);
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
