// Norms made of the parts in statistics.h: rms_norm over last dims, group_norm over groups of channels, batch_norm over
// all dims except the channels. None of them keeps state.
#include <cmath>

#include "ops/attributes.h"
#include "ops/binary.h"
#include "ops/builtins.h"
#include "ops/finite.h"
#include "ops/reduce.h"
#include "ops/require.h"
#include "ops/rows.h"
#include "ops/statistics.h"
#include "ops/views.h"

namespace distag::ops {
namespace {

// An optional input, checked and row-major.
Tensor factor_at(const char* op, Inputs inputs, size_t i, const Dims& shape) {
  if (i >= inputs.size() || !inputs[i]) return Tensor();
  const Tensor& factor = inputs[i];
  require(factor.shape() == shape && factor.dtype() == inputs[0].dtype(), "{}: {} does not fit {}: {}{} does", op,
          factor, inputs[0], dtype_name(inputs[0].dtype()), shape);
  return factor.contiguous();
}

// Optional inputs that were not given get no gradient.
void save_inputs(Saved* saved, Inputs inputs, const Attributes& attributes) {
  saved->attributes = attributes;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i]) saved->needed &= ~(uint64_t{1} << i);
  }
}

constexpr DimSet kOfColumns(2);
constexpr DimSet kOfRows(1);

// 1 / sqrt(x + epsilon)
Tensor root_factors(const char* op, const Tensor& x, double epsilon) {
  return value_of(
      op, [epsilon](const auto& variances) { return 1.0 / xt::sqrt(variances + epsilon); }, x);
}

}  // namespace

// ---- rms_norm -------------------------------------------------------------------------------------------------------

struct RmsNormOp {
  static Tensor forward(Inputs inputs, const Attributes& attributes, Saved* saved) {
    const Tensor& x = inputs[0];
    require_floating("rms_norm", x);
    const double epsilon = get_epsilon("rms_norm", attributes);
    const Dims tail = normalized_shape("rms_norm", x, attributes);
    Tensor weight = factor_at("rms_norm", inputs, 1, tail);
    const int64_t count = element_count(tail);
    const int64_t rows = x.count() == 0 ? 0 : x.count() / count;  // rows without elements are not computed
    const Tensor matrix = with_shape(x.contiguous(), Dims{rows, count});
    if (weight) weight = with_shape(weight, Dims{count});

    Tensor y = Tensor::empty(x.dtype(), x.shape());
    Tensor factors = Tensor::empty(Dtype::kFloat64, Dims{rows});
    dispatch_floating("rms_norm", x.dtype(), [&]<typename T>(T) {
      const auto normalized = [epsilon](auto to, double& factor, auto from, auto by) DISTAG_INLINE_LAMBDA {
        const double scale = 1.0 / std::sqrt(mean_of(xt::square(xt::cast<double>(from))) + epsilon);
        factor = scale;
        if (by.data() == nullptr) return put(to, from * scale);
        put(to, xt::cast<T>(from * scale) * by);
      };
      for_rows(rows, count, normalized, Rows(y.mutable_data_as<T>()), OfEach(factors.mutable_data_as<double>()),
               Rows(matrix.data_as<T>()), SameRow(weight ? weight.data_as<T>() : nullptr));
    });
    if (saved != nullptr) {
      save_inputs(saved, inputs, attributes);
      saved->tensors = {matrix.snapshot(), factors, weight ? weight.snapshot() : Tensor()};
      saved->shapes = {x.shape(), Dims{rows, count}, tail, Dims{static_cast<int64_t>(inputs.size())}};
    }
    return y;
  }

