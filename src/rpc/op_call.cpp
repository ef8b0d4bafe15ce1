#include "rpc/op_call.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "tensor/dtype.h"

namespace distag {
namespace {

constexpr int64_t kMaxCheapBytes = 64 << 10;
constexpr size_t kMaxPassBytes = 1 << 20;

constexpr int64_t kLargestItem = 8;
constexpr int64_t kMaxCheapCount = kMaxCheapBytes / kLargestItem;

// Whether the inputs broadcast to at most kMaxCheapCount elements.
bool broadcasts_to_few(const Tensors& inputs) {
  size_t rank = 0;
  for (const Tensor& input : inputs) {
    if (input) rank = std::max(rank, input.rank());
  }
  int64_t count = 1;
  for (size_t back = 1; back <= rank; ++back) {
    int64_t size = 1;
    for (const Tensor& input : inputs) {
      if (input && input.rank() >= back) size = std::max(size, input.shape()[input.rank() - back]);
    }
    if (size > kMaxCheapCount / count) return false;
    count *= size;
  }
  return true;
}

// Whether the inputs are no larger than those of an elementwise op with a few inputs: "concat" may have any number, and
// its output is as large as all of them.
bool are_few_in_all(const Tensors& inputs) {
  int64_t left = 4 * kMaxCheapCount;
  for (const Tensor& input : inputs) {
    if (input) left -= std::min(input.count(), left + 1);
    if (left < 0) return false;
  }
  return true;
}

}  // namespace

OpCall make_op_call(const ops::Op& op, const Values& args) {
  OpCall call;
  call.op = &op;
  call.inputs.reserve(args.size());
  for (size_t i = 0; i < args.size(); ++i) {
    const ValueKind kind = args[i].kind();
    if (kind == ValueKind::kTensor) {
      call.inputs.push_back(args[i].as_tensor());
    } else if (kind == ValueKind::kNull) {
      call.inputs.emplace_back();
    } else if (kind == ValueKind::kMap && i + 1 == args.size()) {
      call.attributes = args[i].as_map();
    } else {
      fail(Status::kInvalidArgument,
           "argument {} of op \"{}\" is {}; an op takes tensors (null: left out), then a map of its attributes", i,
           op.name, kind_name(kind));
    }
  }
  return call;
}

bool is_cheap(const OpCall& call) {
  return call.op->is_cheap && broadcasts_to_few(call.inputs) && are_few_in_all(call.inputs);
}

bool is_one_short_pass(const OpCall& call) {
  if (!call.op->is_one_pass) return false;
  const Dims* shape = nullptr;
  for (const Tensor& input : call.inputs) {
    if (!input || input.count() == 1) continue;
    if (shape != nullptr && input.shape() != *shape) return false;
    if (!input.is_contiguous() || input.byte_size() > kMaxPassBytes) return false;
    shape = &input.shape();
  }
  return true;
}

Value run_op_call(const OpCall& call, const OpRunner& runner, bool record) {
  Tensors outputs = runner(*call.op, call.inputs, call.attributes, record);
  if (outputs.size() == 1) return Value(std::move(outputs.front()));
  if (outputs.empty()) return Value();
  Value::List items;
  items.reserve(outputs.size());
  for (Tensor& output : outputs) items.emplace_back(std::move(output));
  return Value::list(std::move(items));
}

}  // namespace distag
