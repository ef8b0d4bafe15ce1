// softmax and log_softmax along a dim, without overflow: the largest element is taken out first.
#include "ops/softmax.h"

#include "ops/attributes.h"
#include "ops/builtins.h"
#include "ops/elementwise.h"
#include "ops/reduce_kernels.h"
#include "ops/views.h"

namespace distag::ops {
namespace {

// The tensor with `dim` as its last one, row-major; and back.
Tensor with_last(const Tensor& x, size_t dim) {
  return dim + 1 < x.rank() ? transposed(x, dim, x.rank() - 1).contiguous() : x.contiguous();
}

Tensor from_last(const Tensor& y, size_t dim) {
  return dim + 1 < y.rank() ? transposed(y, dim, y.rank() - 1).contiguous() : y;
}

struct Rows {
  int64_t rows = 0;
  int64_t count = 0;
  explicit Rows(const Tensor& x) : rows(x.count()), count(x.rank() == 0 ? 1 : x.shape().back()) {
    if (count > 0) rows /= count;
  }
};

// A row kernel over all rows of tensors of one shape: `out` may be one of the inputs.
template <template <typename> typename Kernel>
void over_rows(const char* op, Tensor& out, const Tensor& x) {
  Rows size(x);
  if (x.count() == 0) return;
  dispatch_floating(op, x.dtype(), [&]<typename T>(T) {
    const T* in = x.data_as<T>();
    simd::run<Kernel<T>, T*, const T*, int64_t, int64_t>(out.mutable_data_as<T>(), in, size.rows, size.count);
  });
}

template <template <typename> typename Kernel>
void over_rows(const char* op, Tensor& out, const Tensor& gradient, const Tensor& y) {
  Rows size(y);
  if (y.count() == 0) return;
  dispatch_floating(op, y.dtype(), [&]<typename T>(T) {
    const T* g = gradient.data_as<T>();
    simd::run<Kernel<T>, T*, const T*, const T*, int64_t, int64_t>(out.mutable_data_as<T>(), g, y.data_as<T>(),
                                                                   size.rows, size.count);
  });
}

template <template <typename> typename Kernel>
Tensor forward(const char* op, const Tensor& input, const Attributes& attributes, Saved* saved) {
  Tensor x = is_floating(input.dtype()) ? input : as_dtype(input, Dtype::kFloat32);
  size_t dim = checked_dim(op, get_int(attributes, "dim", -1), x);
  Tensor rows = with_last(x, dim);
  Tensor y = Tensor::empty(x.dtype(), rows.shape());
  over_rows<Kernel>(op, y, rows);
  if (saved != nullptr) {
    saved->tensors = {y.snapshot()};
    saved->shapes = {Dims{static_cast<int64_t>(dim)}};
  }
  return from_last(y, dim);
}

template <template <typename> typename Kernel>
Tensors backward(const char* op, const Saved& saved, Tensors gradients) {
  if (!gradients[0]) return gradients;
  auto dim = static_cast<size_t>(saved.shapes[0][0]);
  const Tensor& y = saved.tensors[0];
  Tensor g = with_last(gradients[0], dim);
  gradients.clear();
  Tensor out = output_for(g, g.dtype(), g.shape());
  over_rows<Kernel>(op, out, g, y);
  return {from_last(out, dim)};
}

// ---- softmax --------------------------------------------------------------------------------------------------------

template <typename T>
struct SoftmaxRows {
  DISTAG_INLINE static void run(T* out, const T* x, int64_t rows, int64_t count) {
    for (int64_t r = 0; r < rows; ++r, out += count, x += count) {
      auto scale = static_cast<T>(1 / exp_below_largest(out, x, largest_of_row(x, count), count));
      DISTAG_INDEPENDENT
      for (int64_t i = 0; i < count; ++i) out[i] = out[i] * scale;
    }
  }
};

// y (g - sum(g y)), with h = g - g[i] in the place of g where an element y[i] is above 1/2: y[i] near 1 has lost the
// digits of 1 - y[i], which h does without.
template <typename T>
struct SoftmaxGradientRows {
  DISTAG_INLINE static void run(T* out, const T* g, const T* y, int64_t rows, int64_t count) {
    using Total = typename Sum<T>::Total;
    for (int64_t r = 0; r < rows; ++r, out += count, g += count, y += count) {
      const T of_largest = gradient_of_largest(g, y, count);
      const auto dot = static_cast<T>(reduce_terms<Sum<T>>(count, [g, y, of_largest](int64_t i) DISTAG_INLINE_LAMBDA {
        return static_cast<Total>(g[i] - of_largest) * static_cast<Total>(y[i]);
      }));
      DISTAG_INDEPENDENT
      for (int64_t i = 0; i < count; ++i) out[i] = y[i] * ((g[i] - of_largest) - dot);
    }
  }

