#include "tensor/tensor.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>

#include "base/error.h"
#include "tensor/deferred.h"
#include "tensor/shape_only.h"
#include "tensor/strided.h"

namespace distag {

namespace {

// Process-wide, as few things are: ids are compared across workers of a process.
std::atomic<uint64_t> g_last_id{0};

// A use count of 1 is only a hint of the past: the copy and its release order this thread after the one that gave up
// the second reference, so that its reads happened before our writes.
template <typename T>
bool is_only_holder(const std::shared_ptr<T>& pointer) {
  if (pointer.use_count() != 1) return false;
  std::shared_ptr<T> ordered = pointer;
  return true;
}

// Throws unless all elements lie within `capacity` elements.
void check_bounds(const Dims& shape, const Dims& strides, int64_t offset, int64_t capacity) {
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return;
  const auto reach = reach_of(shape, strides);
  int64_t highest = 0;
  if (!reach || offset < 0 || offset + reach->lowest < 0 || __builtin_add_overflow(offset, reach->highest, &highest) ||
      highest >= capacity) {
    fail(Status::kInvalidArgument, "shape {} with strides {} reaches outside of the memory given ({} elements)",
         to_string(shape), to_string(strides), capacity);
  }
}

}  // namespace

Tensor Tensor::make(Dtype dtype, const Dims& shape, const Dims& strides, int64_t offset, int64_t count,
                    std::shared_ptr<Storage> storage) {
  uint64_t id = g_last_id.fetch_add(1, std::memory_order_relaxed) + 1;
  return Tensor(
      new TensorData(id, dtype, is_row_major(shape, strides), shape, strides, offset, count, std::move(storage)));
}

Tensor Tensor::empty(Dtype dtype, const Dims& shape) {
  size_t item_size = checked_dtype_size(dtype);
  int64_t count = element_count(shape, item_size);
  auto storage = std::make_shared<Storage>(Buffer::allocate(static_cast<size_t>(count) * item_size));
  return make(dtype, shape, row_major_strides(shape), 0, count, std::move(storage));
}

Tensor Tensor::over(BufferRef buffer, Dtype dtype, const Dims& shape, const Dims& strides, int64_t offset) {
  size_t item_size = checked_dtype_size(dtype);
  int64_t count = element_count(shape, item_size);
  if (shape.size() != strides.size()) {
    fail(Status::kInvalidArgument, "{} strides for {} dimensions", strides.size(), shape.size());
  }
  check_bounds(shape, strides, offset, static_cast<int64_t>(buffer->size() / item_size));
  if (count > 0 && reinterpret_cast<uintptr_t>(buffer->data()) % item_size != 0) {
    fail(Status::kInvalidArgument, "memory of {} elements must be aligned to {} bytes", dtype_name(dtype), item_size);
  }
  bool read_only = buffer->is_borrowed();
  return make(dtype, shape, strides, offset, count, std::make_shared<Storage>(std::move(buffer), read_only));
}

Tensor Tensor::scalar(Dtype dtype, double value) {
  if (dtype == Dtype::kInt64 && !(value >= -0x1p63 && value < 0x1p63)) {
    fail(Status::kInvalidArgument, "{} does not fit into an int64", value);
  }
  Tensor tensor = empty(dtype, Dims());
  std::byte* out = tensor.mutable_data();
  switch (dtype) {
    case Dtype::kFloat32:
      *reinterpret_cast<float*>(out) = static_cast<float>(value);
      break;
    case Dtype::kFloat64:
      *reinterpret_cast<double*>(out) = value;
      break;
    case Dtype::kInt64:
      *reinterpret_cast<int64_t*>(out) = static_cast<int64_t>(value);
      break;
    case Dtype::kBool:
      *reinterpret_cast<uint8_t*>(out) = value != 0 ? 1 : 0;
      break;
  }
  return tensor;
}

Tensor Tensor::sharded(Dtype dtype, const Dims& shape, std::unique_ptr<ShardSlot> slot) {
  checked_dtype_size(dtype);
  Tensor tensor = make(dtype, shape, row_major_strides(shape), 0, element_count(shape),
                       std::make_shared<Storage>(Buffer::allocate(0)));
  tensor.data_->shard_slot.store(slot.release(), std::memory_order_release);
  return tensor;
}

Tensor Tensor::deferred(Dtype dtype, const Dims& shape, std::shared_ptr<const Initialiser> initialiser) {
  const int64_t count = element_count(shape, checked_dtype_size(dtype));
  return make(dtype, shape, row_major_strides(shape), 0, count,
              std::make_shared<DeferredStorage>(dtype, shape, std::move(initialiser)));
}

std::shared_ptr<const Initialiser> Tensor::initialiser() const {
  if (!data_->storage->is_deferred()) return nullptr;
  const auto& storage = static_cast<const DeferredStorage&>(*data_->storage);
  const bool is_all_of_it = data_->offset == 0 && data_->contiguous && data_->shape == storage.shape();
  return is_all_of_it ? storage.initialiser() : nullptr;
}

bool Tensor::set_shard_slot(std::unique_ptr<ShardSlot> slot) const {
  BufferRef gone;  // freed outside of the lock
  BufferRef nothing = Buffer::allocate(0);
  {
    const std::lock_guard<Storage> lock(*data_->storage);
    if (shard_slot() != nullptr) return false;
    data_->shard_slot.store(slot.release(), std::memory_order_seq_cst);
    if (!is_only_holder(data_->storage)) return true;
    gone = data_->storage->exchange_buffer(std::move(nothing));
  }
  if (data_->storage->is_deferred()) static_cast<DeferredStorage&>(*data_->storage).give_up();
  return true;
}

void Tensor::fail_sharded() const {
  check_not_shape_only(*this);
  fail(Status::kInvalidState,
       "{} is sharded as {}: its elements are not all here; use its own part (to_local) or the whole (gather)",
       distag::describe(*this), shard_slot()->describe());
}

size_t Tensor::byte_size() const { return static_cast<size_t>(data_->count) * dtype_size(data_->dtype); }

const std::byte* Tensor::data() const {
  check_whole();
  if (data_->count == 0) return nullptr;
  const int64_t offset = data_->offset * static_cast<int64_t>(dtype_size(data_->dtype));
  if (hold_) return hold_->data() + offset;
  data_->storage->make_elements();
  return data_->storage->buffer()->data() + offset;
}

Tensor Tensor::view(const Dims& shape, const Dims& strides, int64_t offset) const {
  // A shape of more bytes than memory can hold is refused even if sizes or strides of 0 make it small: no peer takes
  // it.
  const int64_t count = element_count(shape, dtype_size(data_->dtype));
  Tensor view = make(data_->dtype, shape, strides, offset, count, data_->storage);
  check_whole();  // set_shard_slot() leaves the memory to tensors that share the storage by now
  view.hold_ = hold_;
  return view;
}

Tensor Tensor::snapshot() const {
  if (const ShardSlot* slot = shard_slot()) return slot->snapshot();
  return make(data_->dtype, data_->shape, data_->strides, data_->offset, data_->count,
              std::make_shared<Storage>(buffer()));
}

Tensor Tensor::contiguous() const { return data_->contiguous ? *this : clone(); }

Tensor Tensor::clone() const {
  if (const ShardSlot* slot = shard_slot()) return slot->whole().clone();
  Tensor copy = empty(data_->dtype, data_->shape);
  if (data_->count > 0) copy_to(copy.mutable_data());
  return copy;
}

Tensor Tensor::private_clone() const {
  if (const ShardSlot* slot = shard_slot()) return slot->whole().private_clone();
  const Dims strides = row_major_strides(data_->shape);
  Tensor copy = over(Buffer::allocate_private(byte_size()), data_->dtype, data_->shape, strides);
  if (data_->count > 0) copy_to(copy.mutable_data());
  return copy;
}

std::byte* Tensor::mutable_data() {
  check_whole();
  Storage& storage = *data_->storage;
  if (storage.is_read_only()) {
    fail(Status::kInvalidState, "tensor {} borrows its memory and cannot be written: clone it first", describe(*this));
  }
  if (data_->count == 0) return nullptr;
  storage.make_elements();
  storage.make_writable();
  return const_cast<std::byte*>(storage.buffer()->data()) +
         data_->offset * static_cast<int64_t>(dtype_size(data_->dtype));
}

bool Tensor::is_exclusive() const {
  if (!data_ || shard_slot() != nullptr || hold_ || !data_->storage->is_common()) return false;
  return data_->holders.load(std::memory_order_acquire) == 1 && is_only_holder(data_->storage) &&
         data_->storage->buffer()->is_writable();
}

bool Tensor::owns_buffer() const {
  const std::unique_lock<Storage> lock(*data_->storage, std::try_to_lock);
  if (!lock.owns_lock()) return false;
  const BufferRef& buffer = data_->storage->buffer();
  return buffer && buffer->is_writable();
}

bool Tensor::is_protected() const {
  if (shard_slot() != nullptr || !data_->storage->is_made()) return false;
  const std::lock_guard<Storage> lock(*data_->storage);
  const BufferRef& buffer = data_->storage->buffer();
  return buffer && buffer->is_protected();
}

Tensor Tensor::hold() const {
  Tensor held = *this;
  if (held.hold_) return held;
  if (data_->storage->is_deferred()) {
    check_whole();
    data_->storage->make_elements();
  }
  const std::lock_guard<Storage> lock(*data_->storage);
  held.set_hold_locked();
  return held;
}

bool Tensor::set_grad_slot(std::unique_ptr<GradSlot> slot) const {
  GradSlot* expected = nullptr;
  if (!data_->grad_slot.compare_exchange_strong(expected, slot.get(), std::memory_order_acq_rel)) return false;
  slot.release();
  return true;
}

void Tensor::copy_to(void* out) const {
  if (data_->count == 0) return;
  if (const ShardSlot* slot = shard_slot()) return slot->whole().copy_to(out);
  const Tensor held = hold();
  if (data_->contiguous) {
    std::memcpy(out, held.data(), byte_size());
    return;
  }
  copy_strided(static_cast<std::byte*>(out), row_major_strides(data_->shape), held.data(), data_->strides, data_->shape,
               dtype_size(data_->dtype));
}

double Tensor::item() const {
  if (data_->count != 1) {
    fail(Status::kInvalidArgument, "item: {} has {} elements, not one", describe(*this), data_->count);
  }
  if (const ShardSlot* slot = shard_slot()) return slot->whole().item();
  const Tensor held = hold();
  switch (data_->dtype) {
    case Dtype::kFloat32:
      return static_cast<double>(*held.data_as<float>());
    case Dtype::kFloat64:
      return *held.data_as<double>();
    case Dtype::kInt64:
      return static_cast<double>(*held.data_as<int64_t>());
    case Dtype::kBool:
      return *held.data_as<uint8_t>() != 0 ? 1.0 : 0.0;
  }
  return 0.0;
}

std::string describe(const Tensor& tensor) {
  if (!tensor) return "none";
  return dtype_name(tensor.dtype()) + to_string(tensor.shape());
}

}  // namespace distag
