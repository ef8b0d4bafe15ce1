#pragma once

#include <algorithm>
#include <array>
#include <tuple>
#include <utility>

#include <xtensor/xadapt.hpp>
#include <xtensor/xmath.hpp>
#include <xtensor/xscalar.hpp>

#include "ops/broadcast.h"
#include "ops/dispatch.h"
#include "ops/simd.h"
#include "tensor/tensor.h"

// Elementwise arithmetic is an expression of xtensor on rows: a function object takes rows (const auto&) and returns
// the expression for a row of results. xtensor refers to named operands and copies the others. So a number in an
// expression must be a temporary, such as T(0.5), or a member of the function object, never a local variable. RowPlan
// steps between rows, as xtensor is 13 to 30 times slower there.
namespace distag::ops {

// Memory of `count` elements as an operand of xtensor, without ownership.
template <typename T>
DISTAG_INLINE auto row(T* data, int64_t count) {
  const auto size = static_cast<size_t>(count);
  return xt::adapt(data, size, xt::no_ownership(), std::array<size_t, 1>{size});
}

// The element type of a row.
template <typename Row>
using Element = std::remove_const_t<typename std::decay_t<Row>::value_type>;

// Applies f to each element of a row, for functions that xtensor does not have, such as curves.
template <typename F, typename... Rows>
DISTAG_INLINE auto each(const F& f, Rows&&... rows) {
  return xt::xfunction<F, xt::const_xclosure_t<Rows>...>(f, std::forward<Rows>(rows)...);
}

// a if `condition` holds, else b. Unlike xt::where it reads both, without a branch, so that loops vectorise.
struct Selection {
  template <typename T>
  DISTAG_INLINE T operator()(bool condition, T a, T b) const {
    return condition ? a : b;
  }
};

template <typename Condition, typename A, typename B>
DISTAG_INLINE auto select(Condition&& condition, A&& a, B&& b) {
  return each(Selection(), std::forward<Condition>(condition), std::forward<A>(a), std::forward<B>(b));
}

// -1, 0 or 1. NaN gives 0, while xt::sign gives NaN and signed zeros.
constexpr auto kSignOf = [](const auto& x) {
  using T = Element<decltype(x)>;
  return select(x > 0, T(1), select(x < 0, T(-1), T(0)));
};

// Computes one row of results; `f` is the function object. Bit i of `repeated` is set if input i repeats one element.
template <typename Out, typename... In>
using RunRow = void (*)(const void* f, Out* out, int64_t count, unsigned repeated, const In*... in);

// The expression is evaluated element by element into memory. A container of xtensor on the left side would cost 6 ns
// more a row, and its loop would check for overlaps again.
template <typename F, typename Out, typename... In>
struct RowExpression {
  DISTAG_INLINE static void run(const void* f, Out* out, int64_t count, unsigned repeated, const In*... in) {
    const F& function = *static_cast<const F*>(f);
    if constexpr (sizeof...(In) == 2) {
      const auto evaluate_mixed = [&](const auto& a, const auto& b) { evaluate(function(a, b), out, count); };
      const std::tuple<const In*...> data(in...);
      if (repeated == 1) return evaluate_mixed(xt::xscalar(*std::get<0>(data)), row(std::get<1>(data), count));
      if (repeated == 2) return evaluate_mixed(row(std::get<0>(data), count), xt::xscalar(*std::get<1>(data)));
    }
    const auto evaluate_rows = [&](const auto&... rows) { evaluate(function(rows...), out, count); };
    evaluate_rows(row(in, count)...);
  }

 private:
  template <typename Expression>
  DISTAG_INLINE static void evaluate(const Expression& expression, Out* out, int64_t count) {
    DISTAG_INDEPENDENT
    for (int64_t i = 0; i < count; ++i) out[i] = static_cast<Out>(expression.data_element(static_cast<size_t>(i)));
  }
};

// The tensor for an elementwise result: `candidate` itself if it is exclusive and row-major with that dtype and shape,
// else a new tensor. The candidate's values may be read until each is overwritten.
inline Tensor output_for(const Tensor& candidate, Dtype dtype, const Dims& shape) {
  if (candidate.is_exclusive() && candidate.dtype() == dtype && candidate.is_contiguous() &&
      candidate.shape() == shape) {
    return candidate;
  }
  return Tensor::empty(dtype, shape);
}
inline Tensor output_for(const Tensor& candidate) {
  return output_for(candidate, candidate.dtype(), candidate.shape());
}
inline Tensor empty_like(const Tensor& x) { return Tensor::empty(x.dtype(), x.shape()); }

// Copies strided elements into contiguous memory piece by piece. A repeated element is copied once.
template <typename T>
class PackedRow {
 public:
  static constexpr int64_t kPiece = 256;

