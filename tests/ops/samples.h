#pragma once

#include <string>
#include <vector>

#include "ops/attributes.h"
#include "ops/op.h"

namespace distag::testing {

// Inputs on which the gradient of an op is checked, in float64. They keep away from corners (equal numbers under a max,
// zero under a relu), where a difference quotient says nothing.
struct Sample {
  std::string op;
  Tensors inputs;
  ops::Attributes attributes;
};

// At least one for each op that has a backward.
std::vector<Sample> gradient_samples();

}  // namespace distag::testing
