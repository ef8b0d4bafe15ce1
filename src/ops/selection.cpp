// Ops that order the elements of a dim or find some of them: topk, sort, argmax, min_with_indices, max_with_indices,
// nonzero.
#include <algorithm>
#include <numeric>
#include <vector>

#include "ops/attributes.h"
#include "ops/builtins.h"
#include "ops/require.h"
#include "ops/rows.h"
#include "ops/unary.h"
#include "ops/views.h"

namespace distag::ops {
namespace {

DimSet only(size_t dim) { return DimSet(1) << dim; }

// ---- topk, sort -----------------------------------------------------------------------------------------------------

// NaN is larger than all numbers, as in PyTorch; equal elements keep their order.
template <typename T>
class ComesBefore {
 public:
  ComesBefore(const T* row, bool largest) : row_(row), largest_(largest) {}
  bool operator()(int64_t a, int64_t b) const {
    if (is_less(row_[a], row_[b])) return !largest_;
    if (is_less(row_[b], row_[a])) return largest_;
    return a < b;
  }

 private:
  static bool is_less(T a, T b) { return a < b || (b != b && a == a); }

  const T* const row_;
  const bool largest_;
};

template <typename T>
void choose_rows(T* values, int64_t* indices, const T* x, int64_t rows, int64_t count, int64_t k, bool largest) {
  std::vector<int64_t> order(static_cast<size_t>(count));
  for (int64_t r = 0; r < rows; ++r, x += count) {
    std::iota(order.begin(), order.end(), int64_t{0});
    if (k < count)
      std::partial_sort(order.begin(), order.begin() + k, order.end(), ComesBefore<T>(x, largest));
    else
      std::sort(order.begin(), order.end(), ComesBefore<T>(x, largest));
    for (int64_t i = 0; i < k; ++i) {
      const int64_t place = order[static_cast<size_t>(i)];
      *values++ = x[place];
      *indices++ = place;
    }
  }
}

Tensors chosen_along(const char* op, const Tensor& x, size_t dim, int64_t k, bool largest, Saved* saved) {
  const DimsLast moved(x.shape(), only(dim));
  const Tensor rows = moved.gather(x);
  Dims shape = moved.shape;
  if (x.rank() > 0) shape[x.rank() - 1] = k;
  Tensor values = Tensor::empty(x.dtype(), shape);
  Tensor indices = Tensor::empty(Dtype::kInt64, shape);
  dispatch_numeric(op, x.dtype(), [&]<typename T>(T) {
    if (values.count() == 0) return;
    choose_rows(values.mutable_data_as<T>(), indices.mutable_data_as<int64_t>(), rows.data_as<T>(), moved.rows,
                moved.count, k, largest);
  });
  if (saved != nullptr) {
    saved->tensors = {indices.snapshot()};
    saved->shapes = {x.shape(), Dims{static_cast<int64_t>(dim)}};
  }
  return {moved.scatter(values).contiguous(), moved.scatter(indices).contiguous()};
}

}  // namespace

// A chosen element gets the gradient of its value; others get none.
struct ChosenAlong {
  static Tensor backward(const Saved& saved, const Tensor& of_values) {
    const DimsLast moved(saved.shapes[0], only(static_cast<size_t>(saved.shapes[1][0])));
    const Tensor g = moved.gather(of_values);
    Tensor result = zero_tensor(g.dtype(), moved.shape);
    const int64_t k = g.rank() == 0 ? 1 : g.shape().back();
    dispatch_floating("gradient of chosen elements", g.dtype(), [&]<typename T>(T) {
      if (g.count() == 0) return;
      T* out = result.mutable_data_as<T>();
      const T* in = g.data_as<T>();
      const auto* places = saved.tensors[0].data_as<int64_t>();
      for (int64_t i = 0; i < g.count(); ++i) out[i / k * moved.count + places[i]] = in[i];
    });
    return moved.scatter(result).contiguous();
  }
};

struct TopkOp : ChosenAlong {
  static Tensors forward(Inputs inputs, const Attributes& attributes, Saved* saved) {
    const Tensor& x = inputs[0];
    const size_t dim = checked_dim("topk", get_int(attributes, "dim", -1), x);
    const int64_t k = get_int(attributes, "k", 0);
    const int64_t least = x.rank() == 0 ? 1 : 0;
    const int64_t most = x.rank() == 0 ? 1 : x.shape()[dim];
    require(k >= least && k <= most, "topk: k {} is not from {} to {}, the elements of {} along dim {}", k, least, most,
            x, dim);
    return chosen_along("topk", x, dim, k, get_bool(attributes, "largest", true), saved);
  }
};
constexpr Op kTopk = make_op<TopkOp>("topk(tensor x, int64 k, int64 dim = -1, bool largest = true) -> tensor, tensor",
                                     "The k largest (or smallest) elements of x along dim in their order, and their "
                                     "indices (int64); a NaN is the largest, of equal ones the first comes first.",
                                     kCheap);

struct SortOp : ChosenAlong {
  static Tensors forward(Inputs inputs, const Attributes& attributes, Saved* saved) {
    const Tensor& x = inputs[0];
    const size_t dim = checked_dim("sort", get_int(attributes, "dim", -1), x);
    const int64_t count = x.rank() == 0 ? 1 : x.shape()[dim];
    return chosen_along("sort", x, dim, count, get_bool(attributes, "descending", false), saved);
  }
};
constexpr Op kSort = make_op<SortOp>("sort(tensor x, int64 dim = -1, bool descending = false) -> tensor, tensor",
                                     "The elements of x along dim in their order, and their indices (int64); a NaN is "
                                     "the largest, equal ones stay in order.",
                                     kCheap);

// ---- argmax, min_with_indices, max_with_indices ---------------------------------------------------------------------

namespace {

// Shorter rows are searched in one pass.
constexpr int64_t kLeastReduced = 64;

// The index of the first element that F chooses.
template <typename F, typename Row>
DISTAG_INLINE int64_t first_chosen(const Row& row) {
  const auto* x = row.data();
  const auto chosen = reduced<F>(row);
  const auto is_there = [x, chosen](int64_t i)
                            DISTAG_INLINE_LAMBDA { return (x[i] == chosen) | ((x[i] != x[i]) & (chosen != chosen)); };
  int64_t place = 0;
  for (int found = 0; place + kLanes <= static_cast<int64_t>(row.size()); place += kLanes) {
    for (int64_t l = 0; l < kLanes; ++l) found |= is_there(place + l);
    if (found != 0) break;
  }
  while (!is_there(place)) ++place;
  return place;
}

// The same in one pass; the first NaN precedes all numbers, as in PyTorch.
template <typename F, typename T>
int64_t first_best(const T* row, int64_t count) {
  int64_t best = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (row[i] != row[i]) return i;
    if (F::join(row[best], row[i]) != row[best]) best = i;
  }
  return best;
}

// The index in each row of `rows`, in `shape`.
template <template <typename> typename F>
Tensor first_places(const Tensor& rows, const Dims& shape) {
  Tensor indices = Tensor::empty(Dtype::kInt64, shape);
  if (indices.count() == 0) return indices;
  const int64_t count = rows.count() / indices.count();
  auto* const index = indices.mutable_data_as<int64_t>();
  dispatch(rows.dtype(), [&]<typename T>(T) {
    const T* x = rows.data_as<T>();
    const auto choose = [](int64_t& place, const auto& row) DISTAG_INLINE_LAMBDA { place = first_chosen<F<T>>(row); };
    if (count >= kLeastReduced) return for_rows(indices.count(), count, choose, OfEach(index), Rows(x));
    for (int64_t r = 0; r < indices.count(); ++r) index[r] = first_best<F<T>>(x + r * count, count);
  });
  return indices;
}

Dims without_dim(Dims shape, size_t dim) {
  if (shape.empty()) return shape;
  std::copy(shape.begin() + dim + 1, shape.end(), shape.begin() + dim);
  shape.pop_back();
  return shape;
}

template <Name kName, template <typename> typename F>
struct ExtremeOp {
  static Tensors forward(Inputs inputs, const Attributes& attributes, Saved* saved) {
    const Tensor& x = inputs[0];
    const size_t dim = checked_dim(kName.text, get_int(attributes, "dim", -1), x);
    const Tensor rows = DimsLast(x.shape(), only(dim)).gather(x);
    Dims shape = without_dim(x.shape(), dim);
    if (get_bool(attributes, "keepdim", false) && x.rank() > 0) shape = x.shape(), shape[dim] = 1;
    require(x.count() > 0 || element_count(shape) == 0, "{}: {} has no elements along dim {}", kName.text, x, dim);
    const Tensor indices = first_places<F>(rows, shape);
    Tensor values = Tensor::empty(x.dtype(), shape);
    dispatch(x.dtype(), [&]<typename T>(T) {
      T* value = values.mutable_data_as<T>();
      const T* row = rows.data_as<T>();
      const auto* index = indices.data_as<int64_t>();
      const int64_t count = values.count() == 0 ? 0 : x.count() / values.count();
      for (int64_t r = 0; r < values.count(); ++r, row += count) value[r] = row[index[r]];
    });
    if (saved != nullptr) {
      Dims rows_shape = rows.shape();
      if (x.rank() > 0) rows_shape[x.rank() - 1] = 1;
      saved->tensors = {with_shape(indices, rows_shape).snapshot()};
      saved->shapes = {x.shape(), Dims{static_cast<int64_t>(dim)}};
    }
    return {values, indices};
  }