  // With h = weight g: dx = (h - normal mean(h normal)) factor
  static Tensors backward(const Saved& saved, Tensor g) {
    Tensors result(static_cast<size_t>(saved.shapes[3][0]));
    const int64_t rows = saved.shapes[1][0];
    const int64_t count = saved.shapes[1][1];
    g = with_shape(g, saved.shapes[1]).contiguous();
    const Tensor& weight = saved.tensors[2];
    dispatch_floating("rms_norm", g.dtype(), [&]<typename T>(T) {
      const auto over_rows = [&](Tensor& out, const auto& program) {
        for_rows(rows, count, program, Rows(out.mutable_data_as<T>()), Rows(g.data_as<T>()),
                 Rows(saved.tensors[0].data_as<T>()), OfEach(saved.tensors[1].data_as<double>()),
                 SameRow(weight ? weight.data_as<T>() : nullptr));
      };
      if (result.size() > 1 && saved.needs(1)) {
        Tensor products = Tensor::empty(g.dtype(), g.shape());
        over_rows(products, [](auto out, auto of_y, auto x, double factor, auto)
                                DISTAG_INLINE_LAMBDA { put(out, of_y * xt::cast<T>(x * factor)); });
        result[1] = sum_over(products, kOfRows, saved.shapes[2]);
      }
      if (!saved.needs(0)) return;
      const auto put_gradient = [](auto& out, const auto& h, const auto& x, double factor) DISTAG_INLINE_LAMBDA {
        const auto normal = xt::cast<T>(x * factor);
        const auto products = h * normal;
        // A single element is its own sum, with the sign of its zero.
        const auto dot = static_cast<T>(x.size() == 1 ? products.data_element(0) : sum_of(products));
        const T share = dot / static_cast<T>(x.size());
        const auto scale = static_cast<T>(factor);
        put(out, (h - normal * share) * scale);
      };
      result[0] = Tensor::empty(g.dtype(), saved.shapes[0]);
      over_rows(result[0], [put_gradient](auto out, auto of_y, auto x, double factor, auto by) DISTAG_INLINE_LAMBDA {
        if (by.data() == nullptr) return put_gradient(out, of_y, x, factor);
        put_gradient(out, of_y * by, x, factor);
      });
    });
    return result;
  }
};
constexpr Op kRmsNorm = make_op<RmsNormOp>(
    "rms_norm(tensor x, tensor? weight, int64 normalized_dims = 1, float64 eps = 1e-5) -> tensor",
    "x / sqrt(mean(x^2) + eps) over the last normalized_dims dims, times weight of their shape.", kCheap);

// ---- group_norm, batch_norm -----------------------------------------------------------------------------------------

namespace {

// x [n, c, ..] as a matrix whose rows are normalized: contiguous elements, or all elements of a channel.
struct NormRows {
  Dims shape;
  int64_t rows = 0;
  int64_t count = 0;
  bool are_channels = false;

