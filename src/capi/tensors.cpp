// Tensors: making, reading and writing them.

#include <cstring>

#include "autograd/autograd.h"
#include "base/host_callback.h"
#include "capi/op_call.h"
#include "capi/struct_check.h"
#include "ops/op.h"
#include "spmd/sharding.h"
#include "tensor/access.h"
#include "tensor/shape_only.h"
#include "tensor/strided.h"

using namespace distag;
using namespace distag::capi;

namespace {

void check_size(size_t size, Dtype dtype, const Dims& shape) {
  const size_t item_size = checked_dtype_size(dtype);
  const size_t wanted = static_cast<size_t>(element_count(shape, item_size)) * item_size;
  if (size != wanted) {
    refuse(Status::kInvalidArgument, "size is {} bytes, but {}{} needs {}", size, dtype_name(dtype), to_string(shape),
           wanted);
  }
}

// Only a tensor that is no part of a graph may change.
void check_writable(const Tensor& tensor) {
  if (autograd::has_history(tensor)) {
    refuse(Status::kInvalidState, "{} was computed from what requires grad: write to a leaf, or detach it",
           describe(tensor));
  }
  for (size_t i = 0; i < tensor.rank(); ++i) {
    if (tensor.strides()[i] == 0 && tensor.shape()[i] > 1) {
      refuse(Status::kInvalidState, "elements of {} share memory: clone it first", describe(tensor));
    }
  }
}

// The memory that a write goes to: for a sharded tensor, the part on this worker.
Tensor written_part(const Tensor& tensor) {
  check_writable(tensor);
  return shard_of(tensor);
}

// The values to write into a tensor; a sharded source has to lie as the target does.
Tensor read_part(const Tensor& source, const Tensor& target) {
  const auto* from = spmd::Sharding::of(source);
  if (from == nullptr) return source;
  const auto* to = spmd::Sharding::of(target);
  const spmd::Lying lying = from->lying();
  const bool fits = to != nullptr && &from->program() == &to->program() && source.shape() == target.shape() &&
                    places_alike(from->program().shape(), lying.spec, to->lying().spec);
  if (!fits) {
    refuse(Status::kInvalidArgument, "the source, {}, is sharded as {}, the target is {}{}: redistribute it first",
           describe(source), from->describe(), describe(target), to == nullptr ? "" : " as " + to->describe());
  }
  return lying.shard;
}

uint32_t flags_of(const Tensor& tensor) {
  uint32_t flags = 0;
  if (tensor.storage().is_read_only()) flags |= DISTAG_TENSOR_BORROWED;
  if (tensor.is_contiguous()) flags |= DISTAG_TENSOR_CONTIGUOUS;
  if (autograd::has_history(tensor)) flags |= DISTAG_TENSOR_HAS_HISTORY;
  if (tensor.shard_slot() == nullptr && !tensor.storage().is_made()) flags |= DISTAG_TENSOR_DEFERRED;
  if (is_shape_only(tensor)) flags |= DISTAG_TENSOR_SHAPE_ONLY;
  return flags;
}

distag_tensor_info describe_for_host(const Tensor& tensor) {
  distag_tensor_info info = DISTAG_TENSOR_INFO_INIT;
  info.dtype = static_cast<distag_dtype>(tensor.dtype());
  info.requires_grad = autograd::requires_grad(tensor) ? 1 : 0;
  info.flags = flags_of(tensor);
  info.id = tensor.id();
  info.ndim = tensor.rank();
  info.count = static_cast<size_t>(tensor.count());
  info.size = tensor.byte_size();
  info.shape = tensor.shape().data();
  info.strides = tensor.strides().data();
  return info;
}

}  // namespace

void distag_tensor_retain(distag_tensor* tensor) { retain_handle(tensor); }
void distag_tensor_release(distag_tensor* tensor) { release_handle(tensor); }

