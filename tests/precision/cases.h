#pragma once

#include <functional>
#include <string>

#include "ops/attributes.h"
#include "ops/op.h"

namespace distag::testing {

// How the error of an op is measured.
enum class Scale {
  kTerms,   // each element by itself against the sum of what its terms are without their signs: a sum's condition
  kLargest  // against the largest element of the result
};

// An op at one size, on float32 inputs whose numbers have this mean and a variance of 1.
struct PrecisionCase {
  std::string op;
  int64_t size;
  double mean;
  Tensors inputs;
  ops::Attributes attributes;
  Scale scale;
  bool adds_up;  // so that its error may depend on the size
};

// Visits the cases of every op at a size, one after the other, since their numbers take memory; an op that adds up has
// one for each mean.
void for_each_precision_case(int64_t size, const std::function<void(const PrecisionCase&)>& visit);

// Element i: mean + sqrt(3) (2 u - 1), with u in [0, 1) from a hash of seed and i; rounded to float32. The script that
// makes PyTorch's numbers has the same.
Tensor precision_numbers(const Dims& shape, double mean, uint64_t seed);

}  // namespace distag::testing
