#include "coll/fold.h"

#include <algorithm>
#include <tuple>

#include "base/error.h"
#include "ops/attributes.h"
#include "ops/builtins.h"

namespace distag {
namespace {

Tensor applied(const ops::Op& op, const Tensors& inputs, const Attributes& attributes = {}) {
  return op.forward(inputs, attributes, nullptr).front();
}

Tensor combined(Reduction reduction, Tensor a, const Tensor& b) {
  switch (reduction) {
    case Reduction::kSum:
      // In place where the first operand has no other holder.
      return a.dtype() == Dtype::kBool ? applied(ops::kMaximum, {a, b}) : ops::accumulate(std::move(a), b);
    case Reduction::kProduct:
      return applied(ops::kMul, {a, b});
    case Reduction::kMin:
      return applied(ops::kAmin, {applied(ops::kStack, {a, b})}, ops::make_attributes({{"dims", Dims{0}}}));
    case Reduction::kMax:
      return applied(ops::kMaximum, {a, b});
  }
  fail(Status::kInvalidArgument, "{} is no reduction: use sum, product, min or max", static_cast<int32_t>(reduction));
}

}  // namespace

const char* reduction_name(Reduction reduction) {
  switch (reduction) {
    case Reduction::kSum:
      return "sum";
    case Reduction::kProduct:
      return "product";
    case Reduction::kMin:
      return "min";
    case Reduction::kMax:
      return "max";
  }
  return "unknown";
}

Tensor fold(Reduction reduction, std::vector<Operand> operands) {
  std::sort(operands.begin(), operands.end(), [](const Operand& a, const Operand& b) {
    return std::tie(a.granule, a.position) < std::tie(b.granule, b.position);
  });
  Tensor total;
  for (size_t i = 0; i < operands.size();) {
    const int64_t granule = operands[i].granule;
    Tensor of_granule = operands[i].value;
    while (++i < operands.size() && operands[i].granule == granule) {
      of_granule = combined(reduction, std::move(of_granule), operands[i].value);
    }
    total = total ? combined(reduction, std::move(total), of_granule) : of_granule;
  }
  return total;
}

}  // namespace distag