  NormRows(const Dims& x_shape, int64_t row_count, bool by_channel)
      : shape(x_shape), rows(row_count), are_channels(by_channel) {
    count = rows == 0 ? 0 : element_count(shape) / rows;
  }
  Tensor gather(const Tensor& x) const {
    return with_shape((are_channels ? transposed(x, 0, 1) : x).contiguous(), Dims{rows, count});
  }
  Tensor scatter(const Tensor& matrix) const {
    if (!are_channels) return with_shape(matrix, shape);
    Dims turned = shape;
    std::swap(turned[0], turned[1]);
    return transposed(with_shape(matrix, turned), 0, 1);
  }
};

// Reshapes [c] so that it broadcasts to [n, c, ..].
Tensor beside_channels(const Tensor& factor, const Dims& shape) {
  if (!factor) return factor;
  Dims repeated{factor.count()};
  repeated.resize(shape.size() - 1, 1);
  return with_shape(factor, repeated);
}

Tensor sum_of_channels(const Tensor& x) {
  DimSet dims;
  for (size_t i = 0; i < x.rank(); ++i) dims[i] = i != 1;
  return sum_over(x, dims, Dims{x.shape()[1]});
}

void check_has_channels(const char* op, const Tensor& x) {
  require_floating(op, x);
  require(x.rank() >= 2, "{}: x must be [n, c, ..], not {}", op, x);
}

// normal weight + bias; saves the inputs of the backwards.
Tensors scaled_normals(const char* op, Inputs inputs, const Attributes& attributes, const NormRows& plan,
                       const Tensor& matrix, const Tensor& means, const Tensor& rests, const Tensor& factors,
                       Saved* saved) {
  const Dims channels{plan.shape[1]};
  const Tensor weight = beside_channels(factor_at(op, inputs, 1, channels), plan.shape);
  const Tensor bias = beside_channels(factor_at(op, inputs, 2, channels), plan.shape);
  const Tensor normal = plan.scatter(centered_rows(op, matrix, means, rests, factors, plan.rows, plan.count));
  if (saved != nullptr) {
    save_inputs(saved, inputs, attributes);
    saved->tensors = {matrix.snapshot(), means, factors, weight ? weight.snapshot() : Tensor()};
    saved->shapes = {plan.shape, Dims{plan.rows, plan.count}, Dims{static_cast<int64_t>(inputs.size())}};
  }
  const auto scaled = [](const auto& n, const auto& w, const auto& b) { return n * w + b; };
  if (weight && bias) return {combine(op, scaled, normal, weight, bias)};
  if (weight) return {combine(op, kProductOf, normal, weight)};
  if (bias) return {combine(op, kSumOf, normal, bias)};
  return {normal};
}

// Normalizes rows to mean 0 and variance 1.
Tensors normalized_by_moments(const char* op, Inputs inputs, const Attributes& attributes, const NormRows& plan,
                              Saved* saved) {
  const double epsilon = get_epsilon(op, attributes);
  const Tensor matrix = plan.gather(inputs[0]);
  const Moments moments(op, matrix, static_cast<double>(plan.count), plan.rows, plan.count);
  const Tensor factors = root_factors(op, moments.variances, epsilon);
  const Tensors result =
      scaled_normals(op, inputs, attributes, plan, matrix, moments.means, moments.rests, factors, saved);
  if (saved != nullptr) saved->tensors.push_back(moments.rests);
  return result;
}

// The rows of the matrix's gradient from h, the gradient of the normal rows, computed as in layer_norm.
Tensor moment_gradient(const Saved& saved, const Tensor& normal, const Tensor& h) {
  Saved of_rows;
  of_rows.tensors = {normal, as_dtype(saved.tensors[2], h.dtype()), Tensor()};
  of_rows.shapes = {Dims{saved.shapes[1][0], saved.shapes[1][1], 1}};
  of_rows.needed = 1;
  return kLayerNorm.backward(of_rows, {h})[0];
}

// With constant means m and factors f = 1 / sqrt(var + eps): dx = f h, dm = -f sum(h), dvar = -f^2 sum(h normal) / 2.
void add_statistics_gradients(const char* op, const Saved& saved, const Tensor& normal, const Tensor& h,
                              Tensors& result) {
  const Dims channels{saved.shapes[1][0]};
  const Tensor factors = as_dtype(saved.tensors[2], h.dtype());
  if (saved.needs(0)) result[0] = value_of(op, kProductOf, h, with_shape(factors, Dims{channels[0], 1}));
  if (result.size() > 3 && saved.needs(3)) {
    const auto turned = [](const auto& sum, const auto& factor) { return -(sum * factor); };
    result[3] = value_of(op, turned, sum_over(h, kOfColumns, channels), factors);
  }
  if (result.size() > 4 && saved.needs(4)) {
    const auto halved = [](const auto& sum, const auto& factor) {
      using T = Element<decltype(sum)>;
      return sum * factor * factor * T(-0.5);
    };
    const Tensor products = value_of(op, kProductOf, h, normal);
    result[4] = value_of(op, halved, sum_over(products, kOfColumns, channels), factors);
  }
}

Tensors normalized_gradients(const char* op, const Saved& saved, const Tensor& g, bool by_channel, bool by_moments) {
  Tensors result(static_cast<size_t>(saved.shapes[2][0]));
  const NormRows plan(saved.shapes[0], saved.shapes[1][0], by_channel);
  const Tensors& of = saved.tensors;
  const Tensor rests = by_moments ? of[4] : Tensor();
  const Tensor normal = centered_rows(op, of[0], of[1], rests, of[2], plan.rows, plan.count);
  if (result.size() > 1 && saved.needs(1)) {
    result[1] = sum_of_channels(value_of(op, kProductOf, g, plan.scatter(normal)));
  }
  if (result.size() > 2 && saved.needs(2)) result[2] = sum_of_channels(g);
  const Tensor h = plan.gather(saved.tensors[3] ? value_of(op, kProductOf, g, saved.tensors[3]) : g);
  if (!by_moments) {
    add_statistics_gradients(op, saved, normal, h, result);
  } else if (saved.needs(0)) {
    result[0] = moment_gradient(saved, normal, h);
  }
  if (result[0]) result[0] = plan.scatter(result[0]);
  return result;
}

bool is_training(const Attributes& attributes) { return get_bool(attributes, "training", true); }

}  // namespace

