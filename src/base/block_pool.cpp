#include "base/block_pool.h"

#include <algorithm>
#include <bit>
#include <new>
#include <type_traits>
#include <utility>

#include "base/memory.h"

namespace distag {
namespace {

constexpr int kLeastPower = 16;
constexpr int kTries = 50;

void* map_block(size_t bytes) {
  void* const memory = map_pages(bytes);
  if (memory != nullptr && bytes >= kHugeBlockBytes) prefer_huge_pages(memory, bytes);
  return memory;
}

}  // namespace

BlockPool::SizeClass BlockPool::class_of(size_t size) {
  const int power = static_cast<int>(std::bit_width(size - 1)) - 1;
  const size_t step = size_t{1} << (power - 3);
  const size_t steps = (size - 1) / step + 1;  // 9 to 16
  return {static_cast<size_t>(power - kLeastPower) * 8 + steps - 9, steps * step};
}

bool BlockPool::enter() {
  for (int i = 0; i < kTries; ++i) {
    if (lock_.try_lock()) return true;
  }
  return false;
}

void* BlockPool::take(size_t size) noexcept {
  const SizeClass wanted = class_of(size);
  if (wanted.index >= kClasses) return nullptr;
  const size_t in_use = in_use_.fetch_add(wanted.bytes, std::memory_order_relaxed) + wanted.bytes;
  Block* kept = nullptr;
  if (enter()) {
    peak_ = std::max(peak_, in_use);
    kept = kept_blocks_[wanted.index];
    if (kept != nullptr) {
      kept_blocks_[wanted.index] = kept->next;
      kept_.fetch_sub(wanted.bytes, std::memory_order_relaxed);
    }
    lock_.unlock();
  }
  if (kept != nullptr) return kept;
  void* memory = map_block(wanted.bytes);
  if (memory == nullptr) {
    drop();
    memory = map_block(wanted.bytes);
  }
  if (memory == nullptr) in_use_.fetch_sub(wanted.bytes, std::memory_order_relaxed);
  return memory;
}

void BlockPool::give_back(void* memory, size_t size, Nanos now) noexcept {
  const SizeClass given = class_of(size);
  Block* idle = nullptr;
  bool is_kept = false;
  if (enter()) {
    if (now >= next_trim_) idle = take_idle(now, kMostFreed);
    const size_t kept = kept_.load(std::memory_order_relaxed) + given.bytes;
    is_kept = !is_closed_ && kept <= std::max(kLeastKept, peak_ / 4);
    if (is_kept) {
      Block*& first = kept_blocks_[given.index];
      first = ::new (memory) Block{first, given.bytes, now};
      kept_.store(kept, std::memory_order_relaxed);
    }
    lock_.unlock();
  }
  in_use_.fetch_sub(given.bytes, std::memory_order_relaxed);
  if (!is_kept) unmap_pages(memory, given.bytes);
  unmap(idle);
}

void BlockPool::trim(Nanos now) noexcept {
  if (!enter()) return;
  Block* const idle = take_idle(now, kMostFreed);
  lock_.unlock();
  unmap(idle);
}

void BlockPool::drop() noexcept {
  if (!enter()) return;
  Block* const all = take_idle(kNever, SIZE_MAX);
  lock_.unlock();
  unmap(all);
}

void BlockPool::close() noexcept {
  if (!enter()) return;
  is_closed_ = true;
  Block* const all = take_idle(kNever, SIZE_MAX);
  lock_.unlock();
  unmap(all);
}

// In each list, all blocks behind the first idle one are idle too.
BlockPool::Block* BlockPool::take_idle(Nanos now, size_t most) {
  Block* taken = nullptr;
  size_t bytes = 0;
  for (Block*& first : kept_blocks_) {
    Block** end = &first;
    while (*end != nullptr && (*end)->since > now - kIdle) end = &(*end)->next;
    while (*end != nullptr && bytes < most) {
      Block* const block = std::exchange(*end, (*end)->next);
      bytes += block->bytes;
      block->next = std::exchange(taken, block);
    }
  }
  kept_.fetch_sub(bytes, std::memory_order_relaxed);
  if (bytes < most && now != kNever) {
    next_trim_ = now + kIdle;
    peak_ = std::max(in_use_.load(std::memory_order_relaxed), peak_ / 2);
  }
  return taken;
}

void BlockPool::unmap(Block* first) noexcept {
  while (first != nullptr) {
    Block* const block = std::exchange(first, first->next);
    unmap_pages(block, block->bytes);
  }
}

namespace {

// Tensors may be freed after the library's other statics are gone: the pool has nothing to destroy.
static_assert(std::is_trivially_destructible_v<BlockPool>);
constinit BlockPool pool;

struct Unloading {
  ~Unloading() { pool.close(); }
};
const Unloading unloading;

}  // namespace

void* take_block(size_t size) noexcept { return pool.take(size); }
void give_back_block(void* memory, size_t size) noexcept { pool.give_back(memory, size, SteadyClock().now()); }
void trim_blocks() noexcept { pool.trim(SteadyClock().now()); }
void drop_blocks() noexcept { pool.drop(); }

}  // namespace distag