 private:
  DISTAG_INLINE static T gradient_of_largest(const T* g, const T* y, int64_t count) {
    const T largest = largest_of_row(y, count);
    if (!(largest > T(0.5))) return T(0);
    int64_t i = 0;
    while (y[i] != largest) ++i;
    return g[i];
  }
};

Tensors softmax_forward(std::span<const Tensor> inputs, const Attributes& attributes, Saved* saved) {
  return {forward<SoftmaxRows>("softmax", inputs[0], attributes, saved)};
}

Tensors softmax_backward(const Saved& saved, Tensors gradients) {
  return backward<SoftmaxGradientRows>("softmax", saved, std::move(gradients));
}

}  // namespace

constexpr Op kSoftmax{.name = "softmax",
                      .signature = "softmax(tensor x, int64 dim = -1) -> tensor",
                      .summary = "exp(x) / sum(exp(x)) along dim, in the shape of x, without overflow.",
                      .forward = softmax_forward,
                      .backward = softmax_backward,
                      .is_cheap = true};

// ---- log_softmax ----------------------------------------------------------------------------------------------------

namespace {

template <typename T>
struct LogSoftmaxRows {
  DISTAG_INLINE static void run(T* out, const T* x, int64_t rows, int64_t count) {
    for (int64_t r = 0; r < rows; ++r, out += count, x += count) {
      T largest = largest_of_row(x, count);
      auto log_sum = static_cast<T>(log_sum_below_largest(out, x, largest, count));
      DISTAG_INDEPENDENT
      for (int64_t i = 0; i < count; ++i) out[i] = (x[i] - largest) - log_sum;
    }
  }
};

// g - exp(y) sum(g), where y is near 0 as (g - sum(g)) - (exp(y) - 1) sum(g): exact where g is 0 but there.
template <typename T>
struct LogSoftmaxGradientRows {
  DISTAG_INLINE static void run(T* out, const T* g, const T* y, int64_t rows, int64_t count) {
    for (int64_t r = 0; r < rows; ++r, out += count, g += count, y += count) {
      auto sum = static_cast<T>(reduce_row<Sum<T>, T>(g, count));
      DISTAG_INDEPENDENT
      for (int64_t i = 0; i < count; ++i) out[i] = of_element(g[i], y[i], sum);
    }
  }

  DISTAG_INLINE static T of_element(T g, T y, T sum) {
    const math::ShareNotAbove1<T> share(y);
    return share.is_near_1 ? (g - sum) - share.value * sum : g - share.value * sum;
  }
};

Tensors log_softmax_forward(std::span<const Tensor> inputs, const Attributes& attributes, Saved* saved) {
  return {forward<LogSoftmaxRows>("log_softmax", inputs[0], attributes, saved)};
}

Tensors log_softmax_backward(const Saved& saved, Tensors gradients) {
  return backward<LogSoftmaxGradientRows>("log_softmax", saved, std::move(gradients));
}

struct LogOfTerms {
  template <typename T>
  DISTAG_INLINE T operator()(T ones, T rest) const {
    return log_of_terms(ones, rest);
  }
};

struct LogSoftmaxGradient {
  template <typename T>
  DISTAG_INLINE T operator()(T g, T y, T sum) const {
    return LogSoftmaxGradientRows<T>::of_element(g, y, sum);
  }
};

}  // namespace

Tensor log_of_terms(const Tensor& ones, const Tensor& rest) {
  return combine(
      "log", [](const auto& a, const auto& b) { return each(LogOfTerms(), a, b); }, ones, rest);
}

Tensor log_softmax_gradient(const Tensor& gradient, const Tensor& y, const Tensor& sums) {
  return combine(
      "log_softmax", [](const auto& g, const auto& r, const auto& s) { return each(LogSoftmaxGradient(), g, r, s); },
      gradient, y, sums);
}

constexpr Op kLogSoftmax{.name = "log_softmax",
                         .signature = "log_softmax(tensor x, int64 dim = -1) -> tensor",
                         .summary = "The logarithm of softmax along dim, in the shape of x, without overflow.",
                         .forward = log_softmax_forward,
                         .backward = log_softmax_backward,
                         .is_cheap = true};

}  // namespace distag::ops
