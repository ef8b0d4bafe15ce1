// Ops on the elements of some dims together: logsumexp, var, std, layer_norm. Sums come from reduce_kernels.h; the rest
// are expressions over rows.
#include "ops/statistics.h"

#include <cmath>
#include <utility>

#include "ops/attributes.h"
#include "ops/binary.h"
#include "ops/builtins.h"
#include "ops/dispatch.h"
#include "ops/exp_sums.h"
#include "ops/finite.h"
#include "ops/reduce.h"
#include "ops/require.h"
#include "ops/views.h"

namespace distag::ops {
namespace {

struct Statistic : Reduction {
  DimsLast groups;

  Statistic(const char* op, const Tensor& x, const Attributes& attributes)
      : Reduction(op, x, attributes), groups(x.shape(), dims) {}
};

Tensor as_floating(const Tensor& x) { return is_floating(x.dtype()) ? x : as_dtype(x, Dtype::kFloat32); }

void save_groups(Saved* saved, const Tensor& x, const Tensor& matrix, const DimSet& dims) {
  saved->tensors = {matrix.snapshot()};
  saved->shapes = {x.shape(), Dims{static_cast<int64_t>(dims.to_ulong())}};
}

DimsLast saved_groups(const Saved& saved) {
  return DimsLast(saved.shapes[0], DimSet(static_cast<uint64_t>(saved.shapes[1][0])));
}

// ---- logsumexp ------------------------------------------------------------------------------------------------------

// The rounding error of the sum of a and b.
DISTAG_INLINE double rest_of_sum(double a, double b, double sum) {
  const double back = sum - a;
  return (a - (sum - back)) + (b - back);
}

// Returns the sum as two doubles, for the gradient: exp(x - sum) needs digits of the logarithm below the last place of
// a large sum. An infinite largest element is not subtracted, as infinity minus infinity is NaN.
constexpr auto kLogSumExpOfRow = [](double& sum, double& rest, auto scratch, auto x) DISTAG_INLINE_LAMBDA {
  const auto largest = reduced<Maximum<Element<decltype(x)>>>(x);
  rest = 0;
  if (std::isfinite(largest)) {
    const auto shift = static_cast<double>(largest);
    const double log_sum = log_sum_below_largest(scratch, x, largest);
    sum = log_sum + shift;
    rest = rest_of_sum(shift, log_sum, sum);
  } else {
    put(scratch, each(math::Exp(), x));
    sum = math::log(sum_of(scratch));
  }
};

// exp(x - sum - low). For doubles the differences have rounding errors below their last places.
constexpr auto kExpOfDifference = []<typename T>(T x, double sum, double low) DISTAG_INLINE_LAMBDA {
  const auto wide = static_cast<double>(x);
  const double upper = wide - sum;
  const double difference = upper - low;
  const double exponential = math::exp(difference);
  if constexpr (std::is_same_v<T, float>) return exponential;
  const double rest = rest_of_sum(wide, -sum, upper) + rest_of_sum(upper, -low, difference);
  return exponential + exponential * (rest == rest ? rest : 0.0);  // NaN if one of them is infinite
};

}  // namespace

struct LogsumexpOp {
  // log(sum(exp(x))), without overflow.
  static Tensor forward(Inputs inputs, const Attributes& attributes, Saved* saved) {
    Tensor x = as_floating(inputs[0]);
    Statistic statistic("logsumexp", x, attributes);
    const DimsLast& groups = statistic.groups;
    Tensor matrix = groups.gather(x);
    Tensor sums = Tensor::empty(Dtype::kFloat64, statistic.shape);
    Tensor rests = empty_like(sums);
    dispatch_floating("logsumexp", x.dtype(), [&]<typename T>(T) {
      if (sums.count() == 0) return;
      Tensor scratch = Tensor::empty(x.dtype(), Dims{groups.count});
      for_rows(groups.rows, groups.count, kLogSumExpOfRow, OfEach(sums.mutable_data_as<double>()),
               OfEach(rests.mutable_data_as<double>()), SameRow(scratch.mutable_data_as<T>()),
               Rows(matrix.data_as<T>()));
    });
    if (saved != nullptr) {
      save_groups(saved, x, matrix, statistic.dims);
      saved->tensors.push_back(sums.snapshot());
      saved->tensors.push_back(rests);
    }
    return as_dtype(sums, x.dtype());
  }

