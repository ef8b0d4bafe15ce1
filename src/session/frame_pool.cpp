#include "session/frame_pool.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/block_pool.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/mutex.h"

namespace distag {
namespace {

// Blocks below kMinKept are rare; more than kMaxKeptInAll bytes are never kept.
constexpr size_t kMinKept = size_t{64} << 10;
constexpr size_t kMaxKeptInAll = size_t{256} << 20;

// A block for `size` may be larger by at most an eighth, so that sizes that differ a little share blocks.
size_t capacity_for(size_t size) {
  size_t step = kPageBytes;
  while (step * 16 < size) step *= 2;
  return (size + step - 1) / step * step;
}

std::byte* make_block(size_t capacity) {
  void* memory = map_pages(capacity);
  if (memory == nullptr) fail(Status::kOutOfMemory, "no memory for a payload of {} bytes: {}", capacity, kMemoryCure);
  if (capacity >= kHugeBlockBytes) prefer_huge_pages(memory, capacity);
  return static_cast<std::byte*>(memory);
}

}  // namespace

struct FramePool::Shelf {
  struct Block {
    std::byte* memory;
    size_t capacity;
    bool is_fresh;  // came back since the last drop()
  };

  // Never held with another lock, nor while memory is mapped or unmapped. `bytes` is the sum of the capacities of
  // `blocks`.
  mutable Mutex mutex;
  std::vector<Block> blocks GUARDED_BY(mutex);
  size_t bytes GUARDED_BY(mutex) = 0;
  bool is_closed GUARDED_BY(mutex) = false;

  // Takes the block that came back last, as its pages are likely to be in the caches. nullptr: no block of that
  // capacity is kept.
  std::byte* take(size_t capacity) {
    MutexLock lock(mutex);
    auto found = std::find_if(blocks.rbegin(), blocks.rend(),
                              [capacity](const Block& block) { return block.capacity == capacity; });
    if (found == blocks.rend()) return nullptr;
    std::byte* memory = found->memory;
    bytes -= capacity;
    blocks.erase(std::next(found).base());
    return memory;
  }

  // Blocks that are not kept go back to the system; once the pool is gone, all do.
  void give_back(std::byte* memory, size_t capacity) {
    {
      MutexLock lock(mutex);
      if (!is_closed && capacity >= kMinKept && bytes + capacity <= kMaxKeptInAll) {
        blocks.push_back({memory, capacity, true});
        bytes += capacity;
        return;
      }
    }
    unmap_pages(memory, capacity);
  }

  // Drops the blocks that were not reused since the last call, or all of them for good. Unmaps without the lock.
  void drop(bool all) {
    std::vector<Block> dropped;
    {
      MutexLock lock(mutex);
      auto stale = std::stable_partition(blocks.begin(), blocks.end(),
                                         [all](const Block& block) { return block.is_fresh && !all; });
      dropped.assign(stale, blocks.end());
      blocks.erase(stale, blocks.end());
      for (Block& block : blocks) block.is_fresh = false;
      for (const Block& block : dropped) bytes -= block.capacity;
      is_closed = is_closed || all;
    }
    for (const Block& block : dropped) unmap_pages(block.memory, block.capacity);
  }
};

FramePool::FramePool() : shelf_(std::make_shared<Shelf>()) {}
FramePool::~FramePool() {
  shelf_->drop(true);
  drop_blocks();
}

std::shared_ptr<std::byte> FramePool::allocate(size_t size) {
  const size_t capacity = capacity_for(std::max(size, size_t{1}));
  std::byte* memory = shelf_->take(capacity);
  if (memory == nullptr) memory = make_block(capacity);
  return {memory, [shelf = shelf_, capacity](std::byte* block) { shelf->give_back(block, capacity); }};
}

void FramePool::trim() { shelf_->drop(false); }

size_t FramePool::kept_bytes() const {
  MutexLock lock(shelf_->mutex);
  return shelf_->bytes;
}

}  // namespace distag
