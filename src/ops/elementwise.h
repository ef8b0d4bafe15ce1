#pragma once

#include "ops/broadcast.h"
#include "ops/dispatch.h"
#include "ops/simd.h"
#include "tensor/tensor.h"

namespace distag::ops {

// Where an elementwise result may go: `candidate` itself when nobody else holds it and it is row-major with that dtype
// and shape, else a new tensor. The candidate's values may be read until each is overwritten.
inline Tensor output_for(const Tensor& candidate, Dtype dtype, const Dims& shape) {
  if (candidate.is_exclusive() && candidate.dtype() == dtype && candidate.is_contiguous() &&
      candidate.shape() == shape) {
    return candidate;
  }
  return Tensor::empty(dtype, shape);
}

// out[i] = F::apply(a[i], b[i]) over a row. The cases that matter are loops of their own, which vectorise.
template <typename F, typename Out, typename A, typename B>
struct BinaryRow {
  DISTAG_INLINE static void run(Out* out, const A* a, int64_t a_stride, const B* b, int64_t b_stride, int64_t count) {
    if (a_stride == 1 && b_stride == 1) {
      DISTAG_INDEPENDENT
      for (int64_t i = 0; i < count; ++i) out[i] = F::apply(a[i], b[i]);
    } else if (a_stride == 1 && b_stride == 0) {
      B fixed = *b;
      DISTAG_INDEPENDENT
      for (int64_t i = 0; i < count; ++i) out[i] = F::apply(a[i], fixed);
    } else if (a_stride == 0 && b_stride == 1) {
      A fixed = *a;
      DISTAG_INDEPENDENT
      for (int64_t i = 0; i < count; ++i) out[i] = F::apply(fixed, b[i]);
    } else {
      for (int64_t i = 0; i < count; ++i) out[i] = F::apply(a[i * a_stride], b[i * b_stride]);
    }
  }
};

// out = F(a, b), elementwise, broadcast to the shape of `out`, which is row-major and may be `a` or `b` itself where
// that has the same layout.
template <typename F, typename Out, typename A, typename B>
void binary_into(Tensor& out, const Tensor& a, const Tensor& b) {
  if (out.count() == 0) return;
  const A* a_data = a.data_as<A>();
  const B* b_data = b.data_as<B>();
  Out* out_data = out.mutable_data_as<Out>();
  auto row = simd::pick<BinaryRow<F, Out, A, B>, Out*, const A*, int64_t, const B*, int64_t, int64_t>();
  auto is_flat = [&out](const Tensor& x) { return x.count() == 1 || (x.is_contiguous() && x.count() == out.count()); };
  if (is_flat(a) && is_flat(b)) {
    row(out_data, a_data, a.count() == 1 ? 0 : 1, b_data, b.count() == 1 ? 0 : 1, out.count());
    return;
  }
  RowPlan<2> plan(out.shape(), {broadcast_strides(a, out.shape()), broadcast_strides(b, out.shape())});
  plan.for_each_row([&](const std::array<int64_t, 2>& offsets) {
    row(out_data, a_data + offsets[0], plan.row_strides[0], b_data + offsets[1], plan.row_strides[1], plan.row_length);
    out_data += plan.row_length;
  });
}

template <typename F, typename Out, typename A>
struct UnaryRow {
  DISTAG_INLINE static void run(Out* out, const A* x, int64_t count) {
    DISTAG_INDEPENDENT
    for (int64_t i = 0; i < count; ++i) out[i] = F::apply(x[i]);
  }
};

// out = F(x) for row-major tensors of one count; `out` may be `x` itself.
template <typename F, typename Out, typename A>
void unary_into(Tensor& out, const Tensor& x) {
  if (out.count() == 0) return;
  const A* in = x.data_as<A>();
  simd::run<UnaryRow<F, Out, A>, Out*, const A*, int64_t>(out.mutable_data_as<Out>(), in, out.count());
}

// g <- F(g, x) for a gradient g of a floating dtype and an x of its shape and dtype, in place when g is exclusive.
template <typename F>
Tensor scale_gradient(const char* op, const Tensor& gradient, const Tensor& x) {
  Tensor out = output_for(gradient, x.dtype(), x.shape());
  dispatch_floating(op, x.dtype(), [&]<typename T>(T) { binary_into<F, T, T, T>(out, gradient, x); });
  return out;
}

}  // namespace distag::ops
