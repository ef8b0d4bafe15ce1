#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "tensor/dims.h"

namespace distag {

// Whether elements with these strides lie row-major without gaps. Strides of sizes 0 and 1 do not matter.
bool is_row_major(const Dims& shape, const Dims& strides);

// The lowest and the highest element that a layout reaches, counted from its first.
struct Reach {
  int64_t lowest = 0;
  int64_t highest = 0;
};
// The reach of a layout with elements. nullopt if it does not fit into a number.
std::optional<Reach> reach_of(const Dims& shape, const Dims& strides);

// Copies elements of `item_size` bytes (1, 4 or 8) from one strided layout to another; both start at their first
// element and do not overlap. Strides are in elements; a source stride of 0 repeats.
void copy_strided(std::byte* out, const Dims& out_strides, const std::byte* in, const Dims& in_strides,
                  const Dims& shape, size_t item_size);

}  // namespace distag
