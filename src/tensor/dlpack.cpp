#include "tensor/dlpack.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "base/error.h"
#include "tensor/strided.h"

namespace distag {
namespace {

constexpr DLPackVersion kVersion = {1, 0};
constexpr int32_t kCpu = 1;
constexpr int64_t kMostBytes = PTRDIFF_MAX / 2;

struct TypeEntry {
  Dtype dtype;
  uint8_t code;
  uint8_t bits;
};
constexpr TypeEntry kTypes[] = {
    {Dtype::kFloat32, 2, 32}, {Dtype::kFloat64, 2, 64}, {Dtype::kInt64, 0, 64}, {Dtype::kBool, 6, 8}};

DLDataType type_of(Dtype dtype) {
  const auto* entry =
      std::find_if(std::begin(kTypes), std::end(kTypes), [dtype](const TypeEntry& e) { return e.dtype == dtype; });
  return {entry->code, entry->bits, 1};
}

// "float16", "uint8", "float32 in vectors of 4".
std::string name_of(const DLDataType& type) {
  constexpr const char* kCodes[] = {"int", "uint", "float", "a handle of ", "bfloat", "complex", "bool"};
  const std::string code =
      type.code < std::size(kCodes) ? kCodes[type.code] : fmt::format("type {} of bits ", type.code);
  const std::string vectors = type.lanes == 1 ? std::string() : fmt::format(" in vectors of {}", type.lanes);
  return fmt::format("{}{}{}", code, type.bits, vectors);
}

Dtype dtype_of(const DLDataType& type) {
  const auto* entry = std::find_if(std::begin(kTypes), std::end(kTypes), [&type](const TypeEntry& e) {
    return e.code == type.code && e.bits == type.bits && type.lanes == 1;
  });
  if (entry == std::end(kTypes)) {
    fail(Status::kUnsupported, "{} of DLPack is not supported: cast it to float32, float64, int64 or bool first",
         name_of(type));
  }
  return entry->dtype;
}

// An owner, with all memory that its struct points to.
template <typename Managed>
struct Export {
  Managed managed{};
  Dims shape;
  Dims strides;
  Task release;

  static Managed* make(const Tensor& tensor, Task release) {
    auto owner = std::make_unique<Export>();
    owner->shape = tensor.shape();
    owner->strides = tensor.strides();
    owner->release = std::move(release);
    owner->managed.manager_ctx = owner.get();
    owner->managed.deleter = [](Managed* self) {
      const std::unique_ptr<Export> ended(static_cast<Export*>(self->manager_ctx));
      ended->release();
    };
    const Tensor held = tensor.hold();
    DLTensor& told = owner->managed.dl_tensor;
    told.data = const_cast<std::byte*>(held.data());  // the struct has no pointer to const
    told.device = {kCpu, 0};
    told.ndim = static_cast<int32_t>(tensor.rank());
    told.dtype = type_of(tensor.dtype());
    told.shape = owner->shape.data();
    told.strides = owner->strides.data();
    return &owner.release()->managed;
  }
};

Dims dims_of(const int64_t* items, int32_t ndim, const char* name) {
  if (ndim < 0 || static_cast<size_t>(ndim) > kMaxRank) {
    fail(Status::kInvalidArgument, "ndim is {}, not 0 to {}", ndim, kMaxRank);
  }
  if (ndim > 0 && items == nullptr) fail(Status::kInvalidArgument, "{} is NULL for {} dimensions", name, ndim);
  return ndim == 0 ? Dims() : Dims(std::span<const int64_t>(items, static_cast<size_t>(ndim)));
}

// As given, except for dims of size 1, whose strides do not matter: libraries leave any number there.
Dims strides_of(const DLTensor& given, const Dims& shape, int64_t count) {
  const Dims plain = row_major_strides(shape);
  if (given.strides == nullptr || count == 0) return plain;
  Dims strides = dims_of(given.strides, given.ndim, "strides");
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == 1) strides[i] = plain[i];
  }
  return strides;
}

// The bytes of a tensor, and the place of its first element among them.
struct Range {
  uintptr_t begin = 0;
  size_t size = 0;
  int64_t first = 0;  // in elements
};

// nullopt: no memory can have this layout.
std::optional<Range> find_range(const DLTensor& given, const Reach& reach, int64_t item_size) {
  Range range;
  uintptr_t first = 0;
  int64_t below = 0;
  int64_t above = 0;
  bool overflow = given.byte_offset > static_cast<uint64_t>(PTRDIFF_MAX);
  overflow |= __builtin_add_overflow(reinterpret_cast<uintptr_t>(given.data), given.byte_offset, &first);
  overflow |= __builtin_mul_overflow(reach.lowest, -item_size, &below);
  overflow |= __builtin_mul_overflow(reach.highest, item_size, &above);
  overflow |= __builtin_add_overflow(above, item_size, &above);
  int64_t size = 0;
  overflow |= __builtin_add_overflow(below, above, &size);
  uintptr_t end = 0;
  overflow |= __builtin_sub_overflow(first, static_cast<uintptr_t>(below), &range.begin);
  overflow |= __builtin_add_overflow(range.begin, static_cast<uintptr_t>(size), &end);
  // No object is larger; and twice its length still fits, for callers that count beyond its end.
  if (overflow || size > kMostBytes) return std::nullopt;
  range.size = static_cast<size_t>(size);
  range.first = -reach.lowest;
  return range;
}

}  // namespace

DLManagedTensorVersioned* export_dlpack(const Tensor& tensor, bool is_copy, Task release) {
  DLManagedTensorVersioned* managed = Export<DLManagedTensorVersioned>::make(tensor, std::move(release));
  managed->version = kVersion;
  managed->flags = is_copy ? kDlpackIsCopied : kDlpackReadOnly;
  return managed;
}

DLManagedTensor* export_dlpack_legacy(const Tensor& tensor, Task release) {
  return Export<DLManagedTensor>::make(tensor, std::move(release));
}

void check_dlpack_version(const DLPackVersion& version) {
  if (version.major == kVersion.major) return;
  fail(Status::kUnsupported, "the tensor is of DLPack {}.{}, this library knows {}.x: ask its owner for that version",
       version.major, version.minor, kVersion.major);
}

Tensor import_dlpack(const DLTensor& given, Task release) {
  if (given.device.device_type != kCpu) {
    fail(Status::kUnsupported, "the tensor is on device {} of DLPack type {}, not on the CPU: copy it there first",
         given.device.device_id, given.device.device_type);
  }
  const Dtype dtype = dtype_of(given.dtype);
  const Dims shape = dims_of(given.shape, given.ndim, "shape");
  const size_t item_size = dtype_size(dtype);
  const int64_t count = element_count(shape, item_size);
  const Dims strides = strides_of(given, shape, count);
  if (count == 0) return Tensor::over(Buffer::borrow(nullptr, 0, std::move(release)), dtype, shape, strides);
  if (given.data == nullptr) fail(Status::kInvalidArgument, "data is NULL for {} elements", count);
  const auto reach = reach_of(shape, strides);
  const auto range = reach ? find_range(given, *reach, static_cast<int64_t>(item_size)) : std::nullopt;
  if (!range) {
    fail(Status::kInvalidArgument, "shape {} with strides {} and byte offset {} reaches outside of the address space",
         to_string(shape), to_string(strides), given.byte_offset);
  }
  BufferRef buffer = Buffer::borrow(reinterpret_cast<const void*>(range->begin), range->size, std::move(release));
  return Tensor::over(std::move(buffer), dtype, shape, strides, range->first);
}

}  // namespace distag
