// Ops on the elements of some dims together, written as expressions over rows: logsumexp, var, layer_norm.
#include <xtensor/xadapt.hpp>
#include <xtensor/xmath.hpp>
#include <xtensor/xnoalias.hpp>
#include <xtensor/xview.hpp>

#include "base/error.h"
#include "ops/attributes.h"
#include "ops/broadcast.h"
#include "ops/builtins.h"
#include "ops/dispatch.h"
#include "ops/reduce.h"
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

template <typename T>
auto as_matrix(T* data, int64_t rows, int64_t columns) {
  std::array<size_t, 2> shape{static_cast<size_t>(rows), static_cast<size_t>(columns)};
  return xt::adapt(data, shape[0] * shape[1], xt::no_ownership(), shape);
}

template <typename T>
auto as_column(T* data, int64_t rows) {
  return as_matrix(data, rows, 1);
}

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

// The gradient of x from that of its matrix and of the results, both row-major.
template <typename Compute>
Tensor gradient_of_groups(const char* op, const Saved& saved, const Tensor& gradient, Compute compute) {
  const Tensor& matrix = saved.tensors[0];
  Grouped groups(saved.shapes[0], DimSet(static_cast<uint64_t>(saved.shapes[1][0])));
  Tensor g = gradient.contiguous();
  Tensor out = Tensor::empty(matrix.dtype(), groups.permuted_shape);
  if (out.count() > 0) {
    dispatch_floating(op, matrix.dtype(), [&]<typename T>(T) {
      auto result = as_matrix(out.mutable_data_as<T>(), groups.rows, groups.count);
      compute(result, as_matrix(matrix.data_as<T>(), groups.rows, groups.count), as_column(g.data_as<T>(), groups.rows),
              groups);
    });
  }
  return groups.scatter(out);
}

void save_groups(Saved* saved, const Tensor& x, const Tensor& matrix, const DimSet& dims) {
  saved->tensors = {matrix.snapshot()};
  saved->shapes = {x.shape(), Dims{static_cast<int64_t>(dims.to_ulong())}};
}

// ---- logsumexp ------------------------------------------------------------------------------------------------------

// log(sum(exp(x))), without overflow.
Tensors logsumexp_forward(std::span<const Tensor> inputs, const Attributes& attributes, Saved* saved) {
  Tensor x = as_floating(inputs[0]);
  Statistic statistic("logsumexp", x, attributes);
  const Grouped& groups = statistic.groups;
  Tensor matrix = groups.gather(x);
  Tensor y = Tensor::empty(x.dtype(), statistic.shape);
  dispatch_floating("logsumexp", x.dtype(), [&]<typename T>(T) {
    if (y.count() == 0) return;
    auto result = as_column(y.mutable_data_as<T>(), groups.rows);
    if (groups.count == 0) {
      result.fill(-std::numeric_limits<T>::infinity());
      return;
    }
    auto values = as_matrix(matrix.data_as<T>(), groups.rows, groups.count);
    auto largest = xt::eval(xt::amax(values, {1}, xt::keep_dims));
    // An infinite largest element is not taken out: infinity minus infinity is no number.
    auto shift = xt::eval(xt::where(xt::isfinite(largest), largest, T(0)));
    auto sums = xt::eval(xt::sum(xt::exp(values - shift), {1}, xt::keep_dims));
    xt::noalias(result) = xt::log(sums) + shift;
  });
  if (saved != nullptr) {
    save_groups(saved, x, matrix, statistic.dims);
    saved->tensors.push_back(y.snapshot());
  }
  return {y};
}

Tensors logsumexp_backward(const Saved& saved, Tensors gradients) {
  if (!gradients[0]) return gradients;
  const Tensor& sums = saved.tensors[1];
  return {gradient_of_groups(
      "logsumexp", saved, gradients[0],
      [&]<typename Result, typename X>(Result& result, const X& x, const auto& g, const Grouped& groups) {
        using T = typename Result::value_type;
        auto y = as_column(sums.data_as<T>(), groups.rows);
        xt::noalias(result) = xt::exp(x - y) * g;
      })};
}

}  // namespace

constexpr Op kLogsumexp{.name = "logsumexp",
                        .signature = "logsumexp(tensor x, int64[] dims = [], bool keepdim = false) -> tensor",
                        .forward = logsumexp_forward,
                        .backward = logsumexp_backward,
                        .is_cheap = true};

// ---- var ------------------------------------------------------------------------------------------------------------

