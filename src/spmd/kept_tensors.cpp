#include "spmd/kept_tensors.h"

#include <algorithm>
#include <span>

namespace distag::spmd {
namespace {

using Names = std::span<const std::string_view>;

constexpr uint64_t kFirst = 1, kSecond = 2, kBoth = 3;

// Ops that are on no list keep nothing.
constexpr std::string_view kKeepFirst[] = {
    "abs",        "amin", "clamp",     "cos",    "cross_entropy", "elu",  "embedding",  "erf",   "gelu",
    "leaky_relu", "log",  "logsumexp", "max",    "nll_loss",      "norm", "reciprocal", "rsqrt", "sigmoid",
    "silu",       "sin",  "softplus",  "square", "std",           "tanh", "var",        "where"};
constexpr std::string_view kKeepSecond[] = {"div",        "gather",      "index_add",  "index_select",
                                            "layer_norm", "masked_fill", "scatter_add"};
constexpr std::string_view kKeepBoth[] = {"batch_norm",
                                          "binary_cross_entropy_with_logits",
                                          "conv1d",
                                          "conv2d",
                                          "conv_transpose2d",
                                          "group_norm",
                                          "huber_loss",
                                          "kl_div",
                                          "l1_loss",
                                          "maximum",
                                          "minimum",
                                          "mse_loss",
                                          "pow",
                                          "rms_norm"};
constexpr std::string_view kKeepOwn[] = {"amin",
                                         "exp",
                                         "layer_norm",
                                         "log_softmax",
                                         "logsumexp",
                                         "max",
                                         "max_pool2d",
                                         "max_with_indices",
                                         "min_with_indices",
                                         "norm",
                                         "relu",
                                         "softmax",
                                         "sort",
                                         "sqrt",
                                         "std",
                                         "topk"};

bool has(Names names, std::string_view op) { return std::find(names.begin(), names.end(), op) != names.end(); }

}  // namespace

KeptTensors kept_tensors(std::string_view op, uint64_t needed) {
  KeptTensors kept;
  // The gradient of one factor of a product takes the other one.
  if (op == "matmul" || op == "linear" || op == "mul") kept.inputs = (needed & 1) << 1 | (needed >> 1 & 1);
  if (op == "scaled_dot_product_attention") kept.inputs = 15;
  if (has(kKeepFirst, op)) kept.inputs = kFirst;
  if (has(kKeepSecond, op)) kept.inputs = kSecond;
  if (has(kKeepBoth, op)) kept.inputs = kBoth;
  if (op == "batch_norm") kept.inputs |= 24;  // statistics that the caller gives
  kept.is_own = has(kKeepOwn, op) || (op == "div" && (needed & kSecond) != 0);
  return kept;
}

}  // namespace distag::spmd
