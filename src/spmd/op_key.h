#pragma once

#include <string>

#include "layout/rule.h"

namespace distag::spmd {

// Texts of bytes, equal for what is equal. For attributes of ops; and for all that the placement of an op depends on.
void add_attributes(std::string& key, const Attributes& attributes);
std::string key_of(const layout::OpCall& call);

}  // namespace distag::spmd
