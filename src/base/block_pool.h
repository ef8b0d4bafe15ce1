#pragma once

#include <array>
#include <atomic>
#include <cstddef>

#include "base/clock.h"
#include "base/mutex.h"

namespace distag {

// A lock that is only ever tried.
class DISTAG_THREAD_ATTRIBUTE(capability("mutex")) TryLock {
 public:
  constexpr TryLock() = default;
  bool try_lock() DISTAG_THREAD_ATTRIBUTE(try_acquire_capability(true)) NO_THREAD_SAFETY_ANALYSIS {
    return !is_held_.exchange(true, std::memory_order_acquire);
  }
  void unlock() DISTAG_THREAD_ATTRIBUTE(release_capability()) NO_THREAD_SAFETY_ANALYSIS {
    is_held_.store(false, std::memory_order_release);
  }

 private:
  std::atomic<bool> is_held_{false};
};

// Blocks of whole pages. Some returned blocks are kept for later requests of about their size, since fresh pages cost
// more than most work on them. Thread-safe, and never waits: a caller that finds the lock held goes to the system. So a
// forked child goes on, in which the lock may be held by a thread that does not exist there.
class BlockPool {
 public:
  // In any case the pool keeps up to this many bytes; beyond that, a quarter of the most bytes in use lately.
  static constexpr size_t kLeastKept = size_t{64} << 20;
  // A block that is unused for this long goes back to the system at the next chance.
  static constexpr Nanos kIdle = kSecond;
  static constexpr size_t kMostFreed = size_t{64} << 20;

  constexpr BlockPool() = default;  // close() comes before its end
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  // `size` bytes, more than 64 KiB, aligned to a page, not initialised. nullptr when there is no memory.
  void* take(size_t size) noexcept;
  // `memory` comes from take(size).
  void give_back(void* memory, size_t size, Nanos now) noexcept;
  // Frees idle blocks, up to kMostFreed, which takes some milliseconds.
  void trim(Nanos now) noexcept;
  // Frees all that is kept.
  void drop() noexcept;
  // As drop(), and keeps nothing from then on.
  void close() noexcept;
  size_t kept_bytes() const { return kept_.load(std::memory_order_relaxed); }

 private:
  // Lies at the start of a kept block. A list begins with the block returned last.
  struct Block {
    Block* next;
    size_t bytes;
    Nanos since;
  };
  static constexpr size_t kClasses = 8 * 31;  // eight from each power of two to the next, from 64 KiB to 128 TiB
  struct SizeClass {
    size_t index;
    size_t bytes;
  };
  static SizeClass class_of(size_t size);
  bool enter() DISTAG_THREAD_ATTRIBUTE(try_acquire_capability(true, lock_));
  Block* take_idle(Nanos now, size_t most) REQUIRES(lock_);
  static void unmap(Block* first) noexcept;

  TryLock lock_;
  std::array<Block*, kClasses> kept_blocks_ GUARDED_BY(lock_){};
  std::atomic<size_t> kept_{0};    // bytes; changed under the lock
  std::atomic<size_t> in_use_{0};  // bytes
  size_t peak_ GUARDED_BY(lock_) = 0;
  Nanos next_trim_ GUARDED_BY(lock_) = 0;
  bool is_closed_ GUARDED_BY(lock_) = false;
};

// The pool of the process, as malloc's is: tensors of all workers, and of none, share its blocks. Empty again when the
// library is unloaded.
void* take_block(size_t size) noexcept;
void give_back_block(void* memory, size_t size) noexcept;
void trim_blocks() noexcept;
void drop_blocks() noexcept;

}  // namespace distag
