#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace distag {

// A direction of a lane: a ring of bytes between one writer and one reader, in memory that the other process may
// write to at any time. Each side counts its own bytes in private memory, and only writes the count to the ring. The
// other
// side's count is read once per step, and must lie within the ring. Bytes are first copied out, then checked.
struct RingCounts {
  alignas(64) std::atomic<uint64_t> written;
  alignas(64) std::atomic<uint64_t> read;
};

// Whether a side sleeps, in shared memory: the bits below. The side itself sets them; the other one clears them when it
// wakes it.
struct SleepWord {
  alignas(64) std::atomic<uint32_t> bits;
};
inline constexpr uint32_t kAwake = 0;
inline constexpr uint32_t kSleepsForBytes = 1;
inline constexpr uint32_t kSleepsForRoom = 2;

// Sizes are powers of two. One thread each. Both throw PROTOCOL for an invalid count of the other side.
class RingWriter {
 public:
  RingWriter(RingCounts& counts, std::byte* bytes, size_t size) : counts_(counts), bytes_(bytes), size_(size) {}

  // The free bytes: at least `wanted`, if there are that many.
  size_t room(size_t wanted);
  // Whether there is more room than at the last check. Also true for an invalid count.
  bool has_more_room() const noexcept { return counts_.read.load(std::memory_order_seq_cst) != read_; }
  // `count`: at most the room.
  void write(const void* from, size_t count) noexcept;
  // Shows the written bytes to the reader.
  void publish() noexcept { counts_.written.store(written_, std::memory_order_seq_cst); }

 private:
  RingCounts& counts_;
  std::byte* const bytes_;
  const size_t size_;
  uint64_t written_ = 0;
  uint64_t read_ = 0;  // by the reader, when last checked
};

class RingReader {
 public:
  RingReader(RingCounts& counts, const std::byte* bytes, size_t size) : counts_(counts), bytes_(bytes), size_(size) {}

  // Bytes that can be read: at least `wanted`, if there are that many.
  size_t available(size_t wanted);
  // Whether there are any bytes. Also true for an invalid count.
  bool has_bytes() const noexcept {
    return written_ != read_ || (!is_frozen_ && counts_.written.load(std::memory_order_seq_cst) != read_);
  }
  // `count`: at most the available bytes.
  void read(void* to, size_t count) noexcept;
  void skip(size_t count) noexcept { read_ += count; }
  // Gives the room back to the writer.
  void release() noexcept { counts_.read.store(read_, std::memory_order_seq_cst); }
  // Bytes that are written from now on are ignored.
  void freeze();

 private:
  void look();

  RingCounts& counts_;
  const std::byte* const bytes_;
  const size_t size_;
  uint64_t read_ = 0;
  uint64_t written_ = 0;  // by the writer, when last checked
  bool is_frozen_ = false;
};

}  // namespace distag
