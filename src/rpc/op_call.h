#pragma once

#include "ops/op.h"
#include "rpc/op_runner.h"
#include "tensor/value.h"

namespace distag {

// A built-in op as a peer calls it: its inputs (null: left out), then a map if it needs attributes.
struct OpCall {
  const ops::Op* op = nullptr;
  Tensors inputs;
  ops::Attributes attributes;
};

// Throws INVALID_ARGUMENT naming the argument that is neither.
OpCall make_op_call(const ops::Op& op, const Values& args);

// Whether it may run on the loop: marked cheap, no tensor above 64 KiB goes in or comes out, and not many go in.
bool is_cheap(const OpCall& call);
// Whether it is one pass over dense tensors of one shape, or of one element, each at most 1 MiB: the loop runs it where
// nothing else is open, since another thread would take as long to wake.
bool is_one_short_pass(const OpCall& call);

// One output as itself, several as a list. Throws as the op does.
Value run_op_call(const OpCall& call, const OpRunner& runner, bool record);

}  // namespace distag
