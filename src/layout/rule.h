#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "layout/spec.h"
#include "tensor/attributes.h"

namespace distag::layout {

// Properties of an input that the placement of an op depends on.
struct Operand {
  bool is_defined = true;  // an optional input may be left out
  Dtype dtype = Dtype::kFloat32;
  Dims shape;  // shape of the whole tensor
  Spec spec;
  bool is_parameter = false;
};

// The application of an op to sharded tensors.
struct OpCall {
  std::string_view op;
  const Attributes& attributes;
  std::span<const Operand> inputs;
};

// A dim of an input or output, as an operand of einsum: dims of one factor are cut alike. A block of `size` indices of
// this dim stands for size * unit indices of the factor, so that reshape can relate dims of different sizes.
struct FactorDim {
  static constexpr int kWhole = -1;  // must not be cut
  int factor = kWhole;
  int64_t unit = 1;
};

// The effect of cutting the dims of a factor.
enum class FactorKind : uint8_t {
  kPass,    // none for the op
  kSum,     // the outputs are partial
  kMerged,  // the op merges the members' results; outputs without the factor are repeated
};

// The op that members run instead, so that the parts of a sum add up.
enum class LocalForm : uint8_t {
  kSame,
  kSumOfMean,        // sum, times one over the count of the whole; for mean
  kLossOfMean,       // reduction sum with the same factor; for losses
  kLossOfRows,       // the same for losses of classes; if rows are cut, each row counts and no target may be ignored
  kLossOverWeights,  // reduction sum, divided by the weights of all members' rows; for losses of classes
  kBlockOfShape,     // attribute `shape` is that of the member's part; for reshape, expand
  kReshape,          // reshape to the member's part; for squeeze, which would use the part's sizes
  kBandOfRows,       // the diagonal is relative to the member's part; for tril, triu
  kTableRows,        // indices of other members' rows give zeros; for embedding, gather, index_select
  kMaskOfBox,        // elements are counted by their place in the whole; for dropout
};

// How the dims of an op may be cut.
struct Rule {
  std::vector<std::vector<FactorDim>> inputs;  // empty for an input that is left out
  std::vector<std::vector<FactorDim>> outputs;
  std::vector<Dims> output_shapes;
  std::vector<FactorKind> factors;
  bool is_linear = false;  // op(a + b) = op(a) + op(b): if all inputs are partial, the outputs may be
  LocalForm form = LocalForm::kSame;
  double scale = 1;                  // for forms that compute a mean
  std::optional<size_t> added_once;  // an input, such as a bias, that one member adds if the output is partial
  int64_t merged_numbers = 0;        // numbers per row that members merge; for merged factors
  // kTableRows: the inputs that are the table and the index, and the dim of the table that holds its rows.
  size_t table = 1;
  size_t table_dim = 0;
  size_t index() const { return 1 - table; }
};

// The rule for a call, from its shapes and attributes. Throws INVALID_ARGUMENT, as the op itself would, for invalid
// ones; UNSUPPORTED for an op without a rule (an op of the host).
Rule rule_of(const OpCall& call);

// Whether there is a rule for the op. is_source(): whether the op makes tensors without inputs, which needs no rule.
bool has_rule(std::string_view op);
bool is_source(std::string_view op);

}  // namespace distag::layout