size_t distag_dtype_get_size(distag_dtype dtype) { return dtype_size(static_cast<Dtype>(dtype)); }

distag_status distag_tensor_create(const void* data, size_t size, distag_dtype dtype, const int64_t* shape, size_t ndim,
                                   distag_tensor** out_tensor, distag_error* err) {
  clear(out_tensor);
  return guard(__func__, err, [=] {
    need_pointer(out_tensor, "out_tensor");
    check_array(static_cast<const char*>(data), size, "data");
    const Dims dims = need_dims(shape, ndim, "shape");
    check_size(size, static_cast<Dtype>(dtype), dims);
    check_bools(data, size, static_cast<Dtype>(dtype));
    Tensor tensor = Tensor::empty(static_cast<Dtype>(dtype), dims);
    if (size > 0) std::memcpy(tensor.mutable_data(), data, size);
    *out_tensor = make_tensor(std::move(tensor));
  });
}

distag_status distag_tensor_create_borrowed(const void* data, size_t size, distag_dtype dtype, const int64_t* shape,
                                            const int64_t* strides, size_t ndim, void* user_data,
                                            distag_deleter destroy, distag_tensor** out_tensor, distag_error* err) {
  GivenData owner(user_data, destroy);
  clear(out_tensor);
  return guard(__func__, err, [&] {
    need_pointer(out_tensor, "out_tensor");
    check_array(static_cast<const char*>(data), size, "data");
    const Dims dims = need_dims(shape, ndim, "shape");
    checked_dtype_size(static_cast<Dtype>(dtype));
    element_count(dims);
    const Dims steps = strides == nullptr ? row_major_strides(dims) : need_dims(strides, ndim, "strides");
    check_bools(data, size, static_cast<Dtype>(dtype));
    BufferRef buffer =
        Buffer::borrow(data, size, [held = HostData(std::move(owner))]() mutable { held.run_destroy(); });
    *out_tensor = make_tensor(Tensor::over(std::move(buffer), static_cast<Dtype>(dtype), dims, steps));
  });
}

distag_dtype distag_tensor_get_dtype(distag_tensor* tensor) {
  const distag_tensor* live = peek(tensor);
  return live == nullptr ? 0 : static_cast<distag_dtype>(live->tensor().dtype());
}

size_t distag_tensor_get_ndim(distag_tensor* tensor) {
  const distag_tensor* live = peek(tensor);
  return live == nullptr ? 0 : live->tensor().rank();
}

const int64_t* distag_tensor_get_shape(distag_tensor* tensor) {
  const distag_tensor* live = peek(tensor);
  return live == nullptr ? nullptr : live->tensor().shape().data();
}

const int64_t* distag_tensor_get_strides(distag_tensor* tensor) {
  const distag_tensor* live = peek(tensor);
  return live == nullptr ? nullptr : live->tensor().strides().data();
}

size_t distag_tensor_get_count(distag_tensor* tensor) {
  const distag_tensor* live = peek(tensor);
  return live == nullptr ? 0 : static_cast<size_t>(live->tensor().count());
}

size_t distag_tensor_get_size(distag_tensor* tensor) {
  const distag_tensor* live = peek(tensor);
  return live == nullptr ? 0 : live->tensor().byte_size();
}

uint64_t distag_tensor_get_id(distag_tensor* tensor) {
  const distag_tensor* live = peek(tensor);
  return live == nullptr ? 0 : live->tensor().id();
}

const void* distag_tensor_get_data(distag_tensor* tensor) {
  return guard_or<const void*>(nullptr, [=]() -> const void* {
    const distag_tensor* live = peek(tensor);
    if (live == nullptr) return nullptr;
    const ShardSlot* slot = live->tensor().shard_slot();
    return (slot == nullptr ? live->tensor() : slot->whole()).hold().data();
  });
}

