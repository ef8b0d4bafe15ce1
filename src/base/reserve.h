#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>

#include "base/mutex.h"

namespace distag {

// Blocks of memory that are kept back for work that cannot be given up half done: when the system gives no more, the
// allocations of a thread that uses the reserve are served from it. Thread-safe.
class Reserve {
 public:
  Reserve();   // throws bad_alloc
  ~Reserve();  // blocks that were taken stay with their owners
  Reserve(const Reserve&) = delete;
  Reserve& operator=(const Reserve&) = delete;

  // A block of at least `size` bytes, to be freed by operator delete; nullptr when none of that size is left.
  void* take(size_t size) noexcept;
  // Asks the system for the missing blocks. False when some are still missing.
  bool refill() noexcept;
  // Whether memory was short and may still be. Any thread, without a lock.
  bool is_short() const { return is_short_.load(std::memory_order_relaxed); }

 private:
  struct Size {
    size_t bytes;
    size_t count;
  };
  static constexpr std::array<Size, 4> kSizes = {
      {{256, 96}, {size_t{2} << 10, 16}, {size_t{16} << 10, 4}, {size_t{128} << 10, 1}}};

  struct Block {
    Block* next;
  };
  struct Shelf {
    Block* first = nullptr;
    size_t missing = 0;
  };

  Mutex mutex_;
  std::array<Shelf, kSizes.size()> shelves_ GUARDED_BY(mutex_);  // a shelf per size
  std::atomic<bool> is_short_{false};
};

// Sets the reserve that the calling thread may draw on; nullptr, as on host threads: none. Returns the one it replaces.
Reserve* exchange_reserve(Reserve* reserve) noexcept;
Reserve* current_reserve() noexcept;

// Uses a reserve on the calling thread, or none, while this lives.
class ReserveScope {
 public:
  explicit ReserveScope(Reserve* reserve) noexcept : before_(exchange_reserve(reserve)) {}
  ~ReserveScope() { exchange_reserve(before_); }
  ReserveScope(const ReserveScope&) = delete;
  ReserveScope& operator=(const ReserveScope&) = delete;

 private:
  Reserve* const before_;
};

}  // namespace distag
