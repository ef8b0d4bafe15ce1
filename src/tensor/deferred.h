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

// How the elements of a deferred tensor come to be. Thread-safe.
class Initialiser {
 public:
  virtual ~Initialiser() = default;

  // Writes the elements of a box of the whole, row-major. The box has elements. May run host code, and throw what that
  // fails with: not on a loop, nor under a lock.
  virtual void fill(const Dims& offset, const Dims& extent, std::byte* out) const = 0;
};

// A box is filled in parts of at most this many bytes, cut along its first dim; an element of that dim is one part.
inline constexpr size_t kMostDeferredPart = size_t{64} << 20;

// The elements of one box of the whole as a tensor of their own, which count as made here. Throws as fill() does, and
// OUT_OF_MEMORY.
Tensor make_box(const Initialiser& initialiser, Dtype dtype, const Dims& offset, const Dims& extent);

// Has the elements made of all deferred tensors in it, on this thread: for who keeps a value that is read elsewhere.
// Sharded ones have none. Throws as Storage::make_elements().
void make_elements(const Value& value);

// The storage of a deferred tensor: an initialiser first, a buffer of all elements once somebody needs them. They are
// made by one thread, without a lock; others wait for it, and try by themselves where it failed. A thread that would
// wait for itself, since the host code of its initialiser asks for the same elements, is refused with INVALID_STATE.
class DeferredStorage final : public Storage {
 public:
  DeferredStorage(Dtype dtype, const Dims& shape, std::shared_ptr<const Initialiser> initialiser);
  ~DeferredStorage();

  const Dims& shape() const { return shape_; }
  // nullptr once the elements are made, or given up.
  std::shared_ptr<const Initialiser> initialiser() const;

  void make();
  bool is_made() const { return is_made_.load(std::memory_order_acquire); }
  // For who has put another buffer there: these elements are no longer needed. Not under the lock of the storage.
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
  std::shared_ptr<Making> making_ GUARDED_BY(mutex_);  // nullptr: no thread makes them just now
  std::atomic<bool> is_made_{false};
};

// Of this process, since it began; counted without order.
struct DeferredCounts {
  uint64_t tensors = 0;  // alive, whose elements are not made yet
  uint64_t bytes_made_here = 0;
  uint64_t bytes_made_whole = 0;
};
DeferredCounts deferred_counts();

}  // namespace distag
