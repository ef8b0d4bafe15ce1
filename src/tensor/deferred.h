#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/mutex.h"
#include "tensor/dims.h"
#include "tensor/dtype.h"
#include "tensor/storage.h"
#include "tensor/tensor.h"

namespace distag {

class Value;

// The source of a deferred tensor's elements. Thread-safe.
class Initialiser {
 public:
  virtual ~Initialiser() = default;

  // Writes the elements of a box of the whole, row-major. The box is not empty. May run host code, and throws its
  // failure: not called on a loop, nor under a lock.
  virtual void fill(const Dims& offset, const Dims& extent, std::byte* out) const = 0;
};

// A box is filled in parts of at most this many bytes, cut along its first dim; an element of that dim is one part.
inline constexpr size_t kMostDeferredPart = size_t{64} << 20;

// The elements of one box of the whole as a tensor of their own; they count as made here. Throws as fill() does, and
// OUT_OF_MEMORY.
Tensor make_box(const Initialiser& initialiser, Dtype dtype, const Dims& offset, const Dims& extent);

// Makes the elements of all deferred tensors in the value, on this thread: for a caller that keeps a value which is
// read elsewhere. Sharded tensors have none. Throws as Storage::make_elements().
void make_elements(const Value& value);

// The storage of a deferred tensor: an initialiser first, a buffer of all elements once they are needed. One thread
// makes them, without a lock; others wait for it, and try themselves if it fails. A thread that would wait for itself,
// as the host code of its initialiser asks for the same elements, fails with INVALID_STATE.
class DeferredStorage final : public Storage {
 public:
  DeferredStorage(Dtype dtype, const Dims& shape, std::shared_ptr<const Initialiser> initialiser);
  ~DeferredStorage();

  const Dims& shape() const { return shape_; }
  // nullptr once the elements are made, or given up.
  std::shared_ptr<const Initialiser> initialiser() const;

  void make();
  bool is_made() const { return is_made_.load(std::memory_order_acquire); }
  // Called after another buffer was set: these elements are no longer needed. Not under the lock of the storage.
  void give_up();

 private:
  struct Making;
  class MakingEnd;
  std::shared_ptr<const Initialiser> begin(std::shared_ptr<Making>& making);
  void fill(const Initialiser& initialiser);

  const Dtype dtype_;
  const Dims shape_;
  mutable Mutex mutex_;
  std::shared_ptr<const Initialiser> initialiser_ GUARDED_BY(mutex_);
  std::shared_ptr<Making> making_ GUARDED_BY(mutex_);  // nullptr: no thread makes them now
  std::atomic<bool> is_made_{false};
};

// Counts of this process since it began, in relaxed order.
struct DeferredCounts {
  uint64_t tensors = 0;  // alive, with elements not made yet
  uint64_t bytes_made_here = 0;
  uint64_t bytes_made_whole = 0;
};
DeferredCounts deferred_counts();

}  // namespace distag
