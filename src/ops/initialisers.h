#pragma once

#include <cstdint>
#include <memory>

#include "ops/random.h"
#include "tensor/deferred.h"

namespace distag::ops {

// Initialisers of deferred tensors. The elements equal those of an op, bit for bit, so they do not depend on the boxes
// in which they are made. Both throw what the op throws for a dtype and a value.

// The elements that full makes.
std::shared_ptr<const Initialiser> full_initialiser(Dtype dtype, double value);

// The elements that rand or randn makes, followed by mul_scalar and add_scalar; scale 1 and shift 0 change nothing.
struct RandomElements {
  Distribution distribution = Distribution::kUniform;
  uint64_t seed = 0;
  double scale = 1;
  double shift = 0;
};
std::shared_ptr<const Initialiser> random_initialiser(Dtype dtype, const Dims& shape, const RandomElements& elements);

}  // namespace distag::ops
