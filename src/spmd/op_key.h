#pragma once

#include <string>

#include "layout/rule.h"
#include "ops/op.h"

namespace distag::spmd {

// Texts of bytes, equal for what is equal. For an op with its settings, whether a default is given or left out, and a
// number whole or not; and for all that the placement of an op depends on.
std::string key_of(const ops::Op& op, const Attributes& attributes);
std::string key_of(const layout::OpCall& call);

}  // namespace distag::spmd
