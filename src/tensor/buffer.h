#pragma once

#include <atomic>
#include <cstddef>
#include <utility>

#include "base/task.h"
#include "tensor/counted.h"

namespace distag {

class Buffer;
using BufferRef = Counted<Buffer>;

// The bytes of elements. Users that need values to stay as they are (a message under way, saved data of a graph, a
// snapshot, a peer in this process) hold the buffer; see Storage. Counted by hand, because a writer must see with
// acquire order that it is the only holder.
class Buffer {
 public:
  // Fresh memory, aligned to 64 bytes, not initialised. Throws OUT_OF_MEMORY.
  static BufferRef allocate(size_t size);
  // The same, never shown to another process, even if the host gets the address to write there.
  static BufferRef allocate_private(size_t size);
  // Memory of the host, never written: a storage made over it refuses writes. `release` runs when the last holder goes,
  // on that holder's thread.
  static BufferRef borrow(const void* data, size_t size, Task release);
  // Memory that others may read too (a received frame): a write copies it first.
  static BufferRef adopt(const void* data, size_t size, Task release);
  // The same for memory that another process shows to this one, where a write would end this process.
  static BufferRef adopt_protected(const void* data, size_t size, Task release);

  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  const std::byte* data() const { return data_; }
  std::byte* mutable_data() { return data_; }  // only if is_writable()
  size_t size() const { return size_; }
  bool is_borrowed() const { return kind_ == Kind::kBorrowed; }
  // Whether a write to the memory, also by host code that has the address, ends the process.
  bool is_protected() const { return kind_ == Kind::kProtected; }
  // Whether it is distag's own memory with one holder.
  bool is_writable() const {
    return is_unique() && (kind_ == Kind::kOwn || (kind_ == Kind::kShared && is_writable_where_shared()));
  }
  bool is_unique() const { return holders_.load(std::memory_order_acquire) == 1; }

  void retain() { holders_.fetch_add(1, std::memory_order_relaxed); }
  // The last release destroys the buffer.
  void release();

 private:
  // kShared: own memory that other processes may get to see (base/shared_memory.h).
  enum class Kind { kOwn, kShared, kBorrowed, kAdopted, kProtected };
  Buffer(Kind kind, std::byte* data, size_t size, Task release)
      : kind_(kind), data_(data), size_(size), release_(std::move(release)) {}
  ~Buffer() = default;
  bool is_writable_where_shared() const;
  static BufferRef make_foreign(Kind kind, const void* data, size_t size, Task release);

  std::atomic<size_t> holders_{0};
  const Kind kind_;
  std::byte* const data_;
  const size_t size_;
  Task release_;
};

}  // namespace distag
