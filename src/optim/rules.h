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

// All rules, listed explicitly.
std::span<const Rule* const> all_rules();
// Throws NOT_FOUND, which lists the existing rules.
const Rule& find_rule(const std::string& name);

}  // namespace distag::optim
