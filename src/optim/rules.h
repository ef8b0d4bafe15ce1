#pragma once

#include <span>
#include <string>

#include "optim/rule.h"

namespace distag::optim {

extern const Rule kSgd;
extern const Rule kAdagrad;
extern const Rule kAdam;
extern const Rule kAdamw;
extern const Rule kAdadelta;
extern const Rule kRmsprop;
extern const Rule kAdamax;
extern const Rule kRprop;

// The explicit list of all of them.
std::span<const Rule* const> all_rules();
// Throws NOT_FOUND listing the rules there are.
const Rule& find_rule(const std::string& name);

}  // namespace distag::optim
