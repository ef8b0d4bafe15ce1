#pragma once

#include <cstddef>
#include <cstdint>

#include "base/task.h"
#include "tensor/tensor.h"

// The C structs of DLPack 1, by which libraries of one process share tensors, as laid out in
// https://dmlc.github.io/dlpack/latest/c_api.html. Enumerators are integers of their width here.
struct DLPackVersion {
  uint32_t major;
  uint32_t minor;
};

struct DLDevice {
  int32_t device_type;
  int32_t device_id;
};

struct DLDataType {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
};

struct DLTensor {
  void* data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t* shape;
  int64_t* strides;  // in elements; nullptr: row-major
  uint64_t byte_offset;
};

// Before version 1: without a version and flags.
struct DLManagedTensor {
  DLTensor dl_tensor;
  void* manager_ctx;
  void (*deleter)(DLManagedTensor* self);
};

struct DLManagedTensorVersioned {
  DLPackVersion version;
  void* manager_ctx;
  void (*deleter)(DLManagedTensorVersioned* self);
  uint64_t flags;
  DLTensor dl_tensor;
};

namespace distag {

inline constexpr uint64_t kDlpackReadOnly = 1;
inline constexpr uint64_t kDlpackIsCopied = 2;

// A new owner of the values of a tensor: its deleter, on any thread, runs `release` and destroys it. From here on
// others must not write the tensor. A copy may be written by the consumer; anything else is marked read-only.
DLManagedTensorVersioned* export_dlpack(const Tensor& tensor, bool is_copy, Task release);
DLManagedTensor* export_dlpack_legacy(const Tensor& tensor, Task release);

// Throws UNSUPPORTED for another major version.
void check_dlpack_version(const DLPackVersion& version);

// A tensor over the memory that is described, never written; `release` runs once nothing needs it. Throws UNSUPPORTED
// for another device or an unknown dtype, INVALID_ARGUMENT for an impossible layout; then `release` may have run.
Tensor import_dlpack(const DLTensor& given, Task release);

}  // namespace distag