  static Tensor backward(const Saved& saved, Tensor g) {
    const Tensor& matrix = saved.tensors[0];
    const DimsLast groups = saved_groups(saved);
    g = g.contiguous();
    Tensor out = Tensor::empty(matrix.dtype(), groups.shape);
    if (out.count() == 0) return groups.scatter(out);
    dispatch_floating("logsumexp", matrix.dtype(), [&]<typename T>(T) {
      const auto gradient = [](auto to, auto x, double sum, double low, T g_of_row) DISTAG_INLINE_LAMBDA {
        put(to, each(kExpOfDifference, x, sum, low) * static_cast<double>(g_of_row));
      };
      for_rows(groups.rows, groups.count, gradient, Rows(out.mutable_data_as<T>()), Rows(matrix.data_as<T>()),
               OfEach(saved.tensors[1].data_as<double>()), OfEach(saved.tensors[2].data_as<double>()),
               OfEach(g.data_as<T>()));
    });
    return groups.scatter(out);
  }
};
constexpr Op kLogsumexp = make_op<LogsumexpOp>(
    "logsumexp(tensor x, int64[] dims = [], bool keepdim = false) -> tensor",
    "log(sum(exp(x))) over dims ([] for all), which go away or stay with size 1, without overflow.", kCheap);

// ---- var ------------------------------------------------------------------------------------------------------------

namespace {

// x - (mean + rest); the rest is used for doubles only.
template <typename T, typename Row>
DISTAG_INLINE auto distance_from(const Row& x, const double& mean, const double& rest) {
  if constexpr (std::is_same_v<T, double>) {
    return (x - mean) - rest;
  } else {
    return x - mean;
  }
}

}  // namespace

Moments::Moments(const char* op, const Tensor& matrix, double divisor, int64_t rows, int64_t count)
    : means(Tensor::empty(Dtype::kFloat64, Dims{rows})),
      rests(Tensor::empty(Dtype::kFloat64, Dims{rows})),
      variances(Tensor::empty(Dtype::kFloat64, Dims{rows})) {
  dispatch_floating(op, matrix.dtype(), [&]<typename T>(T) {
    const auto moments = [](double& mean, double& rest, double& variance, auto x, double by) DISTAG_INLINE_LAMBDA {
      const double center = mean_of(x);
      double lost = std::is_same_v<T, double> ? static_cast<double>(mean_of(x - center)) : 0.0;
      lost = std::isfinite(lost) ? lost : 0.0;
      mean = center;
      rest = lost;
      variance = sum_of(xt::square(distance_from<T>(x, center, lost))) / by;
    };
    for_rows(rows, count, moments, OfEach(means.mutable_data_as<double>()), OfEach(rests.mutable_data_as<double>()),
             OfEach(variances.mutable_data_as<double>()), Rows(matrix.data_as<T>()), Same(divisor));
  });
}

Tensor centered_rows(const char* op, const Tensor& matrix, const Tensor& means, const Tensor& rests,
                     const Tensor& factors, int64_t rows, int64_t count) {
  Tensor out = Tensor::empty(matrix.dtype(), matrix.shape());
  if (out.count() == 0) return out;
  const Tensor lost = rests ? rests : zero_tensor(Dtype::kFloat64, Dims{rows});
  dispatch_floating(op, matrix.dtype(), [&]<typename T>(T) {
    const auto centered = [](auto to, auto x, double mean, double rest, double factor)
                              DISTAG_INLINE_LAMBDA { put(to, distance_from<T>(x, mean, rest) * factor); };
    for_rows(rows, count, centered, Rows(out.mutable_data_as<T>()), Rows(matrix.data_as<T>()),
             OfEach(means.data_as<double>()), OfEach(lost.data_as<double>()), OfEach(factors.data_as<double>()));
  });
  return out;
}

namespace {

double divisor_of(const Attributes& attributes, int64_t count) {
  if (count == 0) return 0.0;
  return std::max(0.0, static_cast<double>(count) - get_float(attributes, "correction", 1.0));
}

// float64[rows]: sum((x - mean)^2) / (n - correction). Saves the inputs of centered_gradient().
Tensor variances_of(const char* op, const Tensor& x, const Statistic& statistic, const Attributes& attributes,
                    Saved* saved) {
  const DimsLast& groups = statistic.groups;
  get_finite(op, attributes, "correction", 1.0);
  Tensor matrix = groups.gather(x);
  Moments moments(op, matrix, divisor_of(attributes, groups.count), groups.rows, groups.count);
  if (saved != nullptr) {
    save_groups(saved, x, matrix, statistic.dims);
    saved->tensors.push_back(moments.means);
    saved->tensors.push_back(moments.rests);
    saved->attributes = attributes;
  }
  return moments.variances;
}

// (x - mean) slope of each row; slopes: float64[rows].
Tensor centered_gradient(const char* op, const Saved& saved, const Tensor& slopes) {
  const DimsLast groups = saved_groups(saved);
  const Tensors& of = saved.tensors;
  return groups.scatter(centered_rows(op, of[0], of[1], of[2], slopes, groups.rows, groups.count));
}

}  // namespace

struct VarOp {
  static Tensor forward(Inputs inputs, const Attributes& attributes, Saved* saved) {
    const Tensor& x = inputs[0];
    require_floating("var", x);
    const Statistic statistic("var", x, attributes);
    const Tensor variances = variances_of("var", x, statistic, attributes, saved);
    return as_dtype(with_shape(variances, statistic.shape), x.dtype());
  }

