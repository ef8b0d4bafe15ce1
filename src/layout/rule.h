#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "layout/spec.h"
#include "tensor/attributes.h"

namespace distag::layout {

// What the placement of an op has to know of an input.
struct Operand {
  bool is_defined = true;  // an optional input may be left out
  Dtype dtype = Dtype::kFloat32;
  Dims shape;  // of the whole
  Spec spec;
  bool is_parameter = false;
};

// One application of an op to sharded tensors.
struct OpCall {
  std::string_view op;
  const Attributes& attributes;
  std::span<const Operand> inputs;
};

// A dim of an input or output as an operand of einsum: dims of one factor are cut alike. A block of `size` indices of
// this dim stands for size * unit indices of the factor, so that reshape can relate dims of different sizes.
struct FactorDim {
  static constexpr int kWhole = -1;  // may not be cut
  int factor = kWhole;
  int64_t unit = 1;
};

// The meaning of a cut of the dims of a factor.
enum class FactorKind : uint8_t {
  kPass,    // nothing to the op
  kSum,     // the outputs are partial
  kMerged,  // the op puts together what the members have; outputs that lack the factor are repeated
};

// The op that members run in its place, so that the parts of a sum add up.
enum class LocalForm : uint8_t {
  kSame,
  kSumOfMean,        // the sum, times one over the count of the whole; for mean
  kLossOfMean,       // reduction sum, likewise; for losses
  kLossOfRows,       // the same for losses of classes; where rows are cut each counts, and no target is one to ignore
  kLossOverWeights,  // reduction sum, over the weights of all rows of all members; for losses of classes
  kBlockOfShape,     // the attribute shape is that of the member's part; for reshape, expand
  kReshape,          // a reshape to the member's part; for squeeze, which would judge by the size of the part
  kBandOfRows,       // the diagonal counts from the member's part; for tril, triu
  kTableRows,        // indices of rows of other members give zeros; for embedding, gather, index_select
  kMaskOfBox,        // elements count by their place in the whole; for dropout
};

// How an op lets its dims be cut.
struct Rule {
  std::vector<std::vector<FactorDim>> inputs;  // empty for one that is left out
  std::vector<std::vector<FactorDim>> outputs;
  std::vector<Dims> output_shapes;
  std::vector<FactorKind> factors;
  bool is_linear = false;  // op(a + b) = op(a) + op(b): where all inputs are partial, the outputs may be
  LocalForm form = LocalForm::kSame;
  double scale = 1;                  // of forms that compute a mean
  std::optional<size_t> added_once;  // an input, as a bias, that one member adds where the output is partial
  int64_t merged_numbers = 0;        // of each row, by members together: for merged factors
  // kTableRows: the inputs that are the table and the index, and the dim of the table that its rows are along.
  size_t table = 1;
  size_t table_dim = 0;
  size_t index() const { return 1 - table; }
};

// The rule of an application, by its shapes and attributes. Throws INVALID_ARGUMENT, as the op itself would, when they
// do not fit; UNSUPPORTED for an op that has no rule (it is the host's own).
Rule rule_of(const OpCall& call);

// Whether there is a rule for the op, and whether the op makes tensors of nothing, which needs none.
bool has_rule(std::string_view op);
bool is_source(std::string_view op);

}  // namespace distag::layout
