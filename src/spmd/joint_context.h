#pragma once

#include <memory>

#include "autograd/context.h"
#include "dautograd/dautograd.h"
#include "spmd/program.h"

namespace distag::spmd {

// A context that all members of a mesh share: its passes are collective calls, after which either all members have the
// gradients of their leaves, or none. Members may call other workers in it, and passes go through those calls.
// `dautograd` is this member's. Throws INVALID_ARGUMENT for a named line. Collective, without waiting.
std::shared_ptr<Context> make_joint_context(const Line& line, Dautograd& dautograd);

}  // namespace distag::spmd
