#pragma once

#include "ops/op.h"
#include "rpc/op_runner.h"
#include "tensor/value.h"

namespace distag {

// A built-in op that a peer calls: its inputs (null: left out), then a map if it needs attributes.
struct OpCall {
  const ops::Op* op = nullptr;
  Tensors inputs;
  ops::Attributes attributes;
};

// Throws INVALID_ARGUMENT, which names the argument, if one is neither an input nor that map.
OpCall make_op_call(const ops::Op& op, const Values& args);

// Whether the op may run on the loop: it is marked cheap, and its inputs and outputs are few and at most 64 KiB each.
bool is_cheap(const OpCall& call);
// Whether the op is one pass over dense tensors of one shape, or of one element, each at most 1 MiB. The loop runs it
// if nothing else is open, since another thread would take as long to wake.
bool is_one_short_pass(const OpCall& call);

// A single output is returned as itself, several as a list. Throws what the op throws.
Value run_op_call(const OpCall& call, const OpRunner& runner, bool record);

}  // namespace distag
