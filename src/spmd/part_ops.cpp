// Ops whose merged dims are cut: local kernels, and between them the exchanges in which members merge their results.
#include "spmd/part_ops.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "ops/attributes.h"
#include "ops/cut_classes.h"
#include "ops/dispatch.h"
#include "ops/dropout.h"
#include "ops/finite.h"
#include "ops/reduce.h"
#include "ops/softmax.h"
#include "ops/statistics.h"
#include "ops/views.h"
#include "spmd/run_op.h"

namespace distag::spmd {
namespace {

using ops::DimSet;
using ops::make_attributes;
using ops::Saved;
using Result = PartOp::Result;

Tensor cast(const Tensor& x, Dtype dtype) {
  return x.dtype() == dtype ? x : run_op("cast", {x}, make_attributes({{"dtype", dtype}}));
}

Tensor as_floating(const Tensor& x) { return is_floating(x.dtype()) ? x : cast(x, Dtype::kFloat32); }

// The reduced dims of an application.
struct Reduced {
  DimSet dims;
  Dims shape;  // of the result
  Dims kept;   // with the reduced dims as 1: broadcasts to x

  Reduced(const Tensor& x, const DimSet& d, bool keepdim)
      : dims(d), shape(ops::reduced_shape(x.shape(), d, keepdim)), kept(ops::reduced_shape(x.shape(), d, true)) {}

