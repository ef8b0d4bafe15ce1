#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "tensor/counted.h"
#include "tensor/dims.h"
#include "tensor/dtype.h"
#include "tensor/storage.h"

namespace distag {

// Room for the history that the autograd layer keeps with a tensor; empty in this layer.
class GradSlot {
 public:
  virtual ~GradSlot() = default;
};

class Initialiser;
class Tensor;

// The place of a tensor on the members of a mesh, as the spmd layer keeps it; empty in this layer. A tensor with a slot
// has the shape of the whole and no memory: this member's part, the shard, is a tensor like others. Thread-safe.
class ShardSlot {
 public:
  virtual ~ShardSlot() = default;

  virtual Tensor local() const = 0;
  // The current values in a storage of their own; and another tensor over the same shard. Both without history.
  virtual Tensor snapshot() const = 0;
  virtual Tensor alias() const = 0;
  // A tensor with the same placement, without history; `local` is its shard.
  virtual Tensor like(Tensor local) const = 0;
  // All values. Throws INVALID_STATE if this member has only a part of them.
  virtual Tensor whole() const = 0;
  // "('x', None) of mesh "train"", for messages.
  virtual std::string describe() const = 0;
  // Whether this member is the first of those that hold this shard: sums over shards count it here.
  virtual bool counts_here() const = 0;
  // The value is the sum of the members' parts.
  virtual bool is_partial() const = 0;
  // The same for all tensors of one mesh; nullptr: a shape that never has elements (tensor/shape_only.h).
  virtual const void* mesh() const = 0;
  // The sum of a number over all members, the same on each. Collective; waits. Timeout 0: that of the mesh.
  virtual double sum_over_members(double own, Nanos timeout) const = 0;
};

// The part that all handles to a tensor share.
struct TensorData {
  TensorData(uint64_t i, Dtype d, bool c, const Dims& sh, const Dims& st, int64_t o, int64_t n,
             std::shared_ptr<Storage> s)
      : id(i), dtype(d), contiguous(c), shape(sh), strides(st), offset(o), count(n), storage(std::move(s)) {}
  ~TensorData() {
    delete grad_slot.load(std::memory_order_relaxed);
    delete shard_slot.load(std::memory_order_relaxed);
  }
  TensorData(const TensorData&) = delete;
  TensorData& operator=(const TensorData&) = delete;

  void retain() { holders.fetch_add(1, std::memory_order_relaxed); }
  void release() {
    if (holders.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }

  std::atomic<size_t> holders{0};
  const uint64_t id;
  const Dtype dtype;
  const bool contiguous;
  const Dims shape;
  const Dims strides;
  const int64_t offset;
  const int64_t count;
  const std::shared_ptr<Storage> storage;
  std::atomic<GradSlot*> grad_slot{nullptr};    // owned; set once
  std::atomic<ShardSlot*> shard_slot{nullptr};  // likewise, under the lock of the storage
};

// A dense n-d array: dtype, shape, strides in elements, offset into a storage. A handle to shared data: copies are the
// same tensor, with the same id. A default-made tensor is undefined, like a gradient that nothing reached; it only
// answers operator bool.
//
// Thread-safe, except data() and mutable_data(): they are for tensors that are held, that a TensorWriter has, or that
// no other thread knows yet. A *held* handle keeps the buffer of one moment, and so the values, for itself and for the
// views made of it; see HeldTensors, which gives ops their inputs.
class Tensor {
 public:
  Tensor() = default;

  // Row-major, uninitialised.
  static Tensor empty(Dtype dtype, const Dims& shape);
  // Over a buffer (offset in elements). Throws INVALID_ARGUMENT when shape and strides reach outside of it.
  static Tensor over(BufferRef buffer, Dtype dtype, const Dims& shape, const Dims& strides, int64_t offset = 0);
  // 0-d. The value is converted.
  static Tensor scalar(Dtype dtype, double value);
  // A tensor on the members of a mesh, without memory. To read or write its elements throws INVALID_STATE, except
  // copy_to() and item() if this member has all of them.
  static Tensor sharded(Dtype dtype, const Dims& shape, std::unique_ptr<ShardSlot> slot);

  // Row-major, without memory until its elements are needed; see tensor/deferred.h.
  static Tensor deferred(Dtype dtype, const Dims& shape, std::shared_ptr<const Initialiser> initialiser);

