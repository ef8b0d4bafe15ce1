// Rules of ops that rearrange elements. All except tril, triu and pad with a value are linear: their outputs have the
// values of x.
#include "layout/rule_maker.h"

namespace distag::layout {
namespace {

// Dim `from` of input 0 becomes dim `to` of the output.
void carry(RuleMaker& maker, size_t from, size_t to) {
  const int factor = maker.factor();
  maker.place_input(0, from, factor);
  maker.place_output(to, factor);
}

// Dim d of the output is dim order[d] of x.
void reordered(RuleMaker& maker, const std::vector<size_t>& order) {
  Dims shape;
  for (size_t dim : order) shape.push_back(maker.shape(0)[dim]);
  maker.add_output(shape);
  for (size_t d = 0; d < order.size(); ++d) carry(maker, order[d], d);
  maker.rule.is_linear = true;
}

// Adds one output of that shape for one input; all dims except the `whole` ones pass.
void pass_but(RuleMaker& maker, const Dims& shape, const std::vector<bool>& whole) {
  maker.add_output(shape);
  for (size_t d = 0; d < shape.size(); ++d) {
    if (!whole[d]) carry(maker, d, d);
  }
  maker.rule.is_linear = true;
}

std::vector<bool> only(size_t dim, size_t rank) {
  std::vector<bool> chosen(rank, false);
  chosen[dim] = true;
  return chosen;
}

size_t nonempty_dim(const RuleMaker& maker, int64_t fallback) {
  if (maker.shape(0).empty()) maker.refuse("a tensor of no dims has none to work along");
  return maker.dim_attribute("dim", fallback, maker.shape(0).size());
}

}  // namespace

void transpose_rule(RuleMaker& maker) {
  const size_t rank = maker.shape(0).size();
  std::vector<size_t> order(rank);
  for (size_t d = 0; d < rank; ++d) order[d] = d;
  if (rank > 0) std::swap(order[maker.dim_attribute("dim0", 0, rank)], order[maker.dim_attribute("dim1", 0, rank)]);
  reordered(maker, order);
}

void permute_rule(RuleMaker& maker) {
  const Dims dims = get_dims(maker.call().attributes, "dims");
  const size_t rank = maker.shape(0).size();
  std::vector<size_t> order;
  for (int64_t dim : dims) order.push_back(maker.checked_dim(dim, rank));
  std::vector<size_t> sorted = order;
  std::sort(sorted.begin(), sorted.end());
  for (size_t d = 0; d < rank; ++d) {
    if (sorted.size() != rank || sorted[d] != d)
      maker.refuse("dims {} are not each of the {} once", to_string(dims), rank);
  }
  reordered(maker, order);
}

// Decides by the size of the whole, never by that of a part.
void squeeze_rule(RuleMaker& maker) {
  const Dims& x = maker.shape(0);
  const size_t dim = nonempty_dim(maker, 0);
  Dims shape;
  for (size_t d = 0; d < x.size(); ++d) {
    if (d != dim || x[d] != 1) shape.push_back(x[d]);
  }
  maker.add_output(shape);
  for (size_t d = 0, to = 0; d < x.size(); ++d) {
    if (d != dim || x[d] != 1) carry(maker, d, to++);
  }
  maker.rule.is_linear = true;
  maker.rule.form = LocalForm::kReshape;
}

void unsqueeze_rule(RuleMaker& maker) {
  const Dims& x = maker.shape(0);
  const size_t dim = maker.dim_attribute("dim", 0, x.size() + 1);
  Dims shape;
  for (size_t d = 0; d <= x.size(); ++d) shape.push_back(d == dim ? 1 : x[d < dim ? d : d - 1]);
  maker.add_output(shape);
  for (size_t d = 0; d < x.size(); ++d) carry(maker, d, d < dim ? d : d + 1);
  maker.rule.is_linear = true;
}

void expand_rule(RuleMaker& maker) {
  const Dims& x = maker.shape(0);
  Dims shape = get_dims(maker.call().attributes, "shape");
  if (shape.size() < x.size()) maker.refuse("shape {} has fewer dims than {}", to_string(shape), to_string(x));
  const size_t added = shape.size() - x.size();
  for (size_t d = 0; d < x.size(); ++d) {
    if (shape[d + added] == -1) shape[d + added] = x[d];
    if (x[d] != 1 && shape[d + added] != x[d]) maker.refuse("{} does not expand to {}", to_string(x), to_string(shape));
  }
  maker.add_output(shape);
  for (size_t d = 0; d < x.size(); ++d) {
    if (shape[d + added] == x[d]) carry(maker, d, d + added);
  }
  maker.rule.is_linear = true;
  maker.rule.form = LocalForm::kBlockOfShape;
}

namespace {

// The shape that reshape requests, with -1 replaced.
Dims asked_shape(const RuleMaker& maker) {
  Dims shape = get_dims(maker.call().attributes, "shape");
  const int64_t count = element_count(maker.shape(0));
  int64_t known = 1;
  size_t open = shape.size();
  for (size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] == -1 && open == shape.size()) {
      open = d;
    } else if (shape[d] < 0 || __builtin_mul_overflow(known, shape[d], &known)) {
      maker.refuse("shape {} is no shape", to_string(shape));
    }
  }
  if (open < shape.size() && known > 0 && count % known == 0) shape[open] = count / known;
  if ((open < shape.size() && shape[open] == -1) || element_count(shape) != count) {
    maker.refuse("{} elements do not fit shape {}", count, to_string(shape));
  }
  return shape;
}

