#pragma once

#include "layout/spec.h"
#include "tensor/tensor.h"

namespace distag {

// Parts of tensors by their boxes.

// The elements of a box, row-major; not copied if `x` has them so.
Tensor part_of(const Tensor& x, const layout::Box& box);
void write_part(Tensor& target, const Dims& offset, const Tensor& part);
// The box relative to the beginning of the outer box.
layout::Box relative(layout::Box box, const layout::Box& outer);

}  // namespace distag
