#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "transport/shm/ring.h"

namespace distag {

// Sizes of the two rings of a lane: there, from who dialled, and back, for answers.
struct LaneSizes {
  uint32_t there = 0;
  uint32_t back = 0;

  bool operator==(const LaneSizes&) const = default;
};
// Counts, words and loans lie before the rings.
inline constexpr size_t kLaneControlBytes = size_t{12} << 10;
inline constexpr LaneSizes kLaneSizes = {64u << 10, 4u << 10};

// Throws PROTOCOL for a descriptor that is no memfd of plain pages and of that size, which can neither shrink nor grow:
// what is mapped of one stays there.
void check_sealed_memory(int fd, uint64_t size);

// A word on each loan of a lane, by its number: who borrowed sets it when it has let go.
inline constexpr size_t kMaxLoans = 8192;
using ReturnedLoan = std::atomic<uint8_t>;

// The memory of a lane: a memfd that can neither shrink nor grow, so that no access to it fails as long as the system
// has pages. Not in a forked child.
class LaneMemory {
 public:
  // Of the side that dials. Throws OUT_OF_MEMORY.
  static LaneMemory make(const LaneSizes& sizes);
  // Of the side that accepts, by its descriptor, which is closed in any case. Throws PROTOCOL for one that is not of
  // this kind or size, OUT_OF_MEMORY.
  static LaneMemory adopt(int fd, const LaneSizes& sizes);
  // Whether the sizes are such as adopt() takes.
  static bool takes(const LaneSizes& sizes);

  LaneMemory(LaneMemory&& other) noexcept;
  LaneMemory& operator=(LaneMemory&&) = delete;
  ~LaneMemory();

  // Of make(), until it is closed.
  int fd() const { return fd_; }
  void close_fd() noexcept;

  RingWriter writer(bool of_dialler) const;
  RingReader reader(bool of_dialler) const;
  SleepWord& sleep_of(bool dialler) const;
  // Of the loans of who dialled; `number` is below kMaxLoans.
  ReturnedLoan& returned(size_t number) const;
  // False in a forked child, where nothing of it is there.
  bool is_here() const;

 private:
  struct Control;

  LaneMemory(int fd, const LaneSizes& sizes);
  void map();
  Control& control() const;
  std::byte* ring_bytes(bool there) const;

  int fd_ = -1;
  LaneSizes sizes_;
  uint32_t generation_;
  void* mapping_ = nullptr;
};

}  // namespace distag
