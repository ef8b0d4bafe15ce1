#pragma once

#include "base/error.h"
#include "layout/rule.h"

namespace distag::layout {

// The parts of rules that several kinds of ops share.
class RuleMaker {
 public:
  explicit RuleMaker(const OpCall& call);

  const OpCall& call() const { return call_; }
  const Operand& input(size_t i) const { return call_.inputs[i]; }
  bool has_input(size_t i) const { return i < call_.inputs.size() && call_.inputs[i].is_defined; }
  const Dims& shape(size_t i) const { return call_.inputs[i].shape; }
  // Resolves a dim that may count from the end. Throws INVALID_ARGUMENT if it is out of range.
  size_t checked_dim(int64_t dim, size_t rank) const;
  size_t dim_attribute(std::string_view name, int64_t fallback, size_t rank) const;

  // The sum of sizes. Throws INVALID_ARGUMENT on overflow.
  int64_t joined_size(int64_t a, int64_t b) const;

  int factor() { return add_factor(FactorKind::kPass); }
  int sum_factor() { return add_factor(FactorKind::kSum); }
  int merged_factor() { return add_factor(FactorKind::kMerged); }
  // Assigns the dim of an input, or of the output, to the factor.
  void place_input(size_t i, size_t dim, int factor, int64_t unit = 1) { rule.inputs[i][dim] = {factor, unit}; }
  void place_output(size_t dim, int factor, int64_t unit = 1) { rule.outputs[0][dim] = {factor, unit}; }
  // Adds an output whose dims are whole.
  void add_output(const Dims& shape);

  template <typename... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> text, Args&&... args) const {
    fail(Status::kInvalidArgument, "{}: {}", call_.op, fmt::format(text, std::forward<Args>(args)...));
  }

  Rule rule;

 private:
  int add_factor(FactorKind kind);

  const OpCall& call_;
};

// Rules by kind; each fills the maker's rule.
void elementwise_rule(RuleMaker& maker);  // inputs broadcast
void linear_elementwise_rule(RuleMaker& maker);
void cast_rule(RuleMaker& maker);
void sum_rule(RuleMaker& maker);
void mean_rule(RuleMaker& maker);
void choice_rule(RuleMaker& maker);  // max, amin, any, all
void logsumexp_rule(RuleMaker& maker);
void var_rule(RuleMaker& maker);
void whole_reduction_rule(RuleMaker& maker);  // std, norm
void argmax_rule(RuleMaker& maker);
void extreme_along_rule(RuleMaker& maker);  // min_with_indices, max_with_indices
void pairwise_loss_rule(RuleMaker& maker);
void classification_loss_rule(RuleMaker& maker);
void matmul_rule(RuleMaker& maker);
void linear_rule(RuleMaker& maker);
void conv2d_rule(RuleMaker& maker);
void conv1d_rule(RuleMaker& maker);
void conv_transpose2d_rule(RuleMaker& maker);
void interpolate_rule(RuleMaker& maker);
void pool2d_rule(RuleMaker& maker);
void adaptive_pool2d_rule(RuleMaker& maker);
void softmax_rule(RuleMaker& maker);
void log_softmax_rule(RuleMaker& maker);
void cumsum_rule(RuleMaker& maker);
void dropout_rule(RuleMaker& maker);
void layer_norm_rule(RuleMaker& maker);
void rms_norm_rule(RuleMaker& maker);
void group_norm_rule(RuleMaker& maker);
void batch_norm_rule(RuleMaker& maker);
void attention_rule(RuleMaker& maker);
void embedding_rule(RuleMaker& maker);
void gather_rule(RuleMaker& maker);
void index_select_rule(RuleMaker& maker);
void index_add_rule(RuleMaker& maker);
void scatter_add_rule(RuleMaker& maker);
void one_hot_rule(RuleMaker& maker);
void topk_rule(RuleMaker& maker);
void sort_rule(RuleMaker& maker);
void transpose_rule(RuleMaker& maker);
void permute_rule(RuleMaker& maker);
void squeeze_rule(RuleMaker& maker);
void unsqueeze_rule(RuleMaker& maker);
void expand_rule(RuleMaker& maker);
void reshape_rule(RuleMaker& maker);
void slice_rule(RuleMaker& maker);
void concat_rule(RuleMaker& maker);
void stack_rule(RuleMaker& maker);
void split_rule(RuleMaker& maker);
void flip_rule(RuleMaker& maker);
void pad_rule(RuleMaker& maker);
void triangle_rule(RuleMaker& maker);
void repeat_rule(RuleMaker& maker);

}  // namespace distag::layout