struct GroupNormOp {
  static Tensors forward(Inputs inputs, const Attributes& attributes, Saved* saved) {
    const Tensor& x = inputs[0];
    check_has_channels("group_norm", x);
    const int64_t groups = get_int(attributes, "num_groups", 1);
    const int64_t channels = x.shape()[1];
    require(groups >= 1 && channels % groups == 0,
            "group_norm: num_groups {} must be above 0 and divide the {} channels of {}", groups, channels, x);
    const int64_t rows = x.count() == 0 ? 0 : x.shape()[0] * groups;
    return normalized_by_moments("group_norm", inputs, attributes, NormRows(x.shape(), rows, false), saved);
  }
  static Tensors backward(const Saved& saved, Tensor g) {
    return normalized_gradients("group_norm", saved, g, false, true);
  }
};
constexpr Op kGroupNorm = make_op<GroupNormOp>(
    "group_norm(tensor x, tensor? weight, tensor? bias, int64 num_groups = 1, float64 eps = 1e-5) -> tensor",
    "(x - mean) / sqrt(var + eps) of x [n, c, ..] within each of num_groups groups of neighbouring channels, times "
    "weight [c], plus bias [c].",
    kCheap);

struct BatchNormOp {
  static Tensors forward(Inputs inputs, const Attributes& attributes, Saved* saved) {
    const Tensor& x = inputs[0];
    check_has_channels("batch_norm", x);
    const Dims channels{x.shape()[1]};
    const NormRows plan(x.shape(), channels[0], true);
    const Tensor mean = factor_at("batch_norm", inputs, 3, channels);
    const Tensor variance = factor_at("batch_norm", inputs, 4, channels);
    if (is_training(attributes)) {
      require(!mean && !variance,
              "batch_norm: training takes mean and variance of x: leave out running_mean and running_var");
      return normalized_by_moments("batch_norm", inputs, attributes, plan, saved);
    }
    require(mean && variance, "batch_norm: without training it needs running_mean and running_var");
    const Tensor factors =
        root_factors("batch_norm", as_dtype(variance, Dtype::kFloat64), get_epsilon("batch_norm", attributes));
    const Tensor means = as_dtype(mean, Dtype::kFloat64);
    const Tensors result = scaled_normals("batch_norm", inputs, attributes, plan, plan.gather(x), means.snapshot(),
                                          Tensor(), factors, saved);
    if (saved != nullptr) saved->tensors.push_back(variance.snapshot());
    return result;
  }
  static Tensors backward(const Saved& saved, Tensor g) {
    return normalized_gradients("batch_norm", saved, g, true, is_training(saved.attributes));
  }
};
constexpr Op kBatchNorm = make_op<BatchNormOp>(
    "batch_norm(tensor x, tensor? weight, tensor? bias, tensor? running_mean, tensor? running_var, bool training = "
    "true, float64 eps = 1e-5) -> tensor",
    "(x - mean) / sqrt(var + eps) in each channel of x [n, c, ..], times weight [c], plus bias [c]. In training, mean "
    "and var (without correction) are those of x, else running_mean and running_var [c]: tensors of the caller's, "
    "which no call changes.",
    kCheap);

}  // namespace distag::ops
