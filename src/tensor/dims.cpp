#include "tensor/dims.h"

#include "base/error.h"

namespace distag {
namespace {

void check_rank(size_t rank) {
  if (rank > kMaxRank) fail(Status::kInvalidArgument, "{} dimensions are too many: at most {}", rank, kMaxRank);
}

}  // namespace

Dims::Dims(std::span<const int64_t> items) : size_(items.size()) {
  check_rank(size_);
  std::copy(items.begin(), items.end(), items_.begin());
}

void Dims::push_back(int64_t item) {
  check_rank(size_ + 1);
  items_[size_++] = item;
}

void Dims::resize(size_t size, int64_t fill) {
  check_rank(size);
  for (size_t i = size_; i < size; ++i) items_[i] = fill;
  size_ = size;
}

std::string to_string(const Dims& dims) {
  std::string text = "[";
  for (size_t i = 0; i < dims.size(); ++i) {
    if (i != 0) text += ", ";
    text += std::to_string(dims[i]);
  }
  return text + "]";
}

int64_t element_count(const Dims& shape, size_t item_size) {
  // Sizes of 0 count as 1 in the check, so that strides and byte counts made from any of the sizes fit as well.
  int64_t bytes = static_cast<int64_t>(item_size);
  int64_t count = 1;
  for (int64_t size : shape) {
    if (size < 0) fail(Status::kInvalidArgument, "shape {} has a negative size", to_string(shape));
    if (__builtin_mul_overflow(bytes, std::max<int64_t>(size, 1), &bytes)) {
      fail(Status::kInvalidArgument, "shape {} has more elements than memory can hold", to_string(shape));
    }
    count *= size;
  }
  return count;
}

Dims row_major_strides(const Dims& shape) {
  Dims strides;
  strides.resize(shape.size());
  int64_t stride = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= std::max<int64_t>(shape[i], 1);
  }
  return strides;
}

}  // namespace distag
