#pragma once

#include <cstdint>
#include <memory>

#include "ops/random.h"
#include "tensor/deferred.h"

namespace distag::ops {

// The initialisers of deferred tensors whose elements are those of an op, bit for bit: so they do not depend on the
// boxes in which they are made. Both throw as the op does for a dtype and a value.

// As full makes them.
std::shared_ptr<const Initialiser> full_initialiser(Dtype dtype, double value);

// As rand or randn makes them, then mul_scalar and add_scalar; scale 1 and shift 0 leave them as they are.
struct RandomElements {
  Distribution distribution = Distribution::kUniform;
  uint64_t seed = 0;
  double scale = 1;
  double shift = 0;
};
std::shared_ptr<const Initialiser> random_initialiser(Dtype dtype, const Dims& shape, const RandomElements& elements);

}  // namespace distag::ops
