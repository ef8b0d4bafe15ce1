#pragma once

#include <cstdint>

// Limits of settings of ops on images, which their kernels and the rules of how they are cut have in common.
namespace distag {

// A stride, padding, dilation or kernel: products of two are far from overflow.
inline constexpr int64_t kMostOfSetting = int64_t{1} << 30;
// The elements of one image and channel that an op makes of fewer.
inline constexpr int64_t kMostPixels = int64_t{1} << 28;
// The outputs of an adaptive pool along a side that has fewer elements.
inline constexpr int64_t kMostAdaptiveOutputs = 4096;

}  // namespace distag
