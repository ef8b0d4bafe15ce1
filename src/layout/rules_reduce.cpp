// Rules of ops that work element by element or reduce dims, including the losses.
#include <cmath>

#include "layout/rule_maker.h"

namespace distag::layout {
namespace {

// The shape to which all defined inputs broadcast.
Dims broadcast_shape(const RuleMaker& maker, size_t input_count) {
  Dims shape;
  for (size_t i = 0; i < input_count; ++i) {
    if (!maker.has_input(i)) continue;
    const Dims& other = maker.shape(i);
    Dims result = shape.size() >= other.size() ? shape : other;
    const Dims& shorter = shape.size() >= other.size() ? other : shape;
    const size_t shift = result.size() - shorter.size();
    for (size_t d = 0; d < shorter.size(); ++d) {
      int64_t& size = result[d + shift];
      if (size == 1) size = shorter[d];
      if (shorter[d] != 1 && shorter[d] != size) {
        maker.refuse("shapes {} and {} do not broadcast", to_string(shape), to_string(other));
      }
    }
    shape = result;
  }
  return shape;
}

// Assigns factors[d] to dim d of the broadcast shape and to the matching dims of all inputs, except dims that are
// broadcast.
void place_broadcast(RuleMaker& maker, size_t input_count, const Dims& shape, const std::vector<int>& factors) {
  for (size_t i = 0; i < input_count; ++i) {
    if (!maker.has_input(i)) continue;
    const Dims& own = maker.shape(i);
    const size_t shift = shape.size() - own.size();
    for (size_t d = 0; d < own.size(); ++d) {
      if (own[d] == shape[d + shift]) maker.place_input(i, d, factors[d + shift]);
    }
  }
}

std::vector<bool> dims_attribute(const RuleMaker& maker, size_t rank) {
  const Dims dims = get_dims(maker.call().attributes, "dims");
  std::vector<bool> reduced(rank, dims.empty());
  for (int64_t dim : dims) {
    const size_t d = maker.checked_dim(dim, rank);
    if (reduced[d]) maker.refuse("dim {} is named twice", dim);
    reduced[d] = true;
  }
  return reduced;
}

// Dims that stay pass; reduced dims are of `kind`, or whole without it.
void place_reduction(RuleMaker& maker, const std::vector<bool>& reduced, bool keepdim, std::optional<FactorKind> kind) {
  const Dims& shape = maker.shape(0);
  Dims result;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (!reduced[d]) result.push_back(shape[d]);
    if (reduced[d] && keepdim) result.push_back(1);
  }
  maker.add_output(result);
  size_t to = 0;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (!reduced[d]) {
      const int factor = maker.factor();
      maker.place_input(0, d, factor);
      maker.place_output(to++, factor);
    } else {
      if (kind) maker.place_input(0, d, kind == FactorKind::kSum ? maker.sum_factor() : maker.merged_factor());
      if (keepdim) ++to;
    }
  }
}

bool get_keepdim(const RuleMaker& maker) { return get_bool(maker.call().attributes, "keepdim", false); }

// Ops that choose from each group need groups with elements.
void check_chooses(const RuleMaker& maker, const std::vector<bool>& reduced) {
  for (size_t d = 0; d < reduced.size(); ++d) {
    if (reduced[d] && maker.shape(0)[d] == 0) {
      maker.refuse("{}{} has no elements to choose from", dtype_name(maker.input(0).dtype), to_string(maker.shape(0)));
    }
  }
}

// The same, unless the result has no elements.
void check_chooses_any(const RuleMaker& maker, const std::vector<bool>& reduced) {
  for (size_t d = 0; d < reduced.size(); ++d) {
    if (!reduced[d] && maker.shape(0)[d] == 0) return;
  }
  check_chooses(maker, reduced);
}

int64_t reduced_count(const RuleMaker& maker, const std::vector<bool>& reduced) {
  int64_t count = 1;
  for (size_t d = 0; d < reduced.size(); ++d) count *= reduced[d] ? maker.shape(0)[d] : 1;
  return count;
}

