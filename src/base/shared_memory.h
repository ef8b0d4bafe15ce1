#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace distag {

// Memory that other processes can map, to read it and never write it: a memfd, sealed against writes by them and
// against another size. The state of its parts is kept elsewhere, in memory of this process alone. Thread-safe.
class SharedBlock {
 public:
  // Throws OUT_OF_MEMORY. `size` is a multiple of kPageBytes.
  SharedBlock(uint64_t id, size_t size);
  ~SharedBlock() { close(); }
  SharedBlock(const SharedBlock&) = delete;
  SharedBlock& operator=(const SharedBlock&) = delete;

  uint64_t id() const { return id_; }  // never used again by this process
  int fd() const { return fd_; }
  std::byte* data() const { return data_; }
  size_t size() const { return size_; }

  // The block is empty, and will stay so: other processes may forget it.
  bool is_retired() const { return is_retired_.load(std::memory_order_acquire); }
  void retire() { is_retired_.store(true, std::memory_order_release); }
  // Gives the memory back, once; takes 0.2 ms for each MiB. Other processes keep their mappings.
  void close() noexcept;

 private:
  const uint64_t id_;
  const size_t size_;
  int fd_ = -1;
  std::byte* data_ = nullptr;
  std::atomic<bool> is_retired_{false};
};

// Places for buffers in such blocks. They belong to the process, as with malloc: a buffer has no worker. A forked child
// reads what was there: a place taken at the fork is never written or used again on either side. The child gives none
// back, and takes none until it has a Use of its own. No place is given out while a fork begins. Thread-safe.
namespace shared_memory {

// Smaller buffers are as fast to copy.
inline constexpr size_t kLeastBytes = size_t{64} << 10;

// Places are given out while a Use exists; those in use at the end of the last one go as they are freed.
class Use {
 public:
  Use();
  ~Use();
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;

 private:
  const uint32_t generation_;
};

// A place for `size` bytes, at least kLeastBytes, aligned to a page. nullptr: no Use, or no memory of this kind.
// `may_close`: empty blocks may be closed to make room, which takes long.
std::byte* allocate(size_t size, bool may_close = true) noexcept;
void free(std::byte* place) noexcept;

struct Found {
  std::shared_ptr<SharedBlock> block;
  size_t offset = 0;
};
// The block in which the bytes lie. nullopt: in no block of this process.
std::optional<Found> find(const std::byte* data, size_t size) noexcept;

// Another process may read there for ever: the place is no longer written to, nor used again.
void abandon(const std::byte* place) noexcept;
// Whether the owner of the place may write there: it is neither abandoned nor from the parent of this process. The
// answer may change between two calls, when another thread forks.
bool is_writable(const std::byte* place) noexcept;

// Takes out and retires the blocks that have been empty since the last call. The caller closes them, where that may
// take long.
std::vector<std::shared_ptr<SharedBlock>> trim();

// The same for all empty blocks, whenever they were used.
std::vector<std::shared_ptr<SharedBlock>> take_idle();
// Closes all empty blocks at once; for a caller that finds no memory.
void drop_idle() noexcept;

// Whether there are any blocks. Cheap.
bool has_blocks() noexcept;

struct Stats {
  size_t blocks = 0;
  size_t bytes = 0;         // in all blocks
  size_t bytes_in_use = 0;  // in places
};
Stats stats() noexcept;

}  // namespace shared_memory
}  // namespace distag
