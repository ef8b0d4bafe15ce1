#pragma once

#include <string>

#include "layout/rule.h"
#include "ops/op.h"

namespace distag::spmd {

// Keys: texts of bytes that are equal for equal things. Of an op with its settings, a default may be given or left out,
// and a number may be written as an integer or not. Of a call, the key has all that its placement depends on.
std::string key_of(const ops::Op& op, const Attributes& attributes);
std::string key_of(const layout::OpCall& call);
void add_spec(std::string& key, const layout::Spec& spec);

}  // namespace distag::spmd
