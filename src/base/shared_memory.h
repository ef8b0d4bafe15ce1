#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace distag {

// Memory that other processes can be shown, which may read it and never write it: a memfd, sealed against that and
// against another size. What is known of its parts lies elsewhere, in memory of this process alone. Thread-safe.
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

  // Nothing lies in it any more, and nothing ever will: others may forget it.
  bool is_retired() const { return is_retired_.load(std::memory_order_acquire); }
  void retire() { is_retired_.store(true, std::memory_order_release); }
  // Gives the memory back, once; takes 0.2 ms for each MiB. Others keep what they have mapped.
  void close() noexcept;

 private:
  const uint64_t id_;
  const size_t size_;
  int fd_ = -1;
  std::byte* data_ = nullptr;
  std::atomic<bool> is_retired_{false};
};

// Places for buffers in such blocks. Of the process, as malloc is: a buffer has no worker. A forked child reads what
// was there: no place that was taken then is ever written or used again on either side. Nor does the child give one
// back, or take more until it has a Use of its own. No place is given out while a fork begins. Thread-safe.
namespace shared_memory {

// Smaller buffers are as fast to copy.
inline constexpr size_t kLeastBytes = size_t{64} << 10;

// While one exists there are places; what is left of them at the end of the last goes as it is freed.
class Use {
 public:
  Use();
  ~Use();
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;

 private:
  const uint32_t generation_;
};

// Of at least kLeastBytes, aligned to a page. nullptr: there is no Use, or no memory of this kind.
// `may_close`: blocks in which nothing lies may be closed to make room, which takes long.
std::byte* allocate(size_t size, bool may_close = true) noexcept;
void free(std::byte* place) noexcept;

struct Found {
  std::shared_ptr<SharedBlock> block;
  size_t offset = 0;
};
// The block in which the bytes lie. nullopt: in none of this process.
std::optional<Found> find(const std::byte* data, size_t size) noexcept;

// Somebody may go on reading there for good: nothing is written to this place any more, nor is it used again.
void abandon(const std::byte* place) noexcept;
// Whether the one who allocated it may write there: neither abandoned nor of the parent of this process. It may cease
// to be so between two questions, where another thread forks.
bool is_writable(const std::byte* place) noexcept;

// Takes out the blocks in which nothing has lain since the last call, retired. The caller closes them, where it may
// take long.
std::vector<std::shared_ptr<SharedBlock>> trim();

// The same of all blocks in which nothing lies, whenever they were used.
std::vector<std::shared_ptr<SharedBlock>> take_idle();
// Closes them at once; for who finds no memory.
void drop_idle() noexcept;

// Whether there are any blocks. Cheap.
bool has_blocks() noexcept;

struct Stats {
  size_t blocks = 0;
  size_t bytes = 0;         // of all blocks
  size_t bytes_in_use = 0;  // of places
};
Stats stats() noexcept;

}  // namespace shared_memory
}  // namespace distag
