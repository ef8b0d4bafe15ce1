// Ops on the elements of some dims together: logsumexp, var, std, layer_norm. Sums are those of reduce_kernels.h; what
// is done with them are expressions over rows.
#include "ops/statistics.h"

#include <cmath>
#include <utility>

#include "base/error.h"
#include "ops/attributes.h"
#include "ops/binary.h"
#include "ops/builtins.h"
#include "ops/dispatch.h"
#include "ops/reduce.h"
#include "ops/softmax.h"
#include "ops/views.h"

namespace distag::ops {
namespace {

// A tensor whose reduced dims are made its last ones, row-major: a matrix with a row for each result.
struct Grouped {
  Dims order;  // of the dims of x
  Dims permuted_shape;
  int64_t rows = 1;
  int64_t count = 1;

  Grouped(const Dims& shape, const DimSet& dims) {
    for (bool reduced : {false, true}) {
      for (size_t i = 0; i < shape.size(); ++i) {
        if (dims[i] != reduced) continue;
        order.push_back(static_cast<int64_t>(i));
        permuted_shape.push_back(shape[i]);
        (reduced ? count : rows) *= shape[i];
      }
    }
  }
  Tensor gather(const Tensor& x) const { return permuted(x, order).contiguous(); }
  Tensor scatter(const Tensor& matrix) const {
    Dims inverse = order;
    for (size_t i = 0; i < order.size(); ++i) inverse[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
    return permuted(matrix, inverse);
  }
};

struct Statistic {
  DimSet dims;
  Dims shape;
  Grouped groups;

  Statistic(const char* op, const Tensor& x, const Attributes& attributes)
      : dims(checked_dims(op, get_dims(attributes, "dims"), x)),
        shape(reduced_shape(x.shape(), dims, get_bool(attributes, "keepdim", false))),
        groups(x.shape(), dims) {}
};

Tensor as_floating(const Tensor& x) { return is_floating(x.dtype()) ? x : as_dtype(x, Dtype::kFloat32); }

void save_groups(Saved* saved, const Tensor& x, const Tensor& matrix, const DimSet& dims) {
  saved->tensors = {matrix.snapshot()};
  saved->shapes = {x.shape(), Dims{static_cast<int64_t>(dims.to_ulong())}};
}

// ---- logsumexp ------------------------------------------------------------------------------------------------------

// In double, for the gradient: at a large sum a float would be off by many steps of exp(x - sum). Scratch has room for
// a row. An infinite largest element is not taken out: infinity minus infinity is no number.
template <typename T>
struct LogSumExpRows {
  DISTAG_INLINE static void run(double* out, T* scratch, const T* x, int64_t rows, int64_t count) {
    for (int64_t r = 0; r < rows; ++r, x += count) {
      T largest = reduce_row<Maximum<T>, T>(x, count);
      out[r] = std::isfinite(largest) ? log_sum_below_largest(scratch, x, largest, count) + static_cast<double>(largest)
                                      : math::log(exp_of_row(scratch, x, count));
    }
  }
};

// out = exp(x - sum) g
template <typename T>
struct LogSumExpGradientRows {
  DISTAG_INLINE static void run(T* out, const T* x, const double* sums, const T* gradients, int64_t rows,
                                int64_t count) {
    for (int64_t r = 0; r < rows; ++r, out += count, x += count) {
      double sum = sums[r];
      auto g = static_cast<double>(gradients[r]);
      DISTAG_INDEPENDENT
      for (int64_t i = 0; i < count; ++i) out[i] = static_cast<T>(exp_of_difference(x[i], sum) * g);
    }
  }