  // Computed as if the dim had been kept.
  static Tensor backward(const Saved& saved, const Tensor& of_values) {
    Dims kept = saved.shapes[0];
    if (!kept.empty()) kept[static_cast<size_t>(saved.shapes[1][0])] = 1;
    return ChosenAlong::backward(saved, with_shape(of_values, kept));
  }
};

}  // namespace

struct ArgmaxOp {
  static Tensor forward(Inputs inputs, const Attributes& attributes, Saved*) {
    const Tensor& x = inputs[0];
    const size_t dim = checked_dim("argmax", get_int(attributes, "dim", -1), x);
    const Dims shape = without_dim(x.shape(), dim);
    require(x.count() > 0 || element_count(shape) == 0, "argmax: {} has no elements to choose from", x);
    return first_places<Maximum>(DimsLast(x.shape(), only(dim)).gather(x), shape);
  }
};
constexpr Op kArgmax =
    make_op<ArgmaxOp>("argmax(tensor x, int64 dim = -1) -> tensor",
                      "The index (int64) of the first largest element along dim, which goes away.", kCheap);

constexpr Op kMinWithIndices = make_op<ExtremeOp<"min_with_indices", Minimum>>(
    "min_with_indices(tensor x, int64 dim = -1, bool keepdim = false) -> tensor, tensor",
    "The smallest elements of x along dim, which goes away or stays with size 1, and their indices (int64): the first "
    "NaN, or else the first of equal ones, which has the gradient.",
    kCheap);

