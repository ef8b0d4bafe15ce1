#pragma once

#include <cstddef>
#include <cstdint>

namespace distag {

// The numbers are those of distag_dtype_code and of the wire.
enum class Dtype : int32_t {
  kFloat32 = 1,
  kFloat64 = 2,
  kInt64 = 3,
  kBool = 4,  // one byte, 0 or 1
};

// Bytes per element; 0 for a number that is no supported dtype.
size_t dtype_size(Dtype dtype);
// Also names dtypes that this version does not support; "unknown" for a number that is no dtype.
const char* dtype_name(Dtype dtype);
inline bool is_floating(Dtype dtype) { return dtype == Dtype::kFloat32 || dtype == Dtype::kFloat64; }

// The size of a supported dtype. Throws UNSUPPORTED naming any other.
size_t checked_dtype_size(Dtype dtype);

// The smallest dtype that holds both: bool < int64 < float32 < float64.
Dtype promote(Dtype a, Dtype b);

}  // namespace distag
