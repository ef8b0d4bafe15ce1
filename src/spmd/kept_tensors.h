#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace distag::spmd {

// The large tensors that an op keeps for its backward pass.
struct KeptTensors {
  uint64_t inputs = 0;  // bit i: input i itself
  bool is_own = false;  // its result, or another tensor as large, as indices of what it chose
  bool has(size_t input) const { return input < 64 && (inputs >> input & 1) != 0; }
};

// `needed`: a bit for each input whose gradient is needed.
KeptTensors kept_tensors(std::string_view op, uint64_t needed);

}  // namespace distag::spmd