  static Reduced by_dims(const char* op, const Tensor& x, const ops::Attributes& attributes) {
    return {x, ops::checked_dims(op, ops::get_dims(attributes, "dims"), x),
            ops::get_bool(attributes, "keepdim", false)};
  }
  static Reduced along_dim(const char* op, const Tensor& x, const ops::Attributes& attributes) {
    DimSet dims;
    dims.set(ops::checked_dim(op, ops::get_int(attributes, "dim", -1), x));
    return {x, dims, false};
  }
};

Tensor sum(const Tensor& x, const Reduced& reduced) { return ops::sum_over(x, reduced.dims, reduced.kept); }

void check_not_empty(const char* op, const Tensor& x, const Dims& whole, const DimSet& dims) {
  if (ops::reduced_count(whole, dims) > 0) return;
  fail(Status::kInvalidArgument, "{}: {}{} has no elements to choose from", op, dtype_name(x.dtype()),
       to_string(whole));
}

// ---- softmax, log_softmax, logsumexp --------------------------------------------------------------------------------

Result softmax_forward(const PartCall& call, const Tensors& inputs, Saved* saved) {
  const Tensor x = as_floating(inputs[0]);
  const Reduced rows = Reduced::along_dim("softmax", x, call.attributes);
  const Tensor largest = call.across.reduce(ops::max_over(x, rows.dims, rows.kept), Reduction::kMax);
  const Tensor exponentials = run_op("exp", {run_op("sub", {x, largest})});
  const Tensor sums = call.across.reduce(sum(exponentials, rows), Reduction::kSum);
  const Tensor y = run_op("mul", {exponentials, run_op("reciprocal", {sums})});
  if (saved != nullptr) saved->tensors = {y.snapshot()};
  return {y};
}

Tensor masked(const Tensor& x, const Tensor& mask) {
  return run_op("masked_fill", {x, mask}, make_attributes({{"value", 0.0}}));
}

// y (g - sum(g y)) = y ((g - g[i]) + (g[i] (1 - y[i]) - the rest of the sum)), where an element y[i] is above 1/2, and
// 1 - y[i] is the sum of all others.
Tensors softmax_backward(const PartCall& call, const Saved& saved, const Tensor& g) {
  const Tensor& y = saved.tensors[0];
  const Reduced rows = Reduced::along_dim("softmax", y, call.attributes);
  const Tensor is_most = run_op("gt", {y, Tensor::scalar(y.dtype(), 0.5)});
  const Tensor others = masked(y, is_most);
  const Tensor g_of_most = masked(g, run_op("logical_not", {is_most}));
  const Tensor sums = call.across.reduce(
      run_op("stack", {sum(g_of_most, rows), sum(others, rows), sum(run_op("mul", {g, others}), rows)}),
      Reduction::kSum);
  const auto number = [&](int64_t i) { return ops::with_shape(ops::sliced(sums, 0, i, 1), rows.kept); };
  const Tensor rest = run_op("sub", {run_op("mul", {number(0), number(1)}), number(2)});
  return {run_op("mul", {y, run_op("add", {run_op("sub", {g, number(0)}), rest})})};
}

// log(sum(exp(x))) over all parts; `shifted` is x less the largest x.
Tensor merged_log_sum(Across& across, const Tensor& shifted, const Reduced& rows) {
  const Tensor is_one = run_op("eq", {shifted, Tensor::scalar(shifted.dtype(), 0.0)});
  const Tensor others = masked(run_op("exp", {shifted}), is_one);
  const Tensor sums =
      across.reduce(run_op("stack", {sum(cast(is_one, shifted.dtype()), rows), sum(others, rows)}), Reduction::kSum);
  const auto number = [&](int64_t i) { return ops::with_shape(ops::sliced(sums, 0, i, 1), rows.kept); };
  return ops::log_of_terms(number(0), number(1));
}

Result log_softmax_forward(const PartCall& call, const Tensors& inputs, Saved* saved) {
  const Tensor x = as_floating(inputs[0]);
  const Reduced rows = Reduced::along_dim("log_softmax", x, call.attributes);
  const Tensor largest = call.across.reduce(ops::max_over(x, rows.dims, rows.kept), Reduction::kMax);
  const Tensor shifted = run_op("sub", {x, largest});
  const Tensor y = run_op("sub", {shifted, merged_log_sum(call.across, shifted, rows)});
  if (saved != nullptr) saved->tensors = {y.snapshot()};
  return {y};
}

Tensors log_softmax_backward(const PartCall& call, const Saved& saved, const Tensor& g) {
  const Tensor& y = saved.tensors[0];
  const Reduced rows = Reduced::along_dim("log_softmax", y, call.attributes);
  const Tensor sums = call.across.reduce(sum(g, rows), Reduction::kSum);
  return {ops::log_softmax_gradient(g.contiguous(), y, sums)};
}

// Merges the results of the parts, in double. Like the op, does not subtract an infinite largest one. Saves for
// backward the result, and the rest that it lacks.
Result logsumexp_forward(const PartCall& call, const Tensors& inputs, Saved* saved) {
  Saved own;
  ops::find_op("logsumexp")->forward(inputs, call.attributes, &own);
  const Tensor& sums = own.tensors[1];
  Tensor shifts = call.across.reduce(sums, Reduction::kMax).clone();
  auto* shift = shifts.mutable_data_as<double>();
  for (int64_t i = 0; i < shifts.count(); ++i) shift[i] = std::isfinite(shift[i]) ? shift[i] : 0;
  const Tensor shifted = run_op("add", {run_op("sub", {sums, shifts}), own.tensors[2]});
  const Reduced each(shifted, DimSet(), true);
  const Tensor logs = merged_log_sum(call.across, shifted, each);
  const Tensor result = run_op("add", {logs, shifts});
  if (saved != nullptr) {
    own.needed = saved->needed;
    own.tensors[1] = result.snapshot();
    own.tensors[2] = ops::rests_of_sum(shifts, logs.contiguous(), result);
    *saved = own;
  }
  return {cast(result, is_floating(inputs[0].dtype()) ? inputs[0].dtype() : Dtype::kFloat32)};
}

// ---- max, amin, any, all, argmax ------------------------------------------------------------------------------------

Result extreme(const char* op, const PartCall& call, const Tensor& x, Saved* saved) {
  const Reduced rows = Reduced::by_dims(op, x, call.attributes);
  check_not_empty(op, x, call.part.whole, rows.dims);
  const bool is_max = std::string_view(op) == "max";
  const Tensor own = (is_max ? ops::max_over : ops::min_over)(x, rows.dims, rows.shape);
  const Tensor y = call.across.reduce(own, is_max ? Reduction::kMax : Reduction::kMin);
  if (saved != nullptr) saved->tensors = {x.snapshot(), ops::with_shape(y, rows.kept).snapshot()};
  return {y};
}

Result max_forward(const PartCall& call, const Tensors& inputs, Saved* saved) {
  return extreme("max", call, inputs[0], saved);
}

Result amin_forward(const PartCall& call, const Tensors& inputs, Saved* saved) {
  return extreme("amin", call, inputs[0], saved);
}

// The gradient is shared evenly by all elements of the whole that equal the chosen one; NaN (0 / 0) if that is NaN.
Tensors extreme_backward(const PartCall& call, const Saved& saved, const Tensor& g) {
  const Tensor& x = saved.tensors[0];
  const Reduced rows = Reduced::by_dims("max", x, call.attributes);
  const Tensor chosen = cast(run_op("eq", {x, saved.tensors[1]}), x.dtype());
  const Tensor counts = call.across.reduce(sum(chosen, rows), Reduction::kSum);
  return {run_op("mul", {chosen, run_op("div", {ops::with_shape(g, rows.kept), counts})})};
}

// Without elements the op gives the neutral value: any false, all true.
Result truth(const char* op, const PartCall& call, const Tensors& inputs, Reduction reduction) {
  return {call.across.reduce(run_op(op, {inputs[0]}, call.attributes), reduction)};
}

Result any_forward(const PartCall& call, const Tensors& inputs, Saved*) {
  return truth("any", call, inputs, Reduction::kMax);
}

Result all_forward(const PartCall& call, const Tensors& inputs, Saved*) {
  return truth("all", call, inputs, Reduction::kMin);
}

// A value as it is compared: floats as doubles, others as int64.
struct Candidate {
  double value;
  int64_t number;
  int64_t index;