distag_status distag_tensor_get_info(distag_tensor* tensor, distag_tensor_info* out_info, distag_error* err) {
  return guard(__func__, err, [=] {
    if (is_readable(out_info, sizeof(distag_tensor_info))) fill_struct(out_info, distag_tensor_info{});
    const Tensor& live = need(tensor, "tensor").tensor();
    check_filled_struct(out_info, sizeof(distag_tensor_info), "distag_tensor_info");
    fill_struct(out_info, describe_for_host(live));
  });
}

distag_status distag_tensor_create_snapshot(distag_tensor* tensor, distag_tensor** out_snapshot, distag_error* err) {
  clear(out_snapshot);
  return guard(__func__, err, [=] {
    const Tensor& live = need(tensor, "tensor").tensor();
    need_pointer(out_snapshot, "out_snapshot");
    *out_snapshot = make_tensor(live.snapshot());
  });
}

distag_status distag_tensor_copy_data(distag_tensor* tensor, void* buffer, size_t capacity, distag_error* err) {
  return guard(__func__, err, [=] {
    const Tensor& live = need(tensor, "tensor").tensor();
    check_not_shape_only(live);  // even one without elements
    if (capacity < live.byte_size()) {
      refuse(Status::kInvalidArgument, "capacity is {} bytes, but {} needs {}", capacity, describe(live),
             live.byte_size());
    }
    check_array(static_cast<char*>(buffer), live.byte_size(), "buffer");
    live.copy_to(buffer);
  });
}

distag_status distag_tensor_get_item(distag_tensor* tensor, double* out_item, distag_error* err) {
  clear(out_item);
  return guard(__func__, err, [=] {
    const Tensor& live = need(tensor, "tensor").tensor();
    need_pointer(out_item, "out_item");
    *out_item = live.item();
  });
}

distag_status distag_tensor_set_requires_grad(distag_tensor* tensor, int32_t requires_grad, distag_error* err) {
  return guard(__func__, err, [=] {
    const Tensor& live = need(tensor, "tensor").tensor();
    autograd::set_requires_grad(live, need_flag(requires_grad, "requires_grad"));
  });
}

int32_t distag_tensor_get_requires_grad(distag_tensor* tensor) {
  const distag_tensor* live = peek(tensor);
  return live == nullptr || !autograd::requires_grad(live->tensor()) ? 0 : 1;
}

distag_status distag_tensor_write(distag_tensor* tensor, const void* data, size_t size, distag_error* err) {
  return guard(__func__, err, [=] {
    Tensor target = need(tensor, "tensor").tensor();
    check_not_shape_only(target);
    check_array(static_cast<const char*>(data), size, "data");
    check_size(size, target.dtype(), shard_of(target).shape());
    check_bools(data, size, target.dtype());
    target = written_part(target);
    const TensorWriter writer(target);
    if (size == 0) return;
    std::byte* out = target.mutable_data();
    if (target.is_contiguous()) {
      std::memcpy(out, data, size);
      return;
    }
    copy_strided(out, target.strides(), static_cast<const std::byte*>(data), row_major_strides(target.shape()),
                 target.shape(), dtype_size(target.dtype()));
  });
}

distag_status distag_tensor_assign(distag_tensor* tensor, distag_tensor* source, distag_error* err) {
  return guard(__func__, err, [=] {
    check_present({tensor, source}, {"tensor", "source"});
    const Tensor target = need(tensor, "tensor").tensor();
    const Tensor from = need(source, "source").tensor();
    Tensor part = written_part(target);
    ops::assign(part, read_part(from, target));
  });
}

distag_status distag_tensor_add_scaled(distag_tensor* tensor, distag_tensor* source, double scale, distag_error* err) {
  return guard(__func__, err, [=] {
    check_present({tensor, source}, {"tensor", "source"});
    const Tensor target = need(tensor, "tensor").tensor();
    const Tensor from = need(source, "source").tensor();
    Tensor part = written_part(target);
    ops::add_scaled(part, read_part(from, target), scale);
  });
}
