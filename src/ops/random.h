#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dims.h"
#include "tensor/dtype.h"

namespace distag::ops {

enum class Distribution { kUniform, kNormal };

// Makes the elements `first` to `first + count` of the tensor that rand or randn makes of the seed, however large it
// is. Throws UNSUPPORTED for a dtype that is not floating.
void fill_random(Distribution distribution, Dtype dtype, std::byte* out, int64_t count, uint64_t seed, uint64_t first);

// Calls visit(index of the first element in the whole, count) for each run of contiguous elements of the part, in
// order.
template <typename Visit>
void for_each_run(const Dims& part, const Dims& whole, const Dims& offset, Visit visit) {
  size_t outer = part.size();  // number of dims before those that make up a run
  int64_t length = 1;
  bool is_all = true;
  while (outer > 0 && is_all) {
    --outer;
    length *= part[outer];
    is_all = part[outer] == whole[outer];
  }
  const Dims strides = row_major_strides(whole);
  Dims position;
  position.resize(outer);
  const int64_t runs = length == 0 ? 0 : element_count(part) / length;
  for (int64_t run = 0; run < runs; ++run) {
    int64_t first = 0;
    for (size_t d = 0; d < part.size(); ++d) first += (offset[d] + (d < outer ? position[d] : 0)) * strides[d];
    visit(static_cast<uint64_t>(first), length);
    for (size_t d = outer; d-- > 0;) {
      if (++position[d] < part[d]) break;
      position[d] = 0;
    }
  }
}

}  // namespace distag::ops
