#include "layout/rule.h"

#include "layout/rule_maker.h"

namespace distag::layout {
namespace {

struct Entry {
  const char* op;
  void (*make)(RuleMaker& maker);
};

constexpr Entry kRules[] = {
    {"add", linear_elementwise_rule},
    {"sub", linear_elementwise_rule},
    {"mul", elementwise_rule},
    {"div", elementwise_rule},
    {"maximum", elementwise_rule},
    {"eq", elementwise_rule},
    {"minimum", elementwise_rule},
    {"gt", elementwise_rule},
    {"ge", elementwise_rule},
    {"lt", elementwise_rule},
    {"le", elementwise_rule},
    {"ne", elementwise_rule},
    {"logical_and", elementwise_rule},
    {"logical_or", elementwise_rule},
    {"logical_not", elementwise_rule},
    {"masked_fill", elementwise_rule},
    {"floor", elementwise_rule},
    {"round", elementwise_rule},
    {"sign", elementwise_rule},
    {"erf", elementwise_rule},
    {"pow", elementwise_rule},
    {"where", elementwise_rule},
    {"add_scalar", elementwise_rule},
    {"mul_scalar", linear_elementwise_rule},
    {"neg", linear_elementwise_rule},
    {"clone", linear_elementwise_rule},
    {"detach", linear_elementwise_rule},
    {"cast", cast_rule},
    {"exp", elementwise_rule},
    {"log", elementwise_rule},
    {"sqrt", elementwise_rule},
    {"tanh", elementwise_rule},
    {"sigmoid", elementwise_rule},
    {"relu", elementwise_rule},
    {"sin", elementwise_rule},
    {"cos", elementwise_rule},
    {"abs", elementwise_rule},
    {"square", elementwise_rule},
    {"rsqrt", elementwise_rule},
    {"reciprocal", elementwise_rule},
    {"clamp", elementwise_rule},
    {"silu", elementwise_rule},
    {"softplus", elementwise_rule},
    {"gelu", elementwise_rule},
    {"leaky_relu", elementwise_rule},
    {"elu", elementwise_rule},
    {"sum", sum_rule},
    {"mean", mean_rule},
    {"max", choice_rule},
    {"amin", choice_rule},
    {"var", var_rule},
    {"std", whole_reduction_rule},
    {"norm", whole_reduction_rule},
    {"logsumexp", logsumexp_rule},
    {"any", choice_rule},
    {"all", choice_rule},
    {"argmax", argmax_rule},
    {"mse_loss", pairwise_loss_rule},
    {"l1_loss", pairwise_loss_rule},
    {"huber_loss", pairwise_loss_rule},
    {"kl_div", pairwise_loss_rule},
    {"binary_cross_entropy_with_logits", pairwise_loss_rule},
    {"cross_entropy", classification_loss_rule},
    {"nll_loss", classification_loss_rule},
    {"matmul", matmul_rule},
    {"linear", linear_rule},
    {"conv2d", conv2d_rule},
    {"conv1d", conv1d_rule},
    {"conv_transpose2d", conv_transpose2d_rule},
    {"interpolate", interpolate_rule},
    {"max_pool2d", pool2d_rule},
    {"avg_pool2d", pool2d_rule},
    {"adaptive_avg_pool2d", adaptive_pool2d_rule},
    {"softmax", softmax_rule},
    {"log_softmax", log_softmax_rule},
    {"cumsum", cumsum_rule},
    {"layer_norm", layer_norm_rule},
    {"rms_norm", rms_norm_rule},
    {"group_norm", group_norm_rule},
    {"batch_norm", batch_norm_rule},
    {"scaled_dot_product_attention", attention_rule},
    {"embedding", embedding_rule},
    {"gather", gather_rule},
    {"index_select", index_select_rule},
    {"index_add", index_add_rule},
    {"scatter_add", scatter_add_rule},
    {"one_hot", one_hot_rule},
    {"topk", topk_rule},
    {"sort", sort_rule},
    {"min_with_indices", extreme_along_rule},
    {"max_with_indices", extreme_along_rule},
    {"transpose", transpose_rule},
    {"permute", permute_rule},
    {"squeeze", squeeze_rule},
    {"unsqueeze", unsqueeze_rule},
    {"expand", expand_rule},
    {"reshape", reshape_rule},
    {"slice", slice_rule},
    {"concat", concat_rule},
    {"stack", stack_rule},
    {"split", split_rule},
    {"flip", flip_rule},
    {"pad", pad_rule},
    {"repeat", repeat_rule},
    {"tril", triangle_rule},
    {"triu", triangle_rule},
    {"dropout", dropout_rule},
};

constexpr std::string_view kSources[] = {"zeros", "ones", "full", "arange", "rand", "randn"};

const Entry* find_entry(std::string_view op) {
  for (const Entry& entry : kRules) {
    if (op == entry.op) return &entry;
  }
  return nullptr;
}

}  // namespace

bool has_rule(std::string_view op) { return find_entry(op) != nullptr; }

bool is_source(std::string_view op) {
  return std::find(std::begin(kSources), std::end(kSources), op) != std::end(kSources);
}

Rule rule_of(const OpCall& call) {
  const Entry* entry = find_entry(call.op);
  if (entry == nullptr) {
    fail(Status::kUnsupported, "{}: takes no sharded tensors: give it the members' own parts (to_local)", call.op);
  }
  RuleMaker maker(call);
  entry->make(maker);
  return std::move(maker.rule);
}

RuleMaker::RuleMaker(const OpCall& call) : call_(call) {
  for (const Operand& operand : call.inputs) {
    rule.inputs.emplace_back(operand.is_defined ? operand.shape.size() : 0);
  }
}

int RuleMaker::add_factor(FactorKind kind) {
  rule.factors.push_back(kind);
  return static_cast<int>(rule.factors.size()) - 1;
}

size_t RuleMaker::checked_dim(int64_t dim, size_t rank) const {
  const auto count = static_cast<int64_t>(rank);
  if (dim < -count || dim >= count) {
    refuse("dim {} is out of range for a tensor of {} dims", dim, rank);
  }
  return static_cast<size_t>(dim < 0 ? dim + count : dim);
}

size_t RuleMaker::dim_attribute(std::string_view name, int64_t fallback, size_t rank) const {
  return checked_dim(get_int(call_.attributes, name, fallback), rank);
}

int64_t RuleMaker::joined_size(int64_t a, int64_t b) const {
  int64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) refuse("sizes {} and {} make more than memory can hold", a, b);
  return sum;
}

void RuleMaker::add_output(const Dims& shape) {
  rule.outputs.emplace_back(shape.size());
  rule.output_shapes.push_back(shape);
}

}  // namespace distag::layout