// The first dim in [first, end) with more than one element, or end.
size_t leading_dim(const Dims& shape, size_t first, size_t end) {
  while (first < end && shape[first] == 1) ++first;
  return first;
}

int64_t product(const Dims& shape, size_t first, size_t end) {
  int64_t product = 1;
  for (size_t d = first; d < end; ++d) product *= shape[d];
  return product;
}

}  // namespace

// Dims are grouped so that products are equal. The leading dims of a group share a factor, in units of the elements
// behind them; its other dims are whole.
void reshape_rule(RuleMaker& maker) {
  const Dims& x = maker.shape(0);
  const Dims shape = asked_shape(maker);
  maker.add_output(shape);
  maker.rule.is_linear = true;
  maker.rule.form = LocalForm::kBlockOfShape;
  if (element_count(shape) == 0) return;
  size_t in = 0;
  size_t out = 0;
  while (in < x.size() && out < shape.size()) {
    size_t in_end = in + 1;
    size_t out_end = out + 1;
    int64_t left = x[in];
    int64_t right = shape[out];
    while (left != right) {
      if (left < right)
        left *= x[in_end++];
      else
        right *= shape[out_end++];
    }
    const size_t in_lead = leading_dim(x, in, in_end);
    const size_t out_lead = leading_dim(shape, out, out_end);
    if (in_lead < in_end && out_lead < out_end) {
      const int factor = maker.factor();
      maker.place_input(0, in_lead, factor, product(x, in_lead + 1, in_end));
      maker.place_output(out_lead, factor, product(shape, out_lead + 1, out_end));
    }
    in = in_end;
    out = out_end;
  }
}

void slice_rule(RuleMaker& maker) {
  const Attributes& attributes = maker.call().attributes;
  const Dims& x = maker.shape(0);
  const size_t dim = nonempty_dim(maker, 0);
  const int64_t size = x[dim];
  auto bounded = [size](int64_t place) { return std::clamp<int64_t>(place < 0 ? place + size : place, 0, size); };
  const int64_t start = bounded(get_int(attributes, "start", 0));
  const int64_t stop = bounded(get_int(attributes, "stop", INT64_MAX));
  const int64_t step = get_int(attributes, "step", 1);
  if (step < 1) maker.refuse("step {} must be at least 1", step);
  Dims shape = x;
  shape[dim] = stop > start ? block_size(stop - start, step) : 0;
  pass_but(maker, shape, only(dim, x.size()));
}

void concat_rule(RuleMaker& maker) {
  const size_t dim = nonempty_dim(maker, 0);
  Dims shape = maker.shape(0);
  shape[dim] = 0;
  for (const Operand& operand : maker.call().inputs) {
    Dims other = operand.shape;
    if (other.size() == shape.size()) other[dim] = shape[dim];
    if (other != shape) {
      maker.refuse("{} and {} differ in other dims than {}", to_string(maker.shape(0)), to_string(operand.shape), dim);
    }
    shape[dim] = maker.joined_size(shape[dim], operand.shape[dim]);
  }
  pass_but(maker, shape, only(dim, shape.size()));
  for (size_t i = 1; i < maker.rule.inputs.size(); ++i) maker.rule.inputs[i] = maker.rule.inputs[0];
}

