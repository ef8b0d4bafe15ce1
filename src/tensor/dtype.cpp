#include "tensor/dtype.h"

#include "base/error.h"

namespace distag {

size_t dtype_size(Dtype dtype) {
  switch (dtype) {
    case Dtype::kFloat32:
      return 4;
    case Dtype::kFloat64:
    case Dtype::kInt64:
      return 8;
    case Dtype::kBool:
      return 1;
  }
  return 0;
}

const char* dtype_name(Dtype dtype) {
  static constexpr const char* kNames[] = {"unknown", "float32",  "float64", "int64", "bool",
                                           "float16", "bfloat16", "int8",    "int32", "uint8"};
  auto number = static_cast<int32_t>(dtype);
  return number >= 1 && number <= 9 ? kNames[number] : kNames[0];
}

size_t checked_dtype_size(Dtype dtype) {
  size_t size = dtype_size(dtype);
  if (size == 0) {
    fail(Status::kUnsupported, "dtype {} (number {}) is not supported: use float32, float64, int64 or bool",
         dtype_name(dtype), static_cast<int32_t>(dtype));
  }
  return size;
}

namespace {

int promotion_rank(Dtype dtype) {
  switch (dtype) {
    case Dtype::kBool:
      return 0;
    case Dtype::kInt64:
      return 1;
    case Dtype::kFloat32:
      return 2;
    case Dtype::kFloat64:
      return 3;
  }
  return 0;
}

}  // namespace

Dtype promote(Dtype a, Dtype b) { return promotion_rank(a) >= promotion_rank(b) ? a : b; }

}  // namespace distag
