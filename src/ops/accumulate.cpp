// In-place writes: sums of gradients, distag_tensor_assign and distag_tensor_add_scaled.
#include <cmath>

#include "ops/binary.h"
#include "ops/op.h"
#include "ops/require.h"
#include "tensor/access.h"
#include "tensor/strided.h"

namespace distag::ops {
namespace {

// Throws unless `source` broadcasts to `target`, and no two elements of `target` share memory.
void check_write(const char* what, const Tensor& target, const Tensor& source) {
  require(broadcast_shapes(what, target.shape(), source.shape()) == target.shape(),
          "{}: shape {} does not broadcast to {}", what, source.shape(), target.shape());
  for (size_t i = 0; i < target.rank(); ++i) {
    require(target.shape()[i] <= 1 || target.strides()[i] != 0,
            "{}: {} repeats elements (stride 0) and cannot be written: clone it first", what, target);
  }
}

// The source in the target's dtype, held, and not in the target's storage.
Tensor source_for(const Tensor& target, const Tensor& source) {
  Tensor values = as_dtype(source.hold(), target.dtype());
  return values.shares_storage_with(target) ? values.clone() : values;
}

// The caller holds the target for writing.
void write_broadcast(Tensor& target, const Tensor& values) {
  copy_strided(target.mutable_data(), target.strides(), values.data(), broadcast_strides(values, target.shape()),
               target.shape(), dtype_size(target.dtype()));
}

}  // namespace

Tensor accumulate(Tensor into, Tensor x) {
  if (!into) return x;
  if (!x) return into;
  if (const ShardSlot* slot = into.shard_slot()) return slot->like(accumulate(slot->local(), shard_of(x)));
  auto can_hold = [](const Tensor& t) { return t.is_contiguous() && t.is_exclusive(); };
  if (!can_hold(into) && can_hold(x)) std::swap(into, x);
  Tensor out = output_for(into, into.dtype(), into.shape());
  dispatch(out.dtype(), [&]<typename T>(T) { compute_alike<Wrapping<T>>(out, kSumOf, into, x); });
  return out;
}

void assign(Tensor& target, const Tensor& source) {
  check_write("assign", target, source);
  const Tensor values = source_for(target, source);
  const TensorWriter writer(target);
  if (target.count() > 0) write_broadcast(target, values);
}

void add_scaled(Tensor& target, const Tensor& source, double scale) {
  check_write("add_scaled", target, source);
  require(target.dtype() != Dtype::kInt64 || scale == std::floor(scale),
          "add_scaled: an int64 tensor takes a whole scale only, not {}", scale);
  const Tensor values = source_for(target, source);
  Tensor sum = target.is_contiguous() ? target : Tensor::empty(target.dtype(), target.shape());
  const TensorWriter writer(target);
  if (target.count() == 0) return;
  dispatch_numeric("add_scaled", target.dtype(), [&]<typename T>(T) {
    using W = Wrapping<T>;
    const auto factor = static_cast<W>(*Tensor::scalar(target.dtype(), scale).data_as<T>());
    compute<W, W, W>(
        sum, [factor](const auto& to, const auto& x) { return to + factor * x; }, target, values);
    if (!target.is_contiguous()) write_broadcast(target, sum);
  });
}

}  // namespace distag::ops