  explicit operator bool() const { return bool(data_); }
  uint64_t id() const { return data_->id; }  // same id, same tensor, in this process; never 0
  Dtype dtype() const { return data_->dtype; }
  const Dims& shape() const { return data_->shape; }
  const Dims& strides() const { return data_->strides; }
  int64_t offset() const { return data_->offset; }
  size_t rank() const { return shape().size(); }
  int64_t count() const { return data_->count; }  // elements
  size_t byte_size() const;                       // count * item size
  bool is_contiguous() const { return data_->contiguous; }

  // First element of this view; nullptr when there are none.
  const std::byte* data() const;
  template <typename T>
  const T* data_as() const {
    return reinterpret_cast<const T*>(data());
  }

  // A new tensor of the same storage (follows writes), without history: for views. The caller checks the bounds.
  Tensor view(const Dims& shape, const Dims& strides, int64_t offset) const;
  // A new tensor with a storage of its own over the same buffer, without history: keeps the current values.
  Tensor snapshot() const;
  // Row-major current values: the tensor itself if it is row-major already, else a copy without history.
  Tensor contiguous() const;
  // A copy in memory of its own, row-major, without history.
  Tensor clone() const;
  // The same, to be written by others: no other process ever sees the memory.
  Tensor private_clone() const;

  // For a sole writer. Makes the buffer this storage's own (copy on write) and gives the first element, nullptr when
  // there are none. Throws INVALID_STATE for borrowed memory.
  std::byte* mutable_data();
  template <typename T>
  T* mutable_data_as() {
    return reinterpret_cast<T*>(mutable_data());
  }
  // Whether this handle, its storage and its buffer have one holder each and the memory is distag's own, so that it may
  // be reused for a result.
  bool is_exclusive() const;
  // Whether the memory is distag's own and only the storage holds it. False while another thread has the lock of the
  // storage: after a fork, a thread of the parent process has it for ever.
  bool owns_buffer() const;
  // Whether a write through the address ends the process (Buffer::adopt_protected).
  bool is_protected() const;

  // The same tensor, held. Waits for a write that is under way, and makes the elements of a deferred tensor.
  Tensor hold() const;
  bool is_held() const { return bool(hold_); }
  // For a caller that has the lock of the storage, whose elements are made.
  void set_hold_locked() {
    check_whole();
    hold_ = data_->storage->buffer();
  }
  void drop_hold() { hold_ = {}; }

  // The source of this whole tensor's elements; nullptr once they are made, or no longer needed, and for a view.
  std::shared_ptr<const Initialiser> initialiser() const;

  BufferRef buffer() const { return hold().hold_; }
  Storage& storage() const { return *data_->storage; }
  bool shares_storage_with(const Tensor& other) const { return data_->storage == other.data_->storage; }

  // nullptr until it is set, then the same for as long as the tensor lives.
  GradSlot* grad_slot() const { return data_->grad_slot.load(std::memory_order_acquire); }
  // False: a slot was set before.
  bool set_grad_slot(std::unique_ptr<GradSlot> slot) const;

  // nullptr for a tensor whose elements are all here.
  ShardSlot* shard_slot() const { return data_->shard_slot.load(std::memory_order_acquire); }
  // Makes this tensor a sharded one; its memory is freed unless others share it. False: it already is one.
  bool set_shard_slot(std::unique_ptr<ShardSlot> slot) const;
  // Throws INVALID_STATE for a sharded tensor.
  void check_whole() const {
    if (shard_slot() != nullptr) fail_sharded();
  }

  // Row-major copy to `out` (byte_size() bytes).
  void copy_to(void* out) const;
  // The only element as double. Throws INVALID_ARGUMENT when there is not exactly one.
  double item() const;

 private:
  explicit Tensor(TensorData* data) : data_(data) {}
  [[noreturn]] void fail_sharded() const;
  static Tensor make(Dtype dtype, const Dims& shape, const Dims& strides, int64_t offset, int64_t count,
                     std::shared_ptr<Storage> storage);

  Counted<TensorData> data_;
  BufferRef hold_;
};

using Tensors = std::vector<Tensor>;

// The shard of a sharded tensor; any other tensor, also an undefined one, itself.
inline Tensor shard_of(const Tensor& tensor) {
  const ShardSlot* slot = tensor ? tensor.shard_slot() : nullptr;
  return slot == nullptr ? tensor : slot->local();
}

// "float32[2, 3]", "none" for an undefined one; for messages.
std::string describe(const Tensor& tensor);

}  // namespace distag