 private:
  // Of doubles the difference has a rest below its last place.
  DISTAG_INLINE static double exp_of_difference(T x, double sum) {
    const auto wide = static_cast<double>(x);
    const double difference = wide - sum;
    const double exponential = math::exp(difference);
    if constexpr (std::is_same_v<T, float>) return exponential;
    const double back = wide - difference;
    const double rest = (wide - (difference + back)) + (back - sum);
    return exponential + exponential * (rest == rest ? rest : 0.0);  // no number where one of them is infinite
  }
};

// log(sum(exp(x))), without overflow.
Tensors logsumexp_forward(std::span<const Tensor> inputs, const Attributes& attributes, Saved* saved) {
  Tensor x = as_floating(inputs[0]);
  Statistic statistic("logsumexp", x, attributes);
  const Grouped& groups = statistic.groups;
  Tensor matrix = groups.gather(x);
  Tensor sums = Tensor::empty(Dtype::kFloat64, statistic.shape);
  dispatch_floating("logsumexp", x.dtype(), [&]<typename T>(T) {
    if (sums.count() == 0) return;
    Tensor scratch = Tensor::empty(x.dtype(), Dims{groups.count});
    simd::run<LogSumExpRows<T>, double*, T*, const T*, int64_t, int64_t>(
        sums.mutable_data_as<double>(), scratch.mutable_data_as<T>(), matrix.data_as<T>(), groups.rows, groups.count);
  });
  if (saved != nullptr) {
    save_groups(saved, x, matrix, statistic.dims);
    saved->tensors.push_back(sums.snapshot());
  }
  return {as_dtype(sums, x.dtype())};
}

Tensors logsumexp_backward(const Saved& saved, Tensors gradients) {
  if (!gradients[0]) return gradients;
  const Tensor& matrix = saved.tensors[0];
  Grouped groups(saved.shapes[0], DimSet(static_cast<uint64_t>(saved.shapes[1][0])));
  Tensor g = gradients[0].contiguous();
  Tensor out = Tensor::empty(matrix.dtype(), groups.permuted_shape);
  if (out.count() == 0) return {groups.scatter(out)};
  dispatch_floating("logsumexp", matrix.dtype(), [&]<typename T>(T) {
    simd::run<LogSumExpGradientRows<T>, T*, const T*, const double*, const T*, int64_t, int64_t>(
        out.mutable_data_as<T>(), matrix.data_as<T>(), saved.tensors[1].data_as<double>(), g.data_as<T>(), groups.rows,
        groups.count);
  });
  return {groups.scatter(out)};
}

}  // namespace

constexpr Op kLogsumexp{
    .name = "logsumexp",
    .signature = "logsumexp(tensor x, int64[] dims = [], bool keepdim = false) -> tensor",
    .summary = "log(sum(exp(x))) over dims ([] for all), which go away or stay with size 1, without overflow.",
    .forward = logsumexp_forward,
    .backward = logsumexp_backward,
    .is_cheap = true};

// ---- var ------------------------------------------------------------------------------------------------------------

namespace {

// Of each row the mean, and sum((x - mean)^2) / divisor, both as exact as they were computed.
template <typename T>
struct MomentRows {
  DISTAG_INLINE static void run(double* means, double* variances, const T* x, double divisor, int64_t rows,
                                int64_t count) {
    for (int64_t r = 0; r < rows; ++r, x += count) {
      double mean = reduce_row<Sum<T>, T>(x, count) / static_cast<double>(count);
      means[r] = mean;
      variances[r] = reduce_terms<Sum<T>>(count,
                                          [x, mean](int64_t i) DISTAG_INLINE_LAMBDA {
                                            double distance = static_cast<double>(x[i]) - mean;
                                            return distance * distance;
                                          }) /
                     divisor;
    }
  }
};

// out = (x - mean) factor for each row.
template <typename T>
struct CenteredRows {
  DISTAG_INLINE static void run(T* out, const T* x, const double* means, const double* factors, int64_t rows,
                                int64_t count) {
    for (int64_t r = 0; r < rows; ++r, out += count, x += count) {
      double mean = means[r];
      double factor = factors[r];
      DISTAG_INDEPENDENT
      for (int64_t i = 0; i < count; ++i) out[i] = static_cast<T>((static_cast<double>(x[i]) - mean) * factor);
    }
  }
};

template <typename T>
void center_rows(Tensor& out, const Tensor& x, const Tensor& means, const Tensor& factors, int64_t rows,
                 int64_t count) {
  simd::run<CenteredRows<T>, T*, const T*, const double*, const double*, int64_t, int64_t>(
      out.mutable_data_as<T>(), x.data_as<T>(), means.data_as<double>(), factors.data_as<double>(), rows, count);
}

}  // namespace

Moments::Moments(const char* op, const Tensor& matrix, double divisor, int64_t rows, int64_t count)
    : means(Tensor::empty(Dtype::kFloat64, Dims{rows})), variances(Tensor::empty(Dtype::kFloat64, Dims{rows})) {
  dispatch_floating(op, matrix.dtype(), [&]<typename T>(T) {
    simd::run<MomentRows<T>, double*, double*, const T*, double, int64_t, int64_t>(
        means.mutable_data_as<double>(), variances.mutable_data_as<double>(), matrix.data_as<T>(), divisor, rows,
        count);
  });
}

Tensor centered_rows(const char* op, const Tensor& matrix, const Tensor& means, const Tensor& factors, int64_t rows,
                     int64_t count) {
  Tensor out = Tensor::empty(matrix.dtype(), matrix.shape());
  if (out.count() == 0) return out;
  dispatch_floating(op, matrix.dtype(),
                    [&]<typename T>(T) { center_rows<T>(out, matrix, means, factors, rows, count); });
  return out;
}

namespace {

double divisor_of(const Attributes& attributes, int64_t count) {
  if (count == 0) return 0.0;
  return std::max(0.0, static_cast<double>(count) - get_float(attributes, "correction", 1.0));
}

// float64[rows]: sum((x - mean)^2) / (n - correction). Leaves what centered_gradient takes.
Tensor variances_of(const char* op, const Tensor& x, const Statistic& statistic, const Attributes& attributes,
                    Saved* saved) {
  const Grouped& groups = statistic.groups;
  Tensor matrix = groups.gather(x);
  Moments moments(op, matrix, divisor_of(attributes, groups.count), groups.rows, groups.count);
  if (saved != nullptr) {
    save_groups(saved, x, matrix, statistic.dims);
    saved->tensors.push_back(moments.means);
    saved->attributes = attributes;
  }
  return moments.variances;
}

// (x - mean) slope of each row; slopes: float64[rows].
Tensor centered_gradient(const char* op, const Saved& saved, const Tensor& slopes) {
  const Tensor& matrix = saved.tensors[0];
  const Grouped groups(saved.shapes[0], DimSet(static_cast<uint64_t>(saved.shapes[1][0])));
  Tensor out = Tensor::empty(matrix.dtype(), groups.permuted_shape);
  if (out.count() == 0) return groups.scatter(out);
  dispatch_floating(op, matrix.dtype(), [&]<typename T>(T) {
    center_rows<T>(out, matrix, saved.tensors[1], slopes, groups.rows, groups.count);
  });
  return groups.scatter(out);
}

int64_t count_of_rows(const Saved& saved) {
  return Grouped(saved.shapes[0], DimSet(static_cast<uint64_t>(saved.shapes[1][0]))).count;
}

void check_has_moments(const char* op, const Tensor& x) {
  if (is_floating(x.dtype())) return;
  fail(Status::kUnsupported, "{}: dtype of {} is not supported: cast it first", op, describe(x));
}

Tensors var_forward(std::span<const Tensor> inputs, const Attributes& attributes, Saved* saved) {
  const Tensor& x = inputs[0];
  check_has_moments("var", x);
  const Statistic statistic("var", x, attributes);
  const Tensor variances = variances_of("var", x, statistic, attributes, saved);
  return {as_dtype(with_shape(variances, statistic.shape), x.dtype())};
}

// 2 (x - mean) g / divisor
Tensors var_backward(const Saved& saved, Tensors gradients) {
  if (!gradients[0]) return gradients;
  Tensor slopes = as_dtype(gradients[0], Dtype::kFloat64).contiguous();
  const double factor = 2.0 / divisor_of(saved.attributes, count_of_rows(saved));
  slopes = combine(
      "var", [factor](const auto& g) { return g * factor; }, slopes);
  return {centered_gradient("var", saved, slopes)};
}

}  // namespace

constexpr Op kVar{
    .name = "var",
    .signature = "var(tensor x, int64[] dims = [], bool keepdim = false, float64 correction = 1) -> tensor",
    .summary = "sum((x - mean)^2) / (n - correction) over dims ([] for all), which go away or stay with size 1.",
    .forward = var_forward,
    .backward = var_backward,
    .is_cheap = true};

// ---- std ------------------------------------------------------------------------------------------------------------

namespace {

Tensors std_forward(std::span<const Tensor> inputs, const Attributes& attributes, Saved* saved) {
  const Tensor& x = inputs[0];
  check_has_moments("std", x);
  const Statistic statistic("std", x, attributes);
  const auto root = [](const auto& variance) { return xt::sqrt(variance); };
  Tensor roots = combine("std", root, variances_of("std", x, statistic, attributes, saved));
  roots = with_shape(roots, statistic.shape);
  if (saved != nullptr) saved->tensors.push_back(roots.snapshot());
  return {as_dtype(roots, x.dtype())};
}

// (x - mean) g / (divisor y); 0 where y is.
Tensors std_backward(const Saved& saved, Tensors gradients) {
  if (!gradients[0]) return gradients;
  const double divisor = divisor_of(saved.attributes, count_of_rows(saved));
  const auto slope = [divisor](const auto& g, const auto& y) {
    return select(xt::equal(y, 0.0), 0.0, g / (y * divisor));
  };
  const Tensor g = as_dtype(gradients[0], Dtype::kFloat64).contiguous();
  return {centered_gradient("std", saved, combine("std", slope, g, saved.tensors[2]))};
}

}  // namespace

constexpr Op kStd{
    .name = "std",
    .signature = "std(tensor x, int64[] dims = [], bool keepdim = false, float64 correction = 1) -> tensor",
    .summary = "The root of var over dims ([] for all), which go away or stay with size 1; its gradient at 0 is 0.",
    .forward = std_forward,
    .backward = std_backward,
    .is_cheap = true};

// ---- layer_norm -----------------------------------------------------------------------------------------------------

namespace {

// The last dims of x, each row of which is normalized, and weight and bias of their shape.
struct Normalization {
  int64_t rows = 1;
  int64_t count = 1;
  double epsilon;

