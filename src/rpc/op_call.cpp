#include "rpc/op_call.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "tensor/dtype.h"

namespace distag {
namespace {

constexpr int64_t kMaxCheapBytes = 64 << 10;

// Elements of what the inputs broadcast to, above the limit when it is more than that.
int64_t broadcast_count(const Tensors& inputs) {
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
    if (size > kMaxCheapBytes / count) return kMaxCheapBytes + 1;
    count *= size;
  }
  return count;
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
           "argument {} of op \"{}\" is a {}; an op takes tensors (null: left out), then a map of its attributes", i,
           op.name, kind_name(kind));
    }
  }
  return call;
}

bool is_cheap(const OpCall& call) {
  constexpr int64_t kLargestItem = 8;
  return call.op->is_cheap && broadcast_count(call.inputs) <= kMaxCheapBytes / kLargestItem;
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