  // NaN is the largest; of equal values the first comes first.
  bool comes_before(const Candidate& other) const {
    if (std::isnan(value) || std::isnan(other.value)) {
      return std::isnan(value) && (!std::isnan(other.value) || index < other.index);
    }
    if (value != other.value) return value > other.value;
    if (number != other.number) return number > other.number;
    return index < other.index;
  }
};

constexpr int64_t kNoIndex = -1;

// For each row the bits of the largest value, and its index in the whole.
Tensor own_candidates(const Tensor& x, const Reduced& rows, size_t dim, int64_t offset) {
  const int64_t count = element_count(rows.shape);
  Tensor pairs = Tensor::empty(Dtype::kInt64, {2 * count});
  auto* items = pairs.mutable_data_as<int64_t>();
  if (x.shape()[dim] == 0) {
    std::fill_n(items, count, 0);
    std::fill_n(items + count, count, kNoIndex);
    return pairs;
  }
  const Tensor places = run_op("argmax", {x}, make_attributes({{"dim", static_cast<int64_t>(dim)}})).contiguous();
  const Tensor values = ops::max_over(x, rows.dims, rows.shape);
  const Tensor numbers = cast(values, is_floating(x.dtype()) ? Dtype::kFloat64 : Dtype::kInt64).contiguous();
  if (count > 0) std::memcpy(items, numbers.data(), numbers.byte_size());
  for (int64_t r = 0; r < count; ++r) items[count + r] = places.data_as<int64_t>()[r] + offset;
  return pairs;
}

Result argmax_forward(const PartCall& call, const Tensors& inputs, Saved*) {
  const Tensor& x = inputs[0];
  const Reduced rows = Reduced::along_dim("argmax", x, call.attributes);
  const size_t dim = ops::checked_dim("argmax", ops::get_int(call.attributes, "dim", -1), x);
  Tensor out = Tensor::empty(Dtype::kInt64, rows.shape);
  const int64_t count = out.count();
  const Dims results = ops::reduced_shape(call.part.whole, rows.dims, false);
  if (element_count(results) > 0) check_not_empty("argmax", x, call.part.whole, rows.dims);
  const Tensor all = call.across.gather(own_candidates(x, rows, dim, call.part.box.offset[dim]));
  const bool is_float = is_floating(x.dtype());
  for (int64_t r = 0; r < count; ++r) {
    Candidate best{0, 0, kNoIndex};
    for (int64_t member = 0; member < all.shape()[0]; ++member) {
      const int64_t* pairs = all.data_as<int64_t>() + member * 2 * count;
      const Candidate each{is_float ? std::bit_cast<double>(pairs[r]) : 0, is_float ? 0 : pairs[r], pairs[count + r]};
      if (each.index != kNoIndex && (best.index == kNoIndex || each.comes_before(best))) best = each;
    }
    out.mutable_data_as<int64_t>()[r] = best.index;
  }
  return {out};
}

// ---- var, layer_norm ------------------------------------------------------------------------------------------------

// Moments of each row of the whole: float64[rows].
struct Moments {
  Tensor means;
  Tensor squares;  // sum((x - mean)^2)
};

// Merges in the order of positions; a member without elements counts for nothing. `means` and `squares` are those of
// the part.
Moments merged_moments(Across& across, const Tensor& means, const Tensor& squares, int64_t count) {
  const int64_t rows = means.count();
  Tensor own = Tensor::empty(Dtype::kFloat64, {3 * rows});
  auto* items = own.mutable_data_as<double>();
  for (int64_t r = 0; r < rows; ++r) {
    items[r] = static_cast<double>(count);
    items[rows + r] = count > 0 ? means.data_as<double>()[r] : 0;
    items[2 * rows + r] = count > 0 ? squares.data_as<double>()[r] : 0;
  }
  const Tensor all = across.gather(own);
  const int64_t members = all.shape()[0];
  const auto number = [&](int64_t member, int64_t kind, int64_t r) {
    return all.data_as<double>()[(member * 3 + kind) * rows + r];
  };
  Moments merged{Tensor::empty(Dtype::kFloat64, {rows}), Tensor::empty(Dtype::kFloat64, {rows})};
  for (int64_t r = 0; r < rows; ++r) {
    double total = 0;
    for (int64_t m = 0; m < members; ++m) total += number(m, 0, r);
    double mean = 0;
    for (int64_t m = 0; m < members; ++m) mean += number(m, 0, r) / total * number(m, 1, r);
    double square = 0;
    for (int64_t m = 0; m < members; ++m) {
      const double distance = number(m, 1, r) - mean;
      square += number(m, 2, r) + number(m, 0, r) * distance * distance;
    }
    merged.means.mutable_data_as<double>()[r] = mean;
    merged.squares.mutable_data_as<double>()[r] = square;
  }
  return merged;
}

// Backward is that of the op, with the mean and the divisor of the whole.
Result var_forward(const PartCall& call, const Tensors& inputs, Saved* saved) {
  const Tensor& x = inputs[0];
  const Reduced rows = Reduced::by_dims("var", x, call.attributes);
  const auto count = static_cast<double>(ops::reduced_count(call.part.whole, rows.dims));
  const int64_t own_count = ops::reduced_count(x.shape(), rows.dims);
  const double correction = ops::get_finite("var", call.attributes, "correction", 1.0);
  const double divisor = count == 0 ? 0.0 : std::max(0.0, count - correction);
  Saved own;
  const Tensor variances =
      ops::find_op("var")->forward(inputs, with_attribute(call.attributes, "correction", Value(0.0)), &own).at(0);
  const Tensor squares = run_op("mul_scalar", {cast(variances, Dtype::kFloat64).contiguous()},
                                make_attributes({{"value", static_cast<double>(own_count)}}));
  const Moments merged = merged_moments(call.across, own.tensors[1], squares, own_count);
  if (saved != nullptr) {
    own.needed = saved->needed;
    own.tensors[1] = merged.means;
    own.tensors[2] = Tensor();
    own.attributes = with_attribute(call.attributes, "correction", Value(static_cast<double>(own_count) - divisor));
    *saved = own;
  }
  const Tensor result = run_op("div", {merged.squares, Tensor::scalar(Dtype::kFloat64, divisor)});
  return {cast(ops::with_shape(result, rows.shape), x.dtype())};
}

// The number of elements in a row of the whole.
int64_t normalized_count(const PartCall& call) {
  const Dims& whole = call.part.whole;
  const auto dims = static_cast<size_t>(ops::get_int(call.attributes, "normalized_dims", 1));
  int64_t count = 1;
  for (size_t d = whole.size() - dims; d < whole.size(); ++d) count *= whole[d];
  return count;
}

// The last dims of a part, which make up its share of a row.
struct Normalized {
  int64_t rows = 1;
  int64_t count = 1;
  Dims shape;

