#include "ops/reduce.h"

#include <vector>

#include "ops/require.h"
#include "ops/rows.h"
#include "ops/views.h"

namespace distag::ops {
namespace {

// x as [outer, count, inner]; the middle is reduced.
struct Block {
  int64_t outer = 1;
  int64_t count = 1;
  int64_t inner = 1;
};

// Adjacent dims that are all reduced or all kept.
struct Run {
  int64_t size;
  bool is_reduced;
};

std::vector<Run> runs_of(const Dims& shape, const DimSet& dims) {
  std::vector<Run> runs;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == 1) continue;
    if (!runs.empty() && runs.back().is_reduced == dims[i]) {
      runs.back().size *= shape[i];
    } else {
      runs.push_back({shape[i], dims[i]});
    }
  }
  return runs;
}

// Takes the last reduced run out of `runs` and sets `block` around it; returns false if no run is reduced.
bool take_last_block(std::vector<Run>& runs, Block& block) {
  block = Block();
  size_t i = runs.size();
  while (i > 0 && !runs[i - 1].is_reduced) block.inner *= runs[--i].size;
  if (i == 0) return false;
  block.count = runs[--i].size;
  runs.erase(runs.begin() + static_cast<std::ptrdiff_t>(i));
  for (size_t k = 0; k < i; ++k) block.outer *= runs[k].size;
  return true;
}

template <typename F>
struct Joined {
  template <typename... Terms>
  DISTAG_INLINE typename F::Total operator()(typename F::Total total, Terms... terms) const {
    ((total = F::join(total, static_cast<typename F::Total>(terms))), ...);
    return total;
  }
};

// Joins rows element by element, each `stride` after the one before. Takes four rows at a time, so that `part` is read
// and written less often.
template <typename F, typename Part, typename T>
DISTAG_INLINE void put_joined(Part& part, const T* x, int64_t rows, int64_t stride) {
  const auto at = [&](int64_t i)
                      DISTAG_INLINE_LAMBDA { return row(x + i * stride, static_cast<int64_t>(part.size())); };
  std::fill_n(part.data(), part.size(), F::kStart);
  int64_t i = 0;
  for (; i + 4 <= rows; i += 4) put(part, each(Joined<F>(), part, at(i), at(i + 1), at(i + 2), at(i + 3)));
  for (; i < rows; ++i) put(part, each(Joined<F>(), part, at(i)));
}

// [count, inner] -> [inner]: rows are joined in a strip of columns that stays in the cache. At most kRowsPerPart rows
// are joined before the part joins the total.
template <typename F>
constexpr auto kReducedColumns = [](auto out, auto x) DISTAG_INLINE_LAMBDA {
  constexpr int64_t kStrip = 512;
  constexpr int64_t kRowsPerPart = 128;
  typename F::Total numbers[2][kStrip];
  const auto inner = static_cast<int64_t>(out.size());
  const auto count = static_cast<int64_t>(x.size()) / inner;
  for (int64_t j = 0; j < inner; j += kStrip) {
    const int64_t width = std::min(kStrip, inner - j);
    auto total = row(numbers[0], width);
    auto part = row(numbers[1], width);
    put_joined<F>(total, x.data() + j, std::min(kRowsPerPart, count), inner);
    for (int64_t i = kRowsPerPart; i < count; i += kRowsPerPart) {
      put_joined<F>(part, x.data() + i * inner + j, std::min(kRowsPerPart, count - i), inner);
      put(total, each(Joined<F>(), total, part));
    }
    auto strip = row(out.data() + j, width);
    put(strip, each([count](auto number) DISTAG_INLINE_LAMBDA { return F::finish(number, count); }, total));
  }
};

template <typename F, typename T>
void reduce_block(T* out, const T* x, const Block& block) {
  if (block.inner == 1) {
    const auto reduced_row = [](T& to, auto terms)
                                 DISTAG_INLINE_LAMBDA { to = F::finish(reduced<F>(terms), length_of(terms)); };
    for_rows(block.outer, block.count, reduced_row, OfEach(out), Rows(x));
  } else {
    for_rows(block.outer, block.inner, kReducedColumns<F>, Rows(out), RowsOf(x, block.count * block.inner));
  }
}

template <template <typename> typename F>
Tensor reduce(const Tensor& x, const DimSet& dims, const Dims& out_shape) {
  Tensor out = Tensor::empty(x.dtype(), out_shape);
  if (out.count() == 0) return out;
  if (x.count() == 0) {
    dispatch(x.dtype(),
             [&]<typename T>(T) { std::fill_n(out.mutable_data_as<T>(), out.count(), F<T>::finish(F<T>::kStart, 0)); });
    return out;
  }
  Tensor in = x.contiguous();
  std::vector<Run> runs = runs_of(in.shape(), dims);
  dispatch(x.dtype(), [&]<typename T>(T) {
    Block block;
    bool is_last = false;
    while (!is_last && take_last_block(runs, block)) {
      is_last = true;
      for (const Run& run : runs) is_last = is_last && !run.is_reduced;
      Tensor part = is_last ? out : Tensor::empty(x.dtype(), Dims{block.outer * block.inner});
      reduce_block<F<T>, T>(part.mutable_data_as<T>(), in.data_as<T>(), block);
      in = part;
    }
    if (!is_last) in.copy_to(out.mutable_data());
  });
  return out;
}

}  // namespace

DimSet checked_dims(const char* op, const Dims& dims, const Tensor& x) {
  DimSet set;
  if (dims.empty()) {
    for (size_t i = 0; i < x.rank(); ++i) set.set(i);
    return set;
  }
  for (int64_t dim : dims) {
    size_t index = checked_dim(op, dim, x);
    require(!set[index], "{}: dim {} is named twice for {}", op, dim, x);
    set.set(index);
  }
  if (x.rank() == 0) set.reset();
  return set;
}

Dims reduced_shape(const Dims& shape, const DimSet& dims, bool keepdim) {
  Dims reduced;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (!dims[i]) {
      reduced.push_back(shape[i]);
    } else if (keepdim) {
      reduced.push_back(1);
    }
  }
  return reduced;
}

Reduction::Reduction(const char* op, const Tensor& x, const Attributes& attributes)
    : dims(checked_dims(op, get_dims(attributes, "dims"), x)),
      shape(reduced_shape(x.shape(), dims, get_bool(attributes, "keepdim", false))),
      kept_shape(reduced_shape(x.shape(), dims, true)) {}

int64_t reduced_count(const Dims& shape, const DimSet& dims) {
  int64_t count = 1;
  for (size_t i = 0; i < shape.size(); ++i) count *= dims[i] ? shape[i] : 1;
  return count;
}

Tensor sum_over(const Tensor& x, const DimSet& dims, const Dims& out_shape) {
  return reduce<Sum>(x.dtype() == Dtype::kBool ? as_dtype(x, Dtype::kInt64) : x, dims, out_shape);
}

Tensor mean_over(const Tensor& x, const DimSet& dims, const Dims& out_shape) {
  return reduce<Mean>(x, dims, out_shape);
}

Tensor max_over(const Tensor& x, const DimSet& dims, const Dims& out_shape) {
  return reduce<Maximum>(x, dims, out_shape);
}

Tensor min_over(const Tensor& x, const DimSet& dims, const Dims& out_shape) {
  return reduce<Minimum>(x, dims, out_shape);
}

}  // namespace distag::ops
