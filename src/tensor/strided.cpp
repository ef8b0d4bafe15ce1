#include "tensor/strided.h"

#include <cstring>

namespace distag {
namespace {

// Elements are copied as bytes, whatever their type: bytes may alias anything.
template <size_t kSize>
struct alignas(kSize) Element {
  unsigned char bytes[kSize];
};

// A copy with as few dims as the strides allow: dims of size 1 dropped, neighbours that continue each other joined.
struct Plan {
  Dims shape;
  Dims out_strides;
  Dims in_strides;
};

Plan make_plan(const Dims& shape, const Dims& out_strides, const Dims& in_strides) {
  Plan plan;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == 1) continue;
    size_t last = plan.shape.size();
    if (last > 0 && plan.out_strides[last - 1] == out_strides[i] * shape[i] &&
        plan.in_strides[last - 1] == in_strides[i] * shape[i]) {
      plan.shape[last - 1] *= shape[i];
      plan.out_strides[last - 1] = out_strides[i];
      plan.in_strides[last - 1] = in_strides[i];
      continue;
    }
    plan.shape.push_back(shape[i]);
    plan.out_strides.push_back(out_strides[i]);
    plan.in_strides.push_back(in_strides[i]);
  }
  return plan;
}

template <typename T>
void copy_row(T* out, int64_t out_stride, const T* in, int64_t in_stride, int64_t count) {
  if (out_stride == 1 && in_stride == 1) {
    std::memcpy(out, in, static_cast<size_t>(count) * sizeof(T));
  } else if (out_stride == 1 && in_stride == 0) {
    std::fill(out, out + count, *in);
  } else {
    // With one element a turn, the time of this short loop would depend on its alignment in code memory.
#pragma GCC unroll 4
    for (int64_t i = 0; i < count; ++i) out[i * out_stride] = in[i * in_stride];
  }
}

// The last two dims, in tiles that keep both sides in the cache when one of them walks across its rows.
template <typename T>
void copy_plane(T* out, const T* in, const Plan& plan, size_t dim) {
  constexpr int64_t kTile = 32;
  int64_t rows = plan.shape[dim];
  int64_t columns = plan.shape[dim + 1];
  int64_t out_row = plan.out_strides[dim];
  int64_t out_column = plan.out_strides[dim + 1];
  int64_t in_row = plan.in_strides[dim];
  int64_t in_column = plan.in_strides[dim + 1];
  if (in_column == 1 || in_column == 0 || in_column == -1) {
    for (int64_t r = 0; r < rows; ++r) copy_row(out + r * out_row, out_column, in + r * in_row, in_column, columns);
    return;
  }
  for (int64_t r0 = 0; r0 < rows; r0 += kTile) {
    int64_t r1 = std::min(rows, r0 + kTile);
    for (int64_t c0 = 0; c0 < columns; c0 += kTile) {
      int64_t c1 = std::min(columns, c0 + kTile);
      for (int64_t r = r0; r < r1; ++r) {
        copy_row(out + r * out_row + c0 * out_column, out_column, in + r * in_row + c0 * in_column, in_column, c1 - c0);
      }
    }
  }
}

template <typename T>
void copy_from(T* out, const T* in, const Plan& plan, size_t dim) {
  size_t left = plan.shape.size() - dim;
  if (left == 0) {
    *out = *in;
  } else if (left == 1) {
    copy_row(out, plan.out_strides[dim], in, plan.in_strides[dim], plan.shape[dim]);
  } else if (left == 2) {
    copy_plane(out, in, plan, dim);
  } else {
    for (int64_t i = 0; i < plan.shape[dim]; ++i) {
      copy_from(out + i * plan.out_strides[dim], in + i * plan.in_strides[dim], plan, dim + 1);
    }
  }
}

template <typename T>
void copy_typed(std::byte* out, const std::byte* in, const Plan& plan) {
  copy_from(reinterpret_cast<T*>(out), reinterpret_cast<const T*>(in), plan, 0);
}

}  // namespace

std::optional<Reach> reach_of(const Dims& shape, const Dims& strides) {
  Reach reach;
  for (size_t i = 0; i < shape.size(); ++i) {
    int64_t length = 0;
    int64_t& end = strides[i] < 0 ? reach.lowest : reach.highest;
    if (__builtin_mul_overflow(shape[i] - 1, strides[i], &length)) return std::nullopt;
    if (__builtin_add_overflow(end, length, &end)) return std::nullopt;
  }
  return reach;
}

bool is_row_major(const Dims& shape, const Dims& strides) {
  int64_t expected = 1;
  bool matches = true;
  for (size_t i = shape.size(); i-- > 0;) {
    if (shape[i] == 0) return true;
    if (shape[i] == 1) continue;
    matches = matches && strides[i] == expected;
    expected *= shape[i];
  }
  return matches;
}

void copy_strided(std::byte* out, const Dims& out_strides, const std::byte* in, const Dims& in_strides,
                  const Dims& shape, size_t item_size) {
  for (int64_t size : shape) {
    if (size == 0) return;
  }
  Plan plan = make_plan(shape, out_strides, in_strides);
  if (item_size == 1) {
    copy_typed<Element<1>>(out, in, plan);
  } else if (item_size == 4) {
    copy_typed<Element<4>>(out, in, plan);
  } else {
    copy_typed<Element<8>>(out, in, plan);
  }
}

}  // namespace distag
