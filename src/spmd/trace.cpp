#include "spmd/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "base/error.h"
#include "layout/rule.h"
#include "spmd/result_dtypes.h"
#include "tensor/shape_only.h"

namespace distag::spmd {
namespace {

// Process-wide, like ids of tensors.
std::atomic<uint64_t> g_last_number{0};

// Marks a result that requires grad. No pass comes here: its root would be a shape.
class ShapeNode final : public autograd::Node {
 public:
  ShapeNode(const char* name, uint32_t slots) : Node(Kind::kFunction, {}, slots), name_(name) {}
  std::string name() const override { return name_; }

 private:
  const char* const name_;
};

layout::Operand operand_of(const Tensor& input) {
  layout::Operand operand;
  operand.is_defined = static_cast<bool>(input);
  if (!input) return operand;
  operand.dtype = input.dtype();
  operand.shape = input.shape();
  operand.spec = layout::Spec(input.rank());
  return operand;
}

TracedInput input_of(const Tensor& input) {
  const ShapeOnly* shape = ShapeOnly::of(input);
  if (shape == nullptr || shape->maker() == nullptr) return {nullptr, 0, input};
  return {shape->maker(), shape->output(), {}};
}

bool needs_gradient(const ops::Op& op, std::span<const Tensor> inputs) {
  if (op.backward == nullptr) return false;
  for (const Tensor& input : inputs) {
    if (autograd::requires_grad(input)) return true;
  }
  return false;
}

// The limit with which sums of costs over inputs and members stay within 63 bits.
constexpr int64_t kMostBytes = int64_t{1} << 55;

// Sizes of 0 count as 1.
void check_bytes(Dtype dtype, const Dims& shape) {
  const auto item = static_cast<int64_t>(checked_dtype_size(dtype));
  element_count(shape, static_cast<size_t>(item));
  int64_t bytes = item;
  for (const int64_t size : shape) bytes *= std::max<int64_t>(size, 1);
  if (bytes <= kMostBytes) return;
  fail(Status::kInvalidArgument, "{}{} is too large for a plan: its sizes, with 1 for 0, make more than 2^55 bytes",
       dtype_name(dtype), to_string(shape));
}

Tensor make(Dtype dtype, const Dims& shape, std::shared_ptr<TracedOp> maker, uint32_t output) {
  check_bytes(dtype, shape);
  return Tensor::sharded(dtype, shape, std::make_unique<ShapeOnly>(dtype, shape, std::move(maker), output));
}

}  // namespace

TracedOp::TracedOp(const ops::Op& op, ops::Attributes attributes, std::vector<TracedInput> inputs,
                   std::vector<Dims> shapes, std::vector<Dtype> dtypes, bool is_recorded)
    : op_(op),
      attributes_(std::move(attributes)),
      inputs_(std::move(inputs)),
      shapes_(std::move(shapes)),
      dtypes_(std::move(dtypes)),
      is_recorded_(is_recorded),
      number_(g_last_number.fetch_add(1, std::memory_order_relaxed) + 1) {}

// Frees iteratively, like graphs of autograd: an op that only this one holds goes after its own inputs, and leads back
// to the op whose inputs were being dropped.
TracedOp::~TracedOp() {
  std::shared_ptr<TracedOp> current;  // nullptr: this one
  for (;;) {
    std::vector<TracedInput>& inputs = current ? current->inputs_ : inputs_;
    if (inputs.empty()) {
      if (!current) return;
      current = std::exchange(current->freed_after_, nullptr);
      continue;
    }
    std::shared_ptr<TracedOp> maker = std::move(inputs.back().maker);
    inputs.pop_back();
    // Another holder drops it later, in the same way.
    if (!maker || maker.use_count() != 1) continue;
    // The copy and its release order this thread after the one that gave up the second reference.
    { const std::shared_ptr<TracedOp> ordered = maker; }
    maker->freed_after_ = std::move(current);
    current = std::move(maker);
  }
}

const ShapeOnly* ShapeOnly::of(const Tensor& tensor) {
  return is_shape_only(tensor) ? static_cast<const ShapeOnly*>(tensor.shard_slot()) : nullptr;
}

Tensor ShapeOnly::alias() const { return make(dtype_, shape_, maker_, output_); }

void ShapeOnly::refuse() const {
  fail(Status::kInvalidState,
       "{}{} is a shape without elements (DISTAG_INIT_SHAPE), which ops note and plans are made from: to compute, to "
       "send or to go backward, make the tensors with another init",
       dtype_name(dtype_), to_string(shape_));
}

Tensors ShapeOnly::apply(const ops::Op& op, std::span<const Tensor> inputs, const ops::Attributes& attributes,
                         bool record) {
  return trace_op(op, inputs, attributes, record);
}

Tensor make_shape_only(Dtype dtype, const Dims& shape) { return make(dtype, shape, nullptr, 0); }

Tensors trace_op(const ops::Op& op, std::span<const Tensor> inputs, const ops::Attributes& attributes, bool record) {
  if (!layout::has_rule(op.name)) {
    fail(Status::kUnsupported, "{}: the shape of its result depends on elements, and a shape has none", op.name);
  }
  std::vector<layout::Operand> operands;
  std::vector<TracedInput> noted;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Tensor& input = inputs[i];
    try {
      if (input) check_bytes(input.dtype(), input.shape());
    } catch (...) {
      throw current_error().add_context(fmt::format("{}: input {}", op.name, i));
    }
    operands.push_back(operand_of(input));
    noted.push_back(input_of(input));
  }
  const layout::Rule rule = layout::rule_of({op.name, attributes, operands});
  std::vector<Dtype> dtypes = result_dtypes(op, inputs, attributes, rule.output_shapes.size());
  const bool is_recorded = record && needs_gradient(op, inputs);
  const auto traced =
      std::make_shared<TracedOp>(op, attributes, std::move(noted), rule.output_shapes, std::move(dtypes), is_recorded);
  Tensors outputs;
  try {
    for (size_t i = 0; i < traced->shapes().size(); ++i) {
      outputs.push_back(make(traced->dtypes()[i], traced->shapes()[i], traced, static_cast<uint32_t>(i)));
    }
  } catch (...) {
    throw current_error().add_context(op.name);
  }
  if (!is_recorded) return outputs;
  const auto node = std::make_shared<ShapeNode>(op.name, static_cast<uint32_t>(outputs.size()));
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (is_floating(outputs[i].dtype())) autograd::set_history(outputs[i], {node, static_cast<uint32_t>(i)});
  }
  return outputs;
}

}  // namespace distag::spmd