void set_mean(RuleMaker& maker, LocalForm form, int64_t count) {
  maker.rule.form = form;
  maker.rule.scale = 1.0 / static_cast<double>(count);
}

std::string reduction_attribute(const RuleMaker& maker) {
  std::string reduction = get_text(maker.call().attributes, "reduction", "mean");
  if (reduction != "mean" && reduction != "sum" && reduction != "none") {
    maker.refuse("reduction \"{}\" must be mean, sum or none", reduction);
  }
  return reduction;
}

}  // namespace

void elementwise_rule(RuleMaker& maker) {
  const size_t count = maker.call().inputs.size();
  const Dims shape = broadcast_shape(maker, count);
  maker.add_output(shape);
  std::vector<int> factors;
  for (size_t d = 0; d < shape.size(); ++d) {
    factors.push_back(maker.factor());
    maker.place_output(d, factors[d]);
  }
  place_broadcast(maker, count, shape, factors);
}

void linear_elementwise_rule(RuleMaker& maker) {
  elementwise_rule(maker);
  maker.rule.is_linear = true;
}

// Between floating dtypes it is linear up to rounding, which every sum has.
void cast_rule(RuleMaker& maker) {
  elementwise_rule(maker);
  const Dtype to = get_dtype(maker.call().attributes, "dtype", Dtype::kFloat32);
  maker.rule.is_linear = is_floating(maker.input(0).dtype) && is_floating(to);
}

void sum_rule(RuleMaker& maker) {
  place_reduction(maker, dims_attribute(maker, maker.shape(0).size()), get_keepdim(maker), FactorKind::kSum);
  maker.rule.is_linear = true;
}

void mean_rule(RuleMaker& maker) {
  const std::vector<bool> reduced = dims_attribute(maker, maker.shape(0).size());
  if (!is_floating(maker.input(0).dtype)) {
    fail(Status::kUnsupported, "mean: dtype {} is not supported: cast it to float32 or float64 first",
         dtype_name(maker.input(0).dtype));
  }
  place_reduction(maker, reduced, get_keepdim(maker), FactorKind::kSum);
  set_mean(maker, LocalForm::kSumOfMean, reduced_count(maker, reduced));
  maker.rule.is_linear = true;
}

namespace {

void merged_reduction_rule(RuleMaker& maker, int64_t numbers) {
  const std::vector<bool> reduced = dims_attribute(maker, maker.shape(0).size());
  place_reduction(maker, reduced, get_keepdim(maker), FactorKind::kMerged);
  maker.rule.merged_numbers = numbers;
}

}  // namespace

// Merges the extreme element.
void choice_rule(RuleMaker& maker) {
  const bool chooses = maker.call().op == "max" || maker.call().op == "amin";  // any and all of no elements are defined
  if (chooses) check_chooses(maker, dims_attribute(maker, maker.shape(0).size()));
  merged_reduction_rule(maker, 1);
}

// Merges the largest element and, relative to it, the sum of the exponentials that are 1 and the sum of all others.
void logsumexp_rule(RuleMaker& maker) { merged_reduction_rule(maker, 3); }

// Merges count, mean and sum of squares.
void var_rule(RuleMaker& maker) { merged_reduction_rule(maker, 3); }

// Reduced dims are whole.
void whole_reduction_rule(RuleMaker& maker) {
  const bool chooses = maker.call().op == "norm" && get_float(maker.call().attributes, "p", 2) == HUGE_VAL;
  if (chooses) check_chooses_any(maker, dims_attribute(maker, maker.shape(0).size()));
  place_reduction(maker, dims_attribute(maker, maker.shape(0).size()), get_keepdim(maker), std::nullopt);
}

