#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace distag::spmd {

// The tensors that an op keeps for its backward pass, besides small ones.
struct KeptTensors {
  uint64_t inputs = 0;  // bit i: input i itself
  bool is_own = false;  // its result, or another tensor of that size
  bool has(size_t input) const { return input < 64 && (inputs >> input & 1) != 0; }
};

// `needed`: the inputs, as bits, whose gradients are needed.
KeptTensors kept_tensors(std::string_view op, uint64_t needed);

}  // namespace distag::spmd