  Normalized(const PartCall& call, const Tensors& inputs) {
    const Tensor& x = inputs[0];
    const auto dims = static_cast<size_t>(ops::get_int(call.attributes, "normalized_dims", 1));
    for (size_t d = 0; d < x.rank(); ++d) {
      const bool is_normalized = d + dims >= x.rank();
      (is_normalized ? count : rows) *= x.shape()[d];
      if (!is_normalized) continue;
      shape.push_back(x.shape()[d]);
    }
    for (size_t i = 1; i < inputs.size(); ++i) {
      if (!inputs[i] || (inputs[i].shape() == shape && inputs[i].dtype() == x.dtype())) continue;
      fail(Status::kInvalidArgument, "layer_norm: {} does not fit the last {} dims of {}", describe(inputs[i]), dims,
           describe(x));
    }
  }
};

// Saves the same as the op, whose backward makes the gradients of weight and bias.
Result layer_norm_forward(const PartCall& call, const Tensors& inputs, Saved* saved) {
  const Tensor x = inputs[0].contiguous();
  const Normalized norm(call, inputs);
  const double epsilon = ops::get_epsilon("layer_norm", call.attributes);
  const Tensor matrix = ops::with_shape(x, {norm.rows, norm.count});
  const ops::Moments own("layer_norm", matrix, 1, norm.rows, norm.count);
  const Moments merged = merged_moments(call.across, own.means, own.variances, norm.count);
  Tensor factors = Tensor::empty(Dtype::kFloat64, {norm.rows});
  for (int64_t r = 0; r < norm.rows; ++r) {
    const double variance = merged.squares.data_as<double>()[r] / static_cast<double>(normalized_count(call));
    factors.mutable_data_as<double>()[r] = 1 / std::sqrt(variance + epsilon);
  }
  const Tensor normal =
      ops::centered_rows("layer_norm", matrix, merged.means, Tensor(), factors, norm.rows, norm.count);
  const auto factor_of_row = [&](size_t i) {
    return i < inputs.size() && inputs[i] ? ops::with_shape(inputs[i], {norm.count}) : Tensor();
  };
  const Tensor weight = factor_of_row(1);
  const Tensor bias = factor_of_row(2);
  Tensor y = normal;
  if (weight) y = run_op("mul", {y, weight});
  if (bias) y = run_op("add", {y, bias});
  if (saved != nullptr) {
    saved->tensors = {normal.snapshot(), cast(factors, x.dtype()), weight ? weight.snapshot() : Tensor()};
    saved->shapes = {Dims{norm.rows, norm.count, static_cast<int64_t>(inputs.size())}};
    for (size_t i = 0; i < inputs.size(); ++i) {
      saved->shapes.push_back(inputs[i] ? inputs[i].shape() : Dims());
      if (!inputs[i]) saved->needed &= ~(uint64_t{1} << i);
    }
  }
  return {ops::with_shape(y, x.shape())};
}

// With h = weight g: (h - mean(h) - normal mean(h normal)) scale.
Tensor layer_norm_input_gradient(const PartCall& call, const Saved& saved, const Tensor& g) {
  const Dims matrix{saved.shapes[0][0], saved.shapes[0][1]};
  const Dims column{matrix[0], 1};
  const Tensor& normal = saved.tensors[0];
  Tensor h = ops::with_shape(g, matrix);
  if (saved.tensors[2]) h = run_op("mul", {h, saved.tensors[2]});
  const Reduced rows(h, DimSet(2), true);
  const Tensor both =
      call.across.reduce(run_op("stack", {sum(h, rows), sum(run_op("mul", {h, normal}), rows)}), Reduction::kSum);
  const auto count = static_cast<double>(normalized_count(call));
  const Tensor means = run_op("div", {both, Tensor::scalar(h.dtype(), count)});
  const Tensor mean = ops::with_shape(ops::sliced(means, 0, 0, 1), column);
  const Tensor slope = ops::with_shape(ops::sliced(means, 0, 1, 1), column);
  const Tensor distance = run_op("sub", {run_op("sub", {h, mean}), run_op("mul", {normal, slope})});
  return ops::with_shape(run_op("mul", {distance, ops::with_shape(saved.tensors[1], column)}), g.shape());
}

Tensors layer_norm_backward(const PartCall& call, const Saved& saved, const Tensor& g) {
  Saved others = saved;
  others.needed &= ~uint64_t{1};
  Tensors result = ops::find_op("layer_norm")->backward(others, {g});
  if (saved.needs(0)) result[0] = layer_norm_input_gradient(call, saved, g.contiguous());
  return result;
}

// ---- losses of classes ----------------------------------------------------------------------------------------------

Result loss_of_classes(const char* op, const PartCall& call, const Tensors& inputs, Saved* saved) {
  const size_t dim = inputs[0].rank() == 1 ? 0 : 1;
  const ops::CutClasses classes(*ops::find_op(op), inputs, call.attributes, call.part.box.offset[dim],
                                call.part.whole[dim]);
  Tensor largest;
  if (classes.takes_exponentials()) largest = call.across.reduce(classes.largest(), Reduction::kMax);
  const Tensor terms = call.across.reduce(classes.terms(largest), Reduction::kSum);
  ops::CutClasses::Loss loss = classes.finish(largest, terms, saved);
  return {loss.loss, loss.weights};
}

Result cross_entropy_forward(const PartCall& call, const Tensors& inputs, Saved* saved) {
  return loss_of_classes("cross_entropy", call, inputs, saved);
}

Result nll_loss_forward(const PartCall& call, const Tensors& inputs, Saved* saved) {
  return loss_of_classes("nll_loss", call, inputs, saved);
}

// ---- embedding, index_select, gather --------------------------------------------------------------------------------

// Throws on all members alike for an index beyond the whole table, whichever rows a member has.
Tensor checked_indices(const char* op, const Tensor& index, int64_t rows) {
  if (index.dtype() != Dtype::kInt64) {
    fail(Status::kInvalidArgument, "{}: the index must be int64, not {}", op, describe(index));
  }
  const Tensor indices = index.contiguous();
  for (int64_t i = 0; i < indices.count(); ++i) {
    const int64_t value = indices.data_as<int64_t>()[i];
    if (value >= 0 && value < rows) continue;
    fail(Status::kInvalidArgument, "{}: index {} out of range [0, {})", op, value, rows);
  }
  return indices;
}

// The rows of the index that are in this part, and their places in the index.
struct RowsHere {
  std::vector<int64_t> rows;
  std::vector<int64_t> places;