void stack_rule(RuleMaker& maker) {
  const Dims& x = maker.shape(0);
  for (const Operand& operand : maker.call().inputs) {
    if (operand.shape != x) maker.refuse("{} and {} differ", to_string(x), to_string(operand.shape));
  }
  unsqueeze_rule(maker);
  maker.rule.output_shapes[0][maker.dim_attribute("dim", 0, x.size() + 1)] =
      static_cast<int64_t>(maker.call().inputs.size());
  for (size_t i = 1; i < maker.rule.inputs.size(); ++i) maker.rule.inputs[i] = maker.rule.inputs[0];
}

void split_rule(RuleMaker& maker) {
  const size_t dim = nonempty_dim(maker, 0);
  const Dims sizes = get_dims(maker.call().attributes, "sizes");
  Dims shape = maker.shape(0);
  int64_t sum = 0;
  for (int64_t size : sizes) {
    if (size < 0) maker.refuse("sizes {} are at least 0", to_string(sizes));
    sum = maker.joined_size(sum, size);
  }
  if (sum != shape[dim]) {
    maker.refuse("sizes {} do not add up to {}", to_string(sizes), maker.shape(0)[dim]);
  }
  for (size_t i = 0; i < sizes.size(); ++i) {
    shape[dim] = sizes[i];
    if (i == 0) pass_but(maker, shape, only(dim, shape.size()));
    if (i == 0) continue;
    maker.add_output(shape);
    maker.rule.outputs[i] = maker.rule.outputs[0];
  }
}

void flip_rule(RuleMaker& maker) {
  const Dims& x = maker.shape(0);
  const Dims dims = get_dims(maker.call().attributes, "dims");
  std::vector<bool> whole(x.size(), dims.empty());
  for (int64_t dim : dims) whole[maker.checked_dim(dim, x.size())] = true;
  pass_but(maker, x, whole);
}

// Linear if it pads with 0.
void pad_rule(RuleMaker& maker) {
  const Attributes& attributes = maker.call().attributes;
  const size_t dim = nonempty_dim(maker, -1);
  const int64_t before = get_int(attributes, "before", 0);
  const int64_t after = get_int(attributes, "after", 0);
  if (before < 0 || after < 0) maker.refuse("before {} and after {} are at least 0", before, after);
  Dims shape = maker.shape(0);
  shape[dim] = maker.joined_size(maker.joined_size(before, shape[dim]), after);
  pass_but(maker, shape, only(dim, shape.size()));
  maker.rule.is_linear = get_float(attributes, "value", 0) == 0;
}

// All dims pass: the diagonal of a part is relative to its first row and column.
void triangle_rule(RuleMaker& maker) {
  const Dims& x = maker.shape(0);
  if (x.size() < 2) maker.refuse("{} has no rows and columns", to_string(x));
  pass_but(maker, x, std::vector<bool>(x.size(), false));
  maker.rule.form = LocalForm::kBandOfRows;
}

// Dims that are repeated once pass.
void repeat_rule(RuleMaker& maker) {
  const Dims& x = maker.shape(0);
  const Dims repeats = get_dims(maker.call().attributes, "repeats");
  if (repeats.size() < x.size())
    maker.refuse("repeats {} for {}: one for each dim at least", to_string(repeats), to_string(x));
  const size_t added = repeats.size() - x.size();
  Dims shape = repeats;
  for (size_t d = 0; d < shape.size(); ++d) {
    const int64_t size = d < added ? 1 : x[d - added];
    if (repeats[d] < 0 || __builtin_mul_overflow(size, repeats[d], &shape[d])) {
      maker.refuse("repeats {} of {} give no shape", to_string(repeats), to_string(x));
    }
  }
  maker.add_output(shape);
  for (size_t d = 0; d < x.size(); ++d) {
    if (repeats[d + added] == 1) carry(maker, d, d + added);
  }
  maker.rule.is_linear = true;
}

}  // namespace distag::layout
