#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "transport/shm/ring.h"

namespace distag {

// Sizes of the two rings of a lane: there, from the dialling side; and back, for answers.
struct LaneSizes {
  uint32_t there = 0;
  uint32_t back = 0;

  bool operator==(const LaneSizes&) const = default;
};
// Counts, sleep words and loan flags lie before the rings.
inline constexpr size_t kLaneControlBytes = size_t{12} << 10;
inline constexpr LaneSizes kLaneSizes = {64u << 10, 4u << 10};

// Throws PROTOCOL unless the descriptor is a memfd of plain pages and of that size, sealed against shrinking and
// growing: a mapping of it then stays valid.
void check_sealed_memory(int fd, uint64_t size);

// A flag for each loan of a lane, by its number: the borrower sets it when it has released the loan.
inline constexpr size_t kMaxLoans = 8192;
using ReturnedLoan = std::atomic<uint8_t>;

// The memory of a lane: a memfd that can neither shrink nor grow, so that no access to it fails as long as the system
// has pages. Unmapped in a forked child.
class LaneMemory {
 public:
  // For the dialling side. Throws OUT_OF_MEMORY.
  static LaneMemory make(const LaneSizes& sizes);
  // For the accepting side. Closes the descriptor in any case. Throws PROTOCOL unless it is of the right kind and size,
  // OUT_OF_MEMORY.
  static LaneMemory adopt(int fd, const LaneSizes& sizes);
  // Whether adopt() accepts these sizes.
  static bool takes(const LaneSizes& sizes);

  LaneMemory(LaneMemory&& other) noexcept;
  LaneMemory& operator=(LaneMemory&&) = delete;
  ~LaneMemory();

  // After make(), until it is closed.
  int fd() const { return fd_; }
  void close_fd() noexcept;

  RingWriter writer(bool of_dialler) const;
  RingReader reader(bool of_dialler) const;
  SleepWord& sleep_of(bool dialler) const;
  // The flag of a loan of the dialling side; `number` is below kMaxLoans.
  ReturnedLoan& returned(size_t number) const;
  // False in a forked child, where the memory is not mapped.
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