  RowsHere(const Tensor& indices, int64_t first, int64_t count) {
    for (int64_t i = 0; i < indices.count(); ++i) {
      const int64_t row = indices.data_as<int64_t>()[i] - first;
      if (row < 0 || row >= count) continue;
      rows.push_back(row);
      places.push_back(i);
    }
  }
  void save(Saved& saved) const {
    const Dims counts{static_cast<int64_t>(rows.size())};
    saved.tensors = {Tensor::empty(Dtype::kInt64, counts), Tensor::empty(Dtype::kInt64, counts)};
    std::copy(rows.begin(), rows.end(), saved.tensors[0].mutable_data_as<int64_t>());
    std::copy(places.begin(), places.end(), saved.tensors[1].mutable_data_as<int64_t>());
  }
};

// y[.., places[k], ..] = table[.., rows[k], ..], and zeros elsewhere; of `count` along the dim.
Tensor placed_rows(const Tensor& table, size_t dim, const RowsHere& here, int64_t count) {
  Dims shape = table.shape();
  shape[dim] = count;
  Tensor y = ops::zero_tensor(table.dtype(), shape);
  int64_t outer = 1;
  for (size_t d = 0; d < dim; ++d) outer *= shape[d];
  size_t bytes = dtype_size(table.dtype());
  for (size_t d = dim + 1; d < shape.size(); ++d) bytes *= static_cast<size_t>(shape[d]);
  if (outer == 0 || bytes == 0 || here.rows.empty()) return y;
  std::byte* const to = y.mutable_data();
  for (int64_t o = 0; o < outer; ++o) {
    for (size_t k = 0; k < here.rows.size(); ++k) {
      std::memcpy(to + static_cast<size_t>(o * count + here.places[k]) * bytes,
                  table.data() + static_cast<size_t>(o * table.shape()[dim] + here.rows[k]) * bytes, bytes);
    }
  }
  return y;
}

Result embedding_forward(const PartCall& call, const Tensors& inputs, Saved* saved) {
  const Tensor table = inputs[1].contiguous();
  const Tensor indices = checked_indices("embedding", inputs[0], call.part.whole[0]);
  const RowsHere here(indices, call.part.box.offset[0], table.shape()[0]);
  if (saved != nullptr) {
    here.save(*saved);
    saved->shapes = {table.shape()};
  }
  Dims shape = indices.shape();
  shape.push_back(table.shape()[1]);
  return {ops::with_shape(placed_rows(table, 0, here, indices.count()), shape)};
}

// Backward of the op, on the gradients of those places that named a row in this part.
Tensors embedding_backward(const PartCall&, const Saved& saved, const Tensor& g) {
  const int64_t columns = g.shape().back();
  const int64_t rows = element_count(g.shape()) / std::max<int64_t>(columns, 1);
  const Tensor matrix = ops::with_shape(g, {columns == 0 ? 0 : rows, columns});
  Tensor here = Tensor::empty(g.dtype(), {saved.tensors[1].count(), columns});
  if (columns > 0) here = run_op("index_select", {matrix, saved.tensors[1]});
  return ops::find_op("embedding")->backward(saved, {here});
}

Result index_select_forward(const PartCall& call, const Tensors& inputs, Saved* saved) {
  const Tensor x = inputs[0].contiguous();
  const size_t dim = ops::checked_dim("index_select", ops::get_int(call.attributes, "dim", 0), x);
  const Tensor indices = checked_indices("index_select", inputs[1], call.part.whole[dim]);
  const RowsHere here(indices, call.part.box.offset[dim], x.shape()[dim]);
  if (saved != nullptr) {
    here.save(*saved);
    saved->shapes = {x.shape(), Dims{static_cast<int64_t>(dim)}};
  }
  return {placed_rows(x, dim, here, indices.count())};
}

Tensors index_select_backward(const PartCall&, const Saved& saved, const Tensor& g) {
  const Tensor here = run_op("index_select", {g, saved.tensors[1]}, make_attributes({{"dim", saved.shapes[1][0]}}));
  return ops::find_op("index_select")->backward(saved, {here});
}

// Saves for each element of the index its place in this part, and whether it is here; elsewhere the place is 0.
Result gather_forward(const PartCall& call, const Tensors& inputs, Saved* saved) {
  const Tensor& x = inputs[0];
  const size_t dim = ops::checked_dim("gather", ops::get_int(call.attributes, "dim", 0), x);
  const Tensor indices = checked_indices("gather", inputs[1], call.part.whole[dim]);
  const RowsHere here(indices, call.part.box.offset[dim], x.shape()[dim]);
  Tensor places = ops::zero_tensor(Dtype::kInt64, indices.shape());
  Tensor is_here = ops::zero_tensor(Dtype::kBool, indices.shape());
  for (size_t k = 0; k < here.rows.size(); ++k) {
    places.mutable_data_as<int64_t>()[here.places[k]] = here.rows[k];
    is_here.mutable_data_as<ops::Bool>()[here.places[k]] = 1;
  }
  if (saved != nullptr) {
    saved->tensors = {places, is_here};
    saved->shapes = {x.shape(), Dims{static_cast<int64_t>(dim)}};
  }
  if (here.rows.empty()) return {ops::zero_tensor(x.dtype(), indices.shape())};
  const Tensor zero = ops::zero_tensor(x.dtype(), {});
  return {run_op("where", {is_here, run_op("gather", {x, places}, call.attributes), zero})};
}

Tensors gather_backward(const PartCall&, const Saved& saved, const Tensor& g) {
  if (element_count(saved.shapes[0]) == 0) return {ops::zero_tensor(g.dtype(), saved.shapes[0]), Tensor()};
  const Tensor here = run_op("where", {saved.tensors[1], g, ops::zero_tensor(g.dtype(), {})});
  return ops::find_op("gather")->backward(saved, {here});
}

// ---- dropout --------------------------------------------------------------------------------------------------------

// Backward is that of the op, at the offset of the part.
Result dropout_forward(const PartCall& call, const Tensors& inputs, Saved* saved) {
  if (saved != nullptr) {
    saved->attributes = call.attributes;
    saved->shapes = {call.part.whole, call.part.box.offset};
  }
  return {ops::dropped(inputs[0], call.attributes, call.part.whole, call.part.box.offset)};
}

using Of = Merge::Of;
constexpr Merge kOne{1};
constexpr Merge kExtreme{1, Of::kInput};
constexpr Merge kTruth{1, Of::kBool};
constexpr Merge kMoments{3, Of::kFloat64, true};
constexpr Merge kLargestSum{1, Of::kFloat64};
constexpr Merge kPairOfSums{2, Of::kFloat64};

constexpr PartOp kPartOps[] = {
    {"softmax", softmax_forward, softmax_backward, {kOne, kOne}, {3}},
    {"log_softmax", log_softmax_forward, log_softmax_backward, {kOne, Merge{2}}, kOne},
    {"logsumexp", logsumexp_forward, nullptr, {kLargestSum, kPairOfSums}},
    {"max", max_forward, extreme_backward, {kExtreme}, kExtreme},
    {"amin", amin_forward, extreme_backward, {kExtreme}, kExtreme},
    {"any", any_forward, nullptr, {kTruth}},
    {"all", all_forward, nullptr, {kTruth}},
    {"argmax", argmax_forward, nullptr, {Merge{2, Of::kInt64, true}}},
    {"var", var_forward, nullptr, {kMoments}},
    {"layer_norm", layer_norm_forward, layer_norm_backward, {kMoments}, {2}, true},
    {"cross_entropy", cross_entropy_forward, nullptr, {kOne, Merge{3, Of::kFloating, false, true}}},
    {"nll_loss", nll_loss_forward, nullptr, {Merge{1, Of::kFloating, false, true}}},
    {"embedding", embedding_forward, embedding_backward},
    {"index_select", index_select_forward, index_select_backward},
    {"gather", gather_forward, gather_backward},
    {"dropout", dropout_forward},
};

}  // namespace

const PartOp& find_part_op(std::string_view name) {
  for (const PartOp& op : kPartOps) {
    if (name == op.name) return op;
  }
  fail(Status::kUnsupported, "{}: does not work on parts of tensors", name);
}

}  // namespace distag::spmd