namespace {

double divisor_of(const Attributes& attributes, int64_t count) {
  return std::max(0.0, static_cast<double>(count) - get_float(attributes, "correction", 1.0));
}

// sum((x - mean)^2) / (n - correction)
Tensors var_forward(std::span<const Tensor> inputs, const Attributes& attributes, Saved* saved) {
  const Tensor& x = inputs[0];
  if (!is_floating(x.dtype()))
    fail(Status::kUnsupported, "var: dtype of {} is not supported: cast it first", describe(x));
  Statistic statistic("var", x, attributes);
  const Grouped& groups = statistic.groups;
  Tensor matrix = groups.gather(x);
  Tensor y = Tensor::empty(x.dtype(), statistic.shape);
  dispatch_floating("var", x.dtype(), [&]<typename T>(T) {
    if (y.count() == 0) return;
    auto result = as_column(y.mutable_data_as<T>(), groups.rows);
    if (groups.count == 0) {
      result.fill(std::numeric_limits<T>::quiet_NaN());
      return;
    }
    auto values = as_matrix(matrix.data_as<T>(), groups.rows, groups.count);
    auto means = xt::eval(xt::sum(values, {1}, xt::keep_dims) / static_cast<T>(groups.count));
    auto squares = xt::eval(xt::sum(xt::square(values - means), {1}, xt::keep_dims));
    xt::noalias(result) = squares / static_cast<T>(divisor_of(attributes, groups.count));
  });
  if (saved != nullptr) {
    save_groups(saved, x, matrix, statistic.dims);
    saved->attributes = attributes;
  }
  return {y};
}

Tensors var_backward(const Saved& saved, Tensors gradients) {
  if (!gradients[0]) return gradients;
  return {gradient_of_groups(
      "var", saved, gradients[0],
      [&]<typename Result, typename X>(Result& result, const X& x, const auto& g, const Grouped& groups) {
        using T = typename Result::value_type;
        auto means = xt::eval(xt::sum(x, {1}, xt::keep_dims) / static_cast<T>(groups.count));
        auto slope = static_cast<T>(2.0 / divisor_of(saved.attributes, groups.count));
        xt::noalias(result) = (x - means) * (g * slope);
      })};
}

}  // namespace

constexpr Op kVar{
    .name = "var",
    .signature = "var(tensor x, int64[] dims = [], bool keepdim = false, float64 correction = 1) -> tensor",
    .forward = var_forward,
    .backward = var_backward,
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
  Tensor scales = Tensor::empty(x.dtype(), Dims{norm.rows});
  dispatch_floating("layer_norm", x.dtype(), [&]<typename T>(T) {
    if (y.count() == 0) return;
    auto values = as_matrix(x.data_as<T>(), norm.rows, norm.count);
    auto normals = as_matrix(normal.mutable_data_as<T>(), norm.rows, norm.count);
    auto scale = as_column(scales.mutable_data_as<T>(), norm.rows);
    auto result = as_matrix(y.mutable_data_as<T>(), norm.rows, norm.count);
    auto count = static_cast<T>(norm.count);
    auto means = xt::eval(xt::sum(values, {1}, xt::keep_dims) / count);
    auto variances = xt::eval(xt::sum(xt::square(values - means), {1}, xt::keep_dims) / count);
    xt::noalias(scale) = T(1) / xt::sqrt(variances + static_cast<T>(norm.epsilon));
    xt::noalias(normals) = (values - means) * scale;
    xt::noalias(result) = normals;
    if (weight) result *= as_matrix(weight.data_as<T>(), 1, norm.count);
    if (bias) result += as_matrix(bias.data_as<T>(), 1, norm.count);
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

// With h = weight g: dx = (h - mean(h) - normal mean(h normal)) scale.
Tensors layer_norm_backward(const Saved& saved, Tensors gradients) {
  int64_t rows = saved.shapes[0][0];
  int64_t count = saved.shapes[0][1];
  Tensors result(static_cast<size_t>(saved.shapes[0][2]));
  if (!gradients[0]) return result;
  Tensor g = gradients[0].contiguous();
  for (size_t i = 0; i < result.size(); ++i) {
    if (saved.needs(i)) result[i] = zero_tensor(g.dtype(), saved.shapes[i + 1]);
  }
  if (g.count() == 0) return result;
  dispatch_floating("layer_norm", g.dtype(), [&]<typename T>(T) {
    auto gradient = as_matrix(g.data_as<T>(), rows, count);
    auto normal = as_matrix(saved.tensors[0].data_as<T>(), rows, count);
    auto scale = as_column(saved.tensors[1].data_as<T>(), rows);
    if (result[0]) {
      auto out = as_matrix(result[0].mutable_data_as<T>(), rows, count);
      xt::noalias(out) = gradient;
      if (saved.tensors[2]) out *= as_matrix(saved.tensors[2].data_as<T>(), 1, count);
      auto means = xt::eval(xt::sum(out, {1}, xt::keep_dims) / static_cast<T>(count));
      auto slopes = xt::eval(xt::sum(out * normal, {1}, xt::keep_dims) / static_cast<T>(count));
      out = (out - means - normal * slopes) * scale;
    }
    if (result.size() > 1 && result[1]) {
      auto out = as_matrix(result[1].mutable_data_as<T>(), 1, count);
      xt::noalias(out) = xt::sum(gradient * normal, {0}, xt::keep_dims);
    }
    if (result.size() > 2 && result[2]) {
      auto out = as_matrix(result[2].mutable_data_as<T>(), 1, count);
      xt::noalias(out) = xt::sum(gradient, {0}, xt::keep_dims);
    }
  });
  return result;
}

}  // namespace

constexpr Op kLayerNorm{.name = "layer_norm",
                        .signature =
                            "layer_norm(tensor x, tensor? weight, tensor? bias, int64 normalized_dims = 1, "
                            "float64 eps = 1e-5) -> tensor",
                        .forward = layer_norm_forward,
                        .backward = layer_norm_backward,
                        .is_cheap = true};

}  // namespace distag::ops