void argmax_rule(RuleMaker& maker) {
  const size_t rank = maker.shape(0).size();
  std::vector<bool> reduced(rank, false);
  if (rank > 0) reduced[maker.dim_attribute("dim", -1, rank)] = true;
  check_chooses_any(maker, reduced);
  place_reduction(maker, reduced, false, FactorKind::kMerged);
  maker.rule.merged_numbers = 2;  // value and index
}

// Values and indices have the same spec; the dim along which they are found is whole.
void extreme_along_rule(RuleMaker& maker) {
  const Dims& x = maker.shape(0);
  const bool keepdim = get_keepdim(maker);
  std::vector<bool> reduced(x.size(), false);
  if (!x.empty()) reduced[maker.dim_attribute("dim", -1, x.size())] = true;
  Dims shape;
  for (size_t d = 0; d < x.size(); ++d) {
    if (!reduced[d]) shape.push_back(x[d]);
    if (reduced[d] && keepdim) shape.push_back(1);
  }
  check_chooses_any(maker, reduced);
  place_reduction(maker, reduced, keepdim, std::nullopt);
  maker.add_output(shape);
  maker.rule.outputs[1] = maker.rule.outputs[0];
}

void pairwise_loss_rule(RuleMaker& maker) {
  const std::string reduction = reduction_attribute(maker);
  if (reduction == "none") return elementwise_rule(maker);
  const size_t count = maker.call().inputs.size();
  const Dims shape = broadcast_shape(maker, count);
  maker.add_output({});
  std::vector<int> factors;
  for (size_t d = 0; d < shape.size(); ++d) factors.push_back(maker.sum_factor());
  place_broadcast(maker, count, shape, factors);
  if (reduction == "mean") set_mean(maker, LocalForm::kLossOfMean, element_count(shape));
}

// Classes are merged: the largest logit, the sums of exponentials that are 1 and of all others, the target's logit, and
// its weight if there are weights. A mean over weights, or over rows some of which may be ignored, needs the rows of
// all members; otherwise their number is known.
void classification_loss_rule(RuleMaker& maker) {
  const std::string reduction = reduction_attribute(maker);
  const Dims& logits = maker.shape(0);
  if (logits.empty()) maker.refuse("logits of no dims: [n, classes] is wanted");
  const size_t class_dim = logits.size() == 1 ? 0 : 1;
  Dims rows;
  for (size_t d = 0; d < logits.size(); ++d) {
    if (d != class_dim) rows.push_back(logits[d]);
  }
  if (maker.shape(1) != rows) {
    maker.refuse("logits {} and targets {} do not fit", to_string(logits), to_string(maker.shape(1)));
  }
  if (maker.has_input(2) && maker.shape(2) != Dims{logits[class_dim]}) {
    maker.refuse("weight {} does not fit {} classes", to_string(maker.shape(2)), logits[class_dim]);
  }
  const bool keeps = reduction == "none";
  maker.add_output(keeps ? rows : Dims());
  for (size_t d = 0, to = 0; d < logits.size(); ++d) {
    if (d == class_dim) continue;
    const int factor = keeps ? maker.factor() : maker.sum_factor();
    maker.place_input(0, d, factor);
    maker.place_input(1, to, factor);
    if (keeps) maker.place_output(to, factor);
    ++to;
  }
  const int classes = maker.merged_factor();
  maker.place_input(0, class_dim, classes);
  if (maker.has_input(2)) maker.place_input(2, 0, classes);
  maker.rule.merged_numbers = maker.has_input(2) ? 5 : 4;
  if (reduction != "mean") return;
  const bool counts_all = !maker.has_input(2) && find_attribute(maker.call().attributes, "ignore_index") == nullptr;
  if (counts_all) {
    set_mean(maker, LocalForm::kLossOfRows, element_count(rows));
  } else {
    maker.rule.form = LocalForm::kLossOverWeights;
  }
}

// Not declared linear, so that a partial tensor is summed first and not dropped part by part.
void dropout_rule(RuleMaker& maker) {
  elementwise_rule(maker);
  maker.rule.form = LocalForm::kMaskOfBox;
}

}  // namespace distag::layout
