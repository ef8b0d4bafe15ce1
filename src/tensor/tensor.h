#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tensor/buffer.h"
#include "tensor/dims.h"
#include "tensor/dtype.h"

namespace distag {

// What a tensor, its views and its detached twins share: a slot that points to the buffer of today. A write to a buffer
// that anything else holds puts a new one here (copy on write), so all of them see the new values and nobody else does.
struct Storage {
  BufferRef buffer;
  // Over memory of the host: writes are refused. A snapshot of it is no longer read-only, a write to it copies.
  bool read_only = false;
};

// Room for the history that the autograd layer keeps with a tensor; empty in this layer.
class GradSlot {
 public:
  virtual ~GradSlot() = default;
};

struct TensorData;

// A dense n-d array: dtype, shape, strides in elements, offset into a storage. A handle to shared data: copies are the
// same tensor, with the same id. A default-made one is undefined, as is a gradient that nothing reached; it only
// answers operator bool. Readers may share one, a writer is alone.
class Tensor {
 public:
  Tensor() = default;

  // Row-major, uninitialised.
  static Tensor empty(Dtype dtype, const Dims& shape);
  // Over a buffer (offset in elements). Throws INVALID_ARGUMENT when shape and strides reach outside of it.
  static Tensor over(BufferRef buffer, Dtype dtype, const Dims& shape, const Dims& strides, int64_t offset = 0);
  // 0-d. The value is converted.
  static Tensor scalar(Dtype dtype, double value);

  explicit operator bool() const { return data_ != nullptr; }
  uint64_t id() const;  // same id, same tensor, in this process; never 0
  Dtype dtype() const;
  const Dims& shape() const;
  const Dims& strides() const;
  int64_t offset() const;
  size_t rank() const { return shape().size(); }
  int64_t count() const;     // elements
  size_t byte_size() const;  // count * item size
  bool is_contiguous() const;

  // First element of this view; nullptr when there are none.
  const std::byte* data() const;
  template <typename T>
  const T* data_as() const {
    return reinterpret_cast<const T*>(data());
  }

  // A new tensor of the same storage (follows writes), without history: for views. The caller answers for its bounds.
  Tensor view(const Dims& shape, const Dims& strides, int64_t offset) const;
  // A new tensor with a storage of its own over the same buffer, without history: keeps the values of now.
  Tensor snapshot() const;
  // Row-major values of now: itself when it is so already, else a copy without history.
  Tensor contiguous() const;
  // A copy in memory of its own, row-major, without history.
  Tensor clone() const;

  // For a writer. Makes the buffer this storage's own (copy on write) and gives the first element, nullptr when there
  // are none. Throws INVALID_STATE for borrowed memory.
  std::byte* mutable_data();
  template <typename T>
  T* mutable_data_as() {
    return reinterpret_cast<T*>(mutable_data());
  }
  // Whether this handle, its storage and its buffer have one holder each and the memory is distag's own, so that it may
  // be reused for a result.
  bool is_exclusive() const;

  const BufferRef& buffer() const;
  bool shares_storage_with(const Tensor& other) const;

  const std::shared_ptr<GradSlot>& grad_slot() const;
  void set_grad_slot(std::shared_ptr<GradSlot> slot);

  // Row-major copy to `out` (byte_size() bytes).
  void copy_to(void* out) const;
  // The only element as double. Throws INVALID_ARGUMENT when there is not exactly one.
  double item() const;

  // So that what hangs on a tensor can name it without keeping it.
  class Weak {
   public:
    Weak() = default;
    explicit Weak(const Tensor& tensor) : data_(tensor.data_) {}
    Tensor lock() const { return Tensor(data_.lock()); }

   private:
    std::weak_ptr<TensorData> data_;
  };

 private:
  explicit Tensor(std::shared_ptr<TensorData> data) : data_(std::move(data)) {}
  static Tensor make(Dtype dtype, const Dims& shape, const Dims& strides, int64_t offset, int64_t count,
                     std::shared_ptr<Storage> storage);
  std::shared_ptr<TensorData> data_;
};

using Tensors = std::vector<Tensor>;

// "float32[2, 3]", "none" for an undefined one; for messages.
std::string describe(const Tensor& tensor);

}  // namespace distag