constexpr Op kMaxWithIndices = make_op<ExtremeOp<"max_with_indices", Maximum>>(
    "max_with_indices(tensor x, int64 dim = -1, bool keepdim = false) -> tensor, tensor",
    "The largest elements of x along dim, which goes away or stays with size 1, and their indices (int64): the first "
    "NaN, or else the first of equal ones, which has the gradient.",
    kCheap);

// ---- nonzero --------------------------------------------------------------------------------------------------------

struct NonzeroOp {
  static Tensor forward(Inputs inputs, const Attributes&, Saved*) {
    const Tensor x = inputs[0].contiguous();
    const auto rank = static_cast<int64_t>(x.rank());
    Tensor out;
    dispatch(x.dtype(), [&]<typename T>(T) {
      int64_t count = 0;
      for_each_truth<T>(x, [&count](int64_t) { ++count; });
      out = Tensor::empty(Dtype::kInt64, Dims{count, rank});
      if (out.count() == 0) return;
      auto* index = out.mutable_data_as<int64_t>();
      for_each_truth<T>(x, [&index, &x, rank](int64_t place) {
        for (int64_t d = rank; d-- > 0; place /= x.shape()[static_cast<size_t>(d)]) {
          index[d] = place % x.shape()[static_cast<size_t>(d)];
        }
        index += rank;
      });
    });
    return out;
  }

 private:
  // Calls visit(i) for each element of a row-major x that is not 0.
  template <typename T, typename Visit>
  static void for_each_truth(const Tensor& x, Visit visit) {
    const T* data = x.data_as<T>();
    for (int64_t i = 0; i < x.count(); ++i) {
      if (data[i] != T(0)) visit(i);
    }
  }
};
constexpr Op kNonzero = make_op<NonzeroOp>(
    "nonzero(tensor x) -> tensor",
    "[n, dims of x]: the indices (int64) of the n elements that are not 0 (a NaN is not), in row-major order.", kCheap);

}  // namespace distag::ops
