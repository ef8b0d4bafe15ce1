#pragma once

#include <type_traits>

#include "base/error.h"
#include "tensor/dtype.h"

namespace distag::ops {

// Element types of the dtypes. A bool is a byte, and every nonzero value is true.
using Bool = uint8_t;

template <typename T>
inline constexpr bool kIsFloating = std::is_floating_point_v<T>;

// Calls visit with a value of the element type of `dtype`.
template <typename Visit>
void dispatch(Dtype dtype, Visit visit) {
  switch (dtype) {
    case Dtype::kFloat32:
      return visit(float{});
    case Dtype::kFloat64:
      return visit(double{});
    case Dtype::kInt64:
      return visit(int64_t{});
    case Dtype::kBool:
      return visit(Bool{});
  }
  checked_dtype_size(dtype);
}

template <typename Visit>
void dispatch_floating(const char* op, Dtype dtype, Visit visit) {
  if (dtype == Dtype::kFloat32) return visit(float{});
  if (dtype == Dtype::kFloat64) return visit(double{});
  fail(Status::kUnsupported, "{}: dtype {} is not supported: use float32 or float64", op, dtype_name(dtype));
}

template <typename Visit>
void dispatch_numeric(const char* op, Dtype dtype, Visit visit) {
  if (dtype == Dtype::kFloat32) return visit(float{});
  if (dtype == Dtype::kFloat64) return visit(double{});
  if (dtype == Dtype::kInt64) return visit(int64_t{});
  fail(Status::kUnsupported, "{}: dtype {} is not supported: use float32, float64 or int64", op, dtype_name(dtype));
}

// Calls visit with values of the element type and of the type of its sums: the same type, or float and double.
template <typename Visit>
void dispatch_sum(const char* op, Dtype dtype, Dtype sum, Visit visit) {
  dispatch_floating(op, dtype, [&]<typename T>(T) { sum == dtype ? visit(T{}, T{}) : visit(T{}, double{}); });
}

}  // namespace distag::ops