  PackedRow(const T* data, int64_t stride, int64_t count) : data_(data), stride_(stride) {
    if (stride_ == 0) std::fill_n(piece_, std::min(kPiece, count), *data_);
  }
  const T* next(int64_t count) {
    if (stride_ == 1) return std::exchange(data_, data_ + count);
    if (stride_ != 0) {
      for (int64_t i = 0; i < count; ++i) piece_[i] = data_[i * stride_];
      data_ += count * stride_;
    }
    return piece_;
  }

 private:
  const T* data_;
  const int64_t stride_;
  T piece_[kPiece];
};

// Runs over all rows of tensors that broadcast to the shape of a row-major `out`. Strided inputs are packed first, and
// so are repeated elements, except when they belong to one of two inputs.
template <typename Out, typename... In, typename... Inputs>
void run_rows(RunRow<Out, In...> run, const void* f, Tensor& out, const Inputs&... inputs) {
  if (out.count() == 0) return;
  const std::tuple<const In*...> data(inputs.template data_as<In>()...);
  Out* to = out.mutable_data_as<Out>();
  if (((inputs.count() == out.count() && inputs.is_contiguous()) && ...)) {
    std::apply([&](const In*... in) { run(f, to, out.count(), 0, in...); }, data);
    return;
  }
  constexpr size_t kInputs = sizeof...(In);
  const RowPlan<kInputs> plan(out.shape(), {broadcast_strides(inputs, out.shape())...});
  unsigned repeated = 0;
  bool is_packed = false;
  for (size_t i = 0; i < kInputs; ++i) {
    if (plan.row_strides[i] == 0) repeated |= 1u << i;
    is_packed = is_packed || (plan.row_strides[i] != 1 && (kInputs != 2 || plan.row_strides[i] != 0));
  }
  if (plan.row_length == 1) repeated = 0, is_packed = false;
  if (repeated == 3) is_packed = true;
  plan.for_each_row([&](const std::array<int64_t, kInputs>& offsets) {
    [&]<size_t... K>(std::index_sequence<K...>) {
      if (!is_packed) return run(f, to, plan.row_length, repeated, std::get<K>(data) + offsets[K]...);
      std::tuple<PackedRow<In>...> rows(
          PackedRow<In>(std::get<K>(data) + offsets[K], plan.row_strides[K], plan.row_length)...);
      for (int64_t done = 0; done < plan.row_length; done += PackedRow<Out>::kPiece) {
        const int64_t count = std::min(PackedRow<Out>::kPiece, plan.row_length - done);
        run(f, to + done, count, 0, std::get<K>(rows).next(count)...);
      }
    }
    (std::index_sequence_for<In...>());
    to += plan.row_length;
  });
}

// out = f(in...), elementwise, broadcast to the shape of `out`, which is row-major and may be one of the inputs if that
// has the same layout. The element types are explicit: Out, then that of each input.
template <typename Out, typename... In, typename F, typename... Inputs>
void compute(Tensor& out, const F& f, const Inputs&... inputs) {
  const auto run = simd::pick<RowExpression<F, Out, In...>, const void*, Out*, int64_t, unsigned, const In*...>();
  run_rows<Out, In...>(run, &f, out, inputs...);
}

// The same if all have the element type T.
template <typename T, typename F, typename... Inputs>
void compute_alike(Tensor& out, const F& f, const Inputs&... inputs) {
  [&]<typename... In>(std::tuple<In...>*) {
    compute<T, In...>(out, f, inputs...);
  }(static_cast<std::tuple<std::conditional_t<true, T, Inputs>...>*>(nullptr));
}

// Writes f(in...), for tensors of one floating dtype, to `out`.
template <typename F, typename... Inputs>
Tensor computed(const char* op, Tensor out, const F& f, const Inputs&... inputs) {
  dispatch_floating(op, out.dtype(), [&]<typename T>(T) { compute_alike<T>(out, f, inputs...); });
  return out;
}

// f(a, ...) in the dtype and shape of `a`, to which the others broadcast.
template <typename F, typename... Inputs>
Tensor value_of(const char* op, const F& f, const Tensor& a, const Inputs&... others) {
  return computed(op, empty_like(a), f, a, others...);
}

// The same, in place of `a` if `a` is exclusive.
template <typename F, typename... Inputs>
Tensor combine(const char* op, const F& f, const Tensor& a, const Inputs&... others) {
  return computed(op, output_for(a), f, a, others...);
}

}  // namespace distag::ops