  Normalization(const Tensor& x, std::span<const Tensor> inputs, const Attributes& attributes)
      : epsilon(get_float(attributes, "eps", 1e-5)) {
    int64_t dims = get_int(attributes, "normalized_dims", 1);
    if (dims < 1 || dims > static_cast<int64_t>(x.rank())) {
      fail(Status::kInvalidArgument, "layer_norm: normalized_dims {} do not fit {}", dims, describe(x));
    }
    size_t first = x.rank() - static_cast<size_t>(dims);
    Dims normalized;
    for (size_t i = 0; i < x.rank(); ++i) {
      (i < first ? rows : count) *= x.shape()[i];
      if (i >= first) normalized.push_back(x.shape()[i]);
    }
    for (const Tensor& factor : inputs.subspan(1)) {
      if (!factor || (factor.shape() == normalized && factor.dtype() == x.dtype())) continue;
      fail(Status::kInvalidArgument, "layer_norm: {} does not fit the last {} dims of {}", describe(factor), dims,
           describe(x));
    }
  }
};

Tensors layer_norm_forward(std::span<const Tensor> inputs, const Attributes& attributes, Saved* saved) {
  Tensor x = inputs[0].contiguous();
  Normalization norm(x, inputs, attributes);
  Tensor weight = inputs.size() > 1 && inputs[1] ? inputs[1].contiguous() : Tensor();
  Tensor bias = inputs.size() > 2 && inputs[2] ? inputs[2].contiguous() : Tensor();
  Tensor y = Tensor::empty(x.dtype(), x.shape());
  Tensor normal = Tensor::empty(x.dtype(), x.shape());
  Tensor scales;  // of each row
  dispatch_floating("layer_norm", x.dtype(), [&]<typename T>(T) {
    if (y.count() == 0) return;
    Moments moments("layer_norm", x, static_cast<double>(norm.count), norm.rows, norm.count);
    double* factors = moments.variances.mutable_data_as<double>();
    for (int64_t r = 0; r < norm.rows; ++r) factors[r] = 1 / std::sqrt(factors[r] + norm.epsilon);
    center_rows<T>(normal, x, moments.means, moments.variances, norm.rows, norm.count);
    scales = as_dtype(moments.variances, x.dtype());
    const auto scaled = [](const auto& n, const auto& w, const auto& b) { return n * w + b; };
    if (weight && bias) {
      compute_alike<T>(y, scaled, normal, weight, bias);
    } else if (weight) {
      compute_alike<T>(y, kProductOf, normal, weight);
    } else if (bias) {
      compute_alike<T>(y, kSumOf, normal, bias);
    } else {
      y = normal.clone();
    }
  });
  if (saved != nullptr) {
    saved->tensors = {normal, scales, weight ? weight.snapshot() : Tensor()};
    saved->shapes = {Dims{norm.rows, norm.count, static_cast<int64_t>(inputs.size())}};
    for (size_t i = 0; i < inputs.size(); ++i) {
      saved->shapes.push_back(inputs[i] ? inputs[i].shape() : Dims());
      if (!inputs[i]) saved->needed &= ~(uint64_t{1} << i);
    }
  }
  return {y};
}

// With h = weight g: dx = (h - mean(h) - normal mean(h normal)) scale; `out` holds h at first.
template <typename T>
struct LayerNormGradientRows {
  DISTAG_INLINE static void run(T* out, const T* normal, const T* scales, int64_t rows, int64_t count) {
    for (int64_t r = 0; r < rows; ++r, out += count, normal += count) {
      using Total = typename Sum<T>::Total;
      auto mean = static_cast<T>(reduce_row<Sum<T>, T>(out, count) / static_cast<Total>(count));
      auto slope = static_cast<T>(dot_of_rows(out, normal, count) / static_cast<Total>(count));
      T scale = scales[r];
      DISTAG_INDEPENDENT
      for (int64_t i = 0; i < count; ++i) out[i] = (out[i] - mean - normal[i] * slope) * scale;
    }
  }
};

template <typename T>
Tensor layer_norm_input_gradient(const Saved& saved, const Tensor& g, int64_t rows, int64_t count) {
  Tensor result = saved.tensors[2] ? Tensor::empty(g.dtype(), g.shape()) : g.clone();
  if (saved.tensors[2]) compute_alike<T>(result, kProductOf, g, saved.tensors[2]);
  simd::run<LayerNormGradientRows<T>, T*, const T*, const T*, int64_t, int64_t>(
      result.mutable_data_as<T>(), saved.tensors[0].data_as<T>(), saved.tensors[1].data_as<T>(), rows, count);
  return result;
}

Tensors layer_norm_backward(const Saved& saved, Tensors gradients) {
  int64_t rows = saved.shapes[0][0];
  int64_t count = saved.shapes[0][1];
  Tensors result(static_cast<size_t>(saved.shapes[0][2]));
  if (!gradients[0]) return result;
  Tensor g = gradients[0].contiguous();
  Tensor g_rows = with_shape(g, Dims{rows, count});
  const DimSet over_rows(1);
  dispatch_floating("layer_norm", g.dtype(), [&]<typename T>(T) {
    if (saved.needs(0)) {
      result[0] = g.count() > 0 ? layer_norm_input_gradient<T>(saved, g, rows, count) : g.clone();
    }
    if (result.size() > 1 && saved.needs(1)) {
      Tensor products = Tensor::empty(g.dtype(), g_rows.shape());
      compute_alike<T>(products, kProductOf, g_rows, with_shape(saved.tensors[0], g_rows.shape()));
      result[1] = sum_over(products, over_rows, saved.shapes[2]);
    }
    if (result.size() > 2 && saved.needs(2)) result[2] = sum_over(g_rows, over_rows, saved.shapes[3]);
  });
  return result;
}

}  // namespace

constexpr Op kLayerNorm{.name = "layer_norm",
                        .signature =
                            "layer_norm(tensor x, tensor? weight, tensor? bias, int64 normalized_dims = 1, "
                            "float64 eps = 1e-5) -> tensor",
                        .summary =
                            "(x - mean) / sqrt(var + eps) over the last normalized_dims dims, times weight, plus bias, "
                            "both of their shape.",
                        .forward = layer_norm_forward,
                        .backward = layer_norm_backward,
                        .is_cheap = true};

}  // namespace distag::ops