  // 2 (x - mean) g / divisor
  static Tensor backward(const Saved& saved, Tensor g) {
    Tensor slopes = as_dtype(g, Dtype::kFloat64).contiguous();
    const double factor = 2.0 / divisor_of(saved.attributes, saved_groups(saved).count);
    slopes = combine(
        "var", [factor](const auto& slope) { return slope * factor; }, slopes);
    return centered_gradient("var", saved, slopes);
  }
};
constexpr Op kVar = make_op<VarOp>(
    "var(tensor x, int64[] dims = [], bool keepdim = false, float64 correction = 1) -> tensor",
    "sum((x - mean)^2) / (n - correction) over dims ([] for all), which go away or stay with size 1.", kCheap);

// ---- std ------------------------------------------------------------------------------------------------------------

struct StdOp {
  static Tensor forward(Inputs inputs, const Attributes& attributes, Saved* saved) {
    const Tensor& x = inputs[0];
    require_floating("std", x);
    const Statistic statistic("std", x, attributes);
    const auto root = [](const auto& variance) { return xt::sqrt(variance); };
    Tensor roots = combine("std", root, variances_of("std", x, statistic, attributes, saved));
    roots = with_shape(roots, statistic.shape);
    if (saved != nullptr) saved->tensors.push_back(roots.snapshot());
    return as_dtype(roots, x.dtype());
  }

  // (x - mean) g / (divisor y); 0 if y is 0.
  static Tensor backward(const Saved& saved, Tensor g) {
    const double divisor = divisor_of(saved.attributes, saved_groups(saved).count);
    const auto slope = [divisor](const auto& of_y, const auto& y) {
      return select(xt::equal(y, 0.0), 0.0, of_y / (y * divisor));
    };
    g = as_dtype(g, Dtype::kFloat64).contiguous();
    return centered_gradient("std", saved, combine("std", slope, g, saved.tensors[3]));
  }
};
constexpr Op kStd = make_op<StdOp>(
    "std(tensor x, int64[] dims = [], bool keepdim = false, float64 correction = 1) -> tensor",
    "The root of var over dims ([] for all), which go away or stay with size 1; its gradient at 0 is 0.", kCheap);

// ---- layer_norm -----------------------------------------------------------------------------------------------------

namespace {

// A second program over the rows, after that of the moments: in a single program, each row would wait for a root whose
// latency other rows can hide.
constexpr auto kNormalized = [](auto y, auto normal, auto& scale, auto x, double mean, double rest, double variance,
                                double epsilon, auto weight, auto bias) DISTAG_INLINE_LAMBDA {
  const double factor = 1 / std::sqrt(variance + epsilon);
  scale = static_cast<Element<decltype(x)>>(factor);
  put(normal, distance_from<Element<decltype(x)>>(x, mean, rest) * factor);
  if (weight.data() != nullptr && bias.data() != nullptr) return put(y, normal * weight + bias);
  if (weight.data() != nullptr) return put(y, normal * weight);
  if (bias.data() != nullptr) return put(y, normal + bias);
  put(y, normal);
};

// For h, the gradient of the normal rows: (h - mean(h) - normal mean(h normal)) scale.
template <typename Out, typename H, typename Normal, typename T>
DISTAG_INLINE void put_gradient(Out& out, const H& h, const Normal& normal, T scale) {
  const auto mean = static_cast<T>(mean_of(h));
  const auto slope = static_cast<T>(mean_of(xt::cast<double>(h) * normal));
  put(out, (h - mean - normal * slope) * scale);
}

Tensor layer_norm_input_gradient(const Saved& saved, const Tensor& g, int64_t rows, int64_t count) {
  Tensor result = empty_like(g);
  dispatch_floating("layer_norm", g.dtype(), [&]<typename T>(T) {
    const auto gradient = [](auto out, auto of_y, auto normal, T scale, auto weight) DISTAG_INLINE_LAMBDA {
      if (weight.data() != nullptr) return put_gradient(out, of_y * weight, normal, scale);
      put_gradient(out, of_y, normal, scale);
    };
    for_rows(rows, count, gradient, Rows(result.mutable_data_as<T>()), Rows(g.data_as<T>()),
             Rows(saved.tensors[0].data_as<T>()), OfEach(saved.tensors[1].data_as<T>()),
             SameRow(saved.tensors[2] ? saved.tensors[2].data_as<T>() : nullptr));
  });
  return result;
}

}  // namespace

Dims normalized_shape(const char* op, const Tensor& x, const Attributes& attributes) {
  const int64_t dims = get_int(attributes, "normalized_dims", 1);
  require(dims >= 1 && dims <= static_cast<int64_t>(x.rank()), "{}: normalized_dims {} do not fit {}", op, dims, x);
  return Dims(std::span<const int64_t>(x.shape()).last(static_cast<size_t>(dims)));
}

struct LayerNormOp {
  static Tensor forward(Inputs inputs, const Attributes& attributes, Saved* saved) {
    const Tensor x = inputs[0].contiguous();
    const double epsilon = get_epsilon("layer_norm", attributes);
    const Dims normalized = normalized_shape("layer_norm", x, attributes);
    Tensor factors[2];  // weight and bias
    for (size_t i = 1; i < inputs.size(); ++i) {
      if (!inputs[i]) continue;
      require(inputs[i].shape() == normalized && inputs[i].dtype() == x.dtype(),
              "layer_norm: {} does not fit the last {} dims of {}", inputs[i], normalized.size(), x);
      factors[i - 1] = inputs[i].contiguous();
    }
    const Tensor& weight = factors[0];
    const Tensor& bias = factors[1];
    const int64_t count = element_count(normalized);
    const int64_t rows = x.count() == 0 ? 0 : x.count() / count;
    Tensor y = Tensor::empty(x.dtype(), x.shape());
    Tensor normal = Tensor::empty(x.dtype(), x.shape());
    Tensor scales = Tensor::empty(x.dtype(), Dims{rows});
    dispatch_floating("layer_norm", x.dtype(), [&]<typename T>(T) {
      const Moments moments("layer_norm", x, static_cast<double>(count), rows, count);
      for_rows(rows, count, kNormalized, Rows(y.mutable_data_as<T>()), Rows(normal.mutable_data_as<T>()),
               OfEach(scales.mutable_data_as<T>()), Rows(x.data_as<T>()), OfEach(moments.means.data_as<double>()),
               OfEach(moments.rests.data_as<double>()), OfEach(moments.variances.data_as<double>()), Same(epsilon),
               SameRow(weight ? weight.data_as<T>() : nullptr), SameRow(bias ? bias.data_as<T>() : nullptr));
    });
    if (saved != nullptr) {
      saved->tensors = {normal, scales, weight ? weight.snapshot() : Tensor()};
      saved->shapes = {Dims{rows, count, static_cast<int64_t>(inputs.size())}};
      for (size_t i = 0; i < inputs.size(); ++i) {
        saved->shapes.push_back(inputs[i] ? inputs[i].shape() : Dims());
        if (!inputs[i]) saved->needed &= ~(uint64_t{1} << i);
      }
    }
    return y;
  }

