#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace distag {

// One direction of a lane: a ring of bytes between one writer and one reader, in memory that the other process may
// write to at any time. Each side counts its own bytes in private memory and writes the count out only; the count of
// the other side is read once for a step and has to lie within the ring. Bytes are copied out once, and looked at
// after.
struct RingCounts {
  alignas(64) std::atomic<uint64_t> written;
  alignas(64) std::atomic<uint64_t> read;
};

// A side's word on its sleep, in the memory they share: bits below. It sets them, the other clears them when it wakes
// it.
struct SleepWord {
  alignas(64) std::atomic<uint32_t> bits;
};
inline constexpr uint32_t kAwake = 0;
inline constexpr uint32_t kSleepsForBytes = 1;
inline constexpr uint32_t kSleepsForRoom = 2;

// Sizes are powers of two. Both are of one thread. They throw PROTOCOL for a count of the other side that cannot be.
class RingWriter {
 public:
  RingWriter(RingCounts& counts, std::byte* bytes, size_t size) : counts_(counts), bytes_(bytes), size_(size) {}

  // At least `wanted`, if there is as much.
  size_t room(size_t wanted);
  // Whether there is more room than at the last look. Says true for a count that cannot be.
  bool has_more_room() const noexcept { return counts_.read.load(std::memory_order_seq_cst) != read_; }
  // No more than there is room.
  void write(const void* from, size_t count) noexcept;
  // Shows it to the reader.
  void publish() noexcept { counts_.written.store(written_, std::memory_order_seq_cst); }

 private:
  RingCounts& counts_;
  std::byte* const bytes_;
  const size_t size_;
  uint64_t written_ = 0;
  uint64_t read_ = 0;  // by the reader, as seen last
};

class RingReader {
 public:
  RingReader(RingCounts& counts, const std::byte* bytes, size_t size) : counts_(counts), bytes_(bytes), size_(size) {}

  // Bytes that can be read: at least `wanted`, if there are as many.
  size_t available(size_t wanted);
  // Whether there are any. Says true for a count that cannot be.
  bool has_bytes() const noexcept {
    return written_ != read_ || (!is_frozen_ && counts_.written.load(std::memory_order_seq_cst) != read_);
  }
  // No more than are available.
  void read(void* to, size_t count) noexcept;
  // Gives the room back to the writer.
  void release() noexcept { counts_.read.store(read_, std::memory_order_seq_cst); }
  // Nothing is seen that is written from now on.
  void freeze();

 private:
  void look();

  RingCounts& counts_;
  const std::byte* const bytes_;
  const size_t size_;
  uint64_t read_ = 0;
  uint64_t written_ = 0;  // by the writer, as seen last
  bool is_frozen_ = false;
};

}  // namespace distag
