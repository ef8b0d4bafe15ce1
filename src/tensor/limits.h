#pragma once

#include <cstdint>

// Limits of attributes of image ops, shared by their kernels and their sharding rules.
namespace distag {

// The limit of a stride, padding, dilation or kernel: products of two are far from overflow.
inline constexpr int64_t kMostOfSetting = int64_t{1} << 30;
// The most elements of one image and channel that an op makes from fewer.
inline constexpr int64_t kMostPixels = int64_t{1} << 28;
// The most outputs of an adaptive pool along a side that has fewer elements.
inline constexpr int64_t kMostAdaptiveOutputs = 4096;

}  // namespace distag