  static Tensors backward(const Saved& saved, Tensor g) {
    const int64_t rows = saved.shapes[0][0];
    const int64_t count = saved.shapes[0][1];
    Tensors result(static_cast<size_t>(saved.shapes[0][2]));
    g = g.contiguous();
    const Tensor g_rows = with_shape(g, Dims{rows, count});
    const DimSet over_rows(1);
    if (saved.needs(0)) result[0] = g.count() > 0 ? layer_norm_input_gradient(saved, g, rows, count) : g.clone();
    if (result.size() > 1 && saved.needs(1)) {
      const Tensor normal = with_shape(saved.tensors[0], g_rows.shape());
      result[1] = sum_over(value_of("layer_norm", kProductOf, g_rows, normal), over_rows, saved.shapes[2]);
    }
    if (result.size() > 2 && saved.needs(2)) result[2] = sum_over(g_rows, over_rows, saved.shapes[3]);
    return result;
  }
};
constexpr Op kLayerNorm = make_op<LayerNormOp>(
    "layer_norm(tensor x, tensor? weight, tensor? bias, int64 normalized_dims = 1, float64 eps = 1e-5) -> tensor",
    "(x - mean) / sqrt(var + eps) over the last normalized_dims dims, times weight, plus bias, both of their shape.",
    kCheap);

Tensor rests_of_sum(const Tensor& a, const Tensor& b, const Tensor& sums) {
  Tensor rests = Tensor::empty(Dtype::kFloat64, sums.shape());
  for (int64_t i = 0; i < sums.count(); ++i) {
    const double rest = rest_of_sum(a.data_as<double>()[i], b.data_as<double>()[i], sums.data_as<double>()[i]);
    rests.mutable_data_as<double>()[i] = std::isfinite(rest) ? rest : 0;
  }
  return rests;
}

}  // namespace distag::ops
