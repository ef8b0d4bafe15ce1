// Ops that choose elements by an index, or add to such elements: gather, index_select, embedding, index_add,
// scatter_add; and one_hot.
#include <algorithm>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "base/error.h"
#include "ops/attributes.h"
#include "ops/binary.h"
#include "ops/builtins.h"
#include "ops/reduce.h"
#include "ops/require.h"
#include "ops/rows.h"
#include "ops/views.h"

namespace distag::ops {
namespace {

// Row-major indices, all of them in [0, size).
Tensor checked_indices(const char* op, const Tensor& index, int64_t size) {
  require(index.dtype() == Dtype::kInt64, "{}: the index must be int64, not {}", op, index);
  Tensor indices = index.contiguous();
  const std::span<const int64_t> values(indices.data_as<int64_t>(), static_cast<size_t>(indices.count()));
  uint64_t largest = 0;  // as uint64, a negative index is larger than any size
  for_rows(
      1, indices.count(),
      [](uint64_t& most, const auto& row)
          DISTAG_INLINE_LAMBDA { most = reduced<Maximum<uint64_t>>(xt::cast<uint64_t>(row)); },
      OfEach(&largest), Rows(values.data()));
  if (values.empty() || largest < static_cast<uint64_t>(size)) return indices;
  const auto bad = std::find_if(values.begin(), values.end(), [size](int64_t i) { return i < 0 || i >= size; });
  fail(Status::kInvalidArgument, "{}: index {} out of range [0, {})", op, *bad, size);
}

void save_indices(Saved* saved, const Tensor& indices, const Dims& shape, size_t dim) {
  if (saved == nullptr) return;
  saved->tensors = {indices.snapshot()};
  saved->shapes = {shape, Dims{static_cast<int64_t>(dim)}};
}

size_t saved_dim(const Saved& saved) { return static_cast<size_t>(saved.shapes[1][0]); }

// ---- gather ---------------------------------------------------------------------------------------------------------

// A row of an index, along its last dim. Element i of the row selects the element of x at first + index[i] step + i
// side.
struct IndexRow {
  const int64_t* index;
  int64_t count;
  int64_t first;
  int64_t step;
  int64_t side;  // 0 if the index is along the last dim itself
};

// Calls visit(row) for each row of a row-major index, in order.
template <typename Visit>
void for_each_index_row(const Tensor& indices, const Dims& x_strides, size_t dim, Visit visit) {
  if (indices.count() == 0) return;
  const size_t last = indices.rank() - 1;
  IndexRow row{indices.data_as<int64_t>(), indices.shape()[last], 0, x_strides[dim], dim == last ? 0 : x_strides[last]};
  Dims position;
  position.resize(last);
  for (int64_t rows = indices.count() / row.count; rows > 0; --rows, row.index += row.count) {
    visit(row);
    for (size_t d = last; d-- > 0;) {
      if (d != dim) row.first += x_strides[d];
      if (++position[d] < indices.shape()[d]) break;
      if (d != dim) row.first -= x_strides[d] * indices.shape()[d];
      position[d] = 0;
    }
  }
}

template <typename T>
void take_row(T* out, const T* x, const IndexRow& row) {
  const T* from = x + row.first;
  if (row.side == 0 && row.step == 1) {
    const int64_t* const index = row.index;
    for (int64_t i = 0, count = row.count; i < count; ++i) out[i] = from[index[i]];
  } else {
    for (int64_t i = 0; i < row.count; ++i) out[i] = from[row.index[i] * row.step + i * row.side];
  }
}

template <typename T, typename Total>
void add_row(Total* sums, const T* g, const IndexRow& row) {
  Total* to = sums + row.first;
  for (int64_t i = 0; i < row.count; ++i) to[row.index[i] * row.step + i * row.side] += static_cast<Total>(g[i]);
}

// The same along the last dim, where each row has separate sums: they are kept in `sums` until they are rounded.
template <typename T, typename Total>
void add_last_row(T* out, std::vector<Total>& sums, const T* g, IndexRow row) {
  std::fill(sums.begin(), sums.end(), Total(0));
  const auto size = static_cast<int64_t>(sums.size());
  T* to = out + std::exchange(row.first, 0);
  add_row(sums.data(), g, row);
  for (int64_t i = 0; i < size; ++i) to[i] = static_cast<T>(sums[static_cast<size_t>(i)]);
}

// The elements of x at `indices` along dim, in the shape of `indices`.
Tensor gathered(const Tensor& x, const Tensor& indices, size_t dim) {
  Tensor y = Tensor::empty(x.dtype(), indices.shape());
  if (y.count() == 0) return y;
  dispatch(x.dtype(), [&]<typename T>(T) {
    T* out = y.mutable_data_as<T>();
    const T* in = x.data_as<T>();
    for_each_index_row(indices, x.strides(), dim, [&](const IndexRow& row) {
      take_row(out, in, row);
      out += row.count;
    });
  });
  return y;
}

}  // namespace

struct GatherOp {
  static Tensor forward(Inputs inputs, const Attributes& attributes, Saved* saved) {
    const Tensor& x = inputs[0];
    const Tensor& index = inputs[1];
    size_t dim = checked_dim("gather", get_int(attributes, "dim", 0), x);
    bool fits = x.rank() > 0 && index.rank() == x.rank();
    for (size_t d = 0; d < x.rank() && fits; ++d) fits = d == dim || index.shape()[d] <= x.shape()[d];
    require(fits, "gather: index {} does not fit {}", index, x);
    Tensor indices = checked_indices("gather", index, x.shape()[dim]);
    Tensor y = gathered(x, indices, dim);
    save_indices(saved, indices, x.shape(), dim);
    return y;
  }

  static Tensors backward(const Saved& saved, Tensor g) {
    g = g.contiguous();
    auto dim = saved_dim(saved);
    const Dims& shape = saved.shapes[0];
    const Dtype total = sum_dtype(g.dtype(), g.shape()[dim]);
    const bool is_last = dim + 1 == shape.size();
    Dims reached = g.shape();
    reached[dim] = shape[dim];
    const bool is_everywhere = is_last && g.count() > 0 && reached == shape;
    Tensor sums = is_everywhere ? Tensor::empty(g.dtype(), shape) : zero_tensor(is_last ? g.dtype() : total, shape);
    dispatch_sum("gather", g.dtype(), total, [&]<typename T, typename Total>(T, Total) {
      const T* in = g.data_as<T>();
      T* const rounded = is_last ? sums.mutable_data_as<T>() : nullptr;
      Total* const totals = is_last ? nullptr : sums.mutable_data_as<Total>();
      std::vector<Total> beside(is_last ? static_cast<size_t>(shape[dim]) : 0);
      for_each_index_row(saved.tensors[0], sums.strides(), dim, [&](const IndexRow& row) {
        is_last ? add_last_row(rounded, beside, in, row) : add_row(totals, in, row);
        in += row.count;
      });
    });
    return {as_dtype(sums, g.dtype()), Tensor()};
  }
};
constexpr Op kGather =
    make_op<GatherOp>("gather(tensor x, tensor index, int64 dim) -> tensor",
                      "The elements of x at index (int64) along dim, in the shape of index.", kCheap);

// ---- index_select, embedding ----------------------------------------------------------------------------------------

namespace {

// y[o, i, :] = x[o, indices[i], :], in `shape`.
Tensor taken_slabs(const Tensor& from, const Tensor& indices, size_t dim, const Dims& shape) {
  const Tensor x = from.contiguous();
  Tensor y = Tensor::empty(x.dtype(), shape);
  if (y.count() == 0) return y;
  const Slabs slabs(x.shape(), dim);
  const size_t bytes = static_cast<size_t>(slabs.inner) * dtype_size(x.dtype());
  std::byte* out = y.mutable_data();
  const auto* index = indices.data_as<int64_t>();
  for (int64_t o = 0; o < slabs.outer; ++o) {
    for (int64_t i = 0; i < indices.count(); ++i, out += bytes) {
      std::memcpy(out, x.data() + static_cast<size_t>(o * slabs.size + index[i]) * bytes, bytes);
    }
  }
  return y;
}

// The number of occurrences of the most frequent index.
int64_t most_frequent(const Tensor& indices, int64_t size) {
  std::vector<int64_t> counts(static_cast<size_t>(size));
  int64_t most = 0;
  for (int64_t i = 0; i < indices.count(); ++i) {
    most = std::max(most, ++counts[static_cast<size_t>(indices.data_as<int64_t>()[i])]);
  }
  return most;
}

// Calls visit with the types of terms and of their sums: those of dispatch_sum, or for integers uint64_t, which wraps
// around.
template <typename Visit>
void dispatch_terms(const char* op, Dtype dtype, Dtype sum, Visit visit) {
  if (dtype == Dtype::kInt64) return visit(uint64_t{}, uint64_t{});
  dispatch_sum(op, dtype, sum, visit);
}

// sums[o, indices[i], :] += terms[o, i, :]
void add_slabs(const char* op, Tensor& sums, const Tensor& terms, const Tensor& indices, size_t dim) {
  if (terms.count() == 0) return;
  const Slabs slabs(sums.shape(), dim);
  dispatch_terms(op, terms.dtype(), sums.dtype(), [&]<typename T, typename Total>(T, Total) {
    Total* out = sums.mutable_data_as<Total>();
    const T* in = terms.data_as<T>();
    for (int64_t o = 0; o < slabs.outer; ++o) {
      for (int64_t i = 0; i < indices.count(); ++i, in += slabs.inner) {
        Total* target = out + (o * slabs.size + indices.data_as<int64_t>()[i]) * slabs.inner;
        for (int64_t k = 0; k < slabs.inner; ++k) target[k] += static_cast<Total>(in[k]);
      }
    }
  });
}

// The gradients of equal indices, added.
Tensor added_slabs(const char* op, const Tensor& gradient, const Saved& saved, size_t dim) {
  const Tensor g = gradient.contiguous();
  const Dims& shape = saved.shapes[0];
  if (g.count() == 0) return zero_tensor(g.dtype(), shape);
  const Tensor& indices = saved.tensors[0];
  Tensor sums = zero_tensor(sum_dtype(g.dtype(), most_frequent(indices, shape[dim])), shape);
  add_slabs(op, sums, g, indices, dim);
  return as_dtype(sums, g.dtype());
}

}  // namespace

struct IndexSelectOp {
  static Tensor forward(Inputs inputs, const Attributes& attributes, Saved* saved) {
    const Tensor& x = inputs[0];
    size_t dim = checked_dim("index_select", get_int(attributes, "dim", 0), x);
    require(x.rank() != 0 && inputs[1].rank() == 1, "index_select: index {} is not 1-d, or {} has no dims", inputs[1],
            x);
    Tensor indices = checked_indices("index_select", inputs[1], x.shape()[dim]);
    Dims shape = x.shape();
    shape[dim] = indices.count();
    save_indices(saved, indices, x.shape(), dim);
    return taken_slabs(x, indices, dim, shape);
  }
  static Tensors backward(const Saved& saved, Tensor g) {
    return {added_slabs("index_select", g, saved, saved_dim(saved)), Tensor()};
  }
};
constexpr Op kIndexSelect =
    make_op<IndexSelectOp>("index_select(tensor x, tensor index, int64 dim = 0) -> tensor",
                           "The parts of x that index (int64, [n]) names along dim, which gets the size n.");

struct EmbeddingOp {
  static Tensor forward(Inputs inputs, const Attributes&, Saved* saved) {
    const Tensor& weight = inputs[1];
    require(weight.rank() == 2, "embedding: weight {} is not [rows, size]", weight);
    Tensor indices = checked_indices("embedding", inputs[0], weight.shape()[0]);
    Dims shape = indices.shape();
    shape.push_back(weight.shape()[1]);
    save_indices(saved, indices, weight.shape(), 0);
    return taken_slabs(weight, indices, 0, shape);
  }
  static Tensors backward(const Saved& saved, Tensor g) { return {Tensor(), added_slabs("embedding", g, saved, 0)}; }
};
constexpr Op kEmbedding =
    make_op<EmbeddingOp>("embedding(tensor index, tensor weight) -> tensor",
                         "The rows of weight [rows, size] that index (int64) names: the shape of index, then size.");

// ---- index_add, scatter_add -----------------------------------------------------------------------------------------

namespace {

void check_adds(const char* op, const Tensor& x, const Tensor& index, const Tensor& source, bool fits) {
  if (x.dtype() == Dtype::kBool) {
    fail(Status::kUnsupported, "{}: dtype bool is not supported: use float32, float64 or int64", op);
  }
  require(fits && source.dtype() == x.dtype(), "{}: index {} and source {} do not fit {}", op, index, source, x);
}

// A copy of x in the dtype in which `terms` numbers are added to each element.
Tensor started_sums(const Tensor& x, int64_t terms) {
  Tensor sums = x.clone();
  return x.dtype() == Dtype::kInt64 ? sums : as_dtype(sums, sum_dtype(x.dtype(), terms));
}

// The leading elements of a tensor, in a shape that is no larger in any dim.
Tensor leading_part(const Tensor& x, const Dims& shape) { return x.view(shape, x.strides(), x.offset()); }

}  // namespace

struct IndexAddOp {
  static Tensor forward(Inputs inputs, const Attributes& attributes, Saved* saved) {
    const Tensor& x = inputs[0];
    const size_t dim = checked_dim("index_add", get_int(attributes, "dim", 0), x);
    const bool has_dims = x.rank() > 0 && inputs[1].rank() == 1;
    Dims wanted = x.shape();
    if (has_dims) wanted[dim] = inputs[1].count();
    check_adds("index_add", x, inputs[1], inputs[2], has_dims && inputs[2].shape() == wanted);
    const Tensor indices = checked_indices("index_add", inputs[1], x.shape()[dim]);
    const Tensor terms = inputs[2].contiguous();
    const bool are_many = terms.count() > 0 && indices.count() >= kMostSummedPlainly;
    Tensor sums = started_sums(x, are_many ? most_frequent(indices, x.shape()[dim]) + 1 : 0);
    add_slabs("index_add", sums, terms, indices, dim);
    save_indices(saved, indices, terms.shape(), dim);
    return as_dtype(sums, x.dtype());
  }

  static Tensors backward(const Saved& saved, Tensor g) {
    Tensors result(3);
    if (saved.needs(0)) result[0] = g;
    if (!saved.needs(2)) return result;
    result[2] = taken_slabs(g, saved.tensors[0], saved_dim(saved), saved.shapes[0]);
    return result;
  }
};
constexpr Op kIndexAdd =
    make_op<IndexAddOp>("index_add(tensor x, tensor index, tensor source, int64 dim = 0) -> tensor",
                        "x, with each part of source along dim added to that which index (int64, [n]) names.");

struct ScatterAddOp {
  static Tensor forward(Inputs inputs, const Attributes& attributes, Saved* saved) {
    const Tensor& x = inputs[0];
    const Tensor& index = inputs[1];
    const Tensor& source = inputs[2];
    const size_t dim = checked_dim("scatter_add", get_int(attributes, "dim", 0), x);
    bool fits = x.rank() > 0 && index.rank() == x.rank() && source.rank() == x.rank();
    for (size_t d = 0; d < x.rank() && fits; ++d) {
      fits = index.shape()[d] <= source.shape()[d] && (d == dim || index.shape()[d] <= x.shape()[d]);
    }
    check_adds("scatter_add", x, index, source, fits);
    const Tensor indices = checked_indices("scatter_add", index, x.shape()[dim]);
    Tensor sums = started_sums(x, indices.count() > 0 ? index.shape()[dim] : 0);
    const Tensor terms = leading_part(source, index.shape()).contiguous();
    dispatch_terms("scatter_add", x.dtype(), sums.dtype(), [&]<typename T, typename Total>(T, Total) {
      if (terms.count() == 0) return;
      const T* in = terms.data_as<T>();
      Total* const out = sums.mutable_data_as<Total>();
      for_each_index_row(indices, sums.strides(), dim, [&](const IndexRow& row) {
        add_row(out, in, row);
        in += row.count;
      });
    });
    save_indices(saved, indices, source.shape(), dim);
    return as_dtype(sums, x.dtype());
  }

  static Tensors backward(const Saved& saved, Tensor g) {
    Tensors result(3);
    if (saved.needs(0)) result[0] = g;
    if (!saved.needs(2)) return result;
    const Tensor& indices = saved.tensors[0];
    result[2] = gathered(g, indices, saved_dim(saved));
    if (indices.shape() == saved.shapes[0]) return result;
    Tensor whole = zero_tensor(g.dtype(), saved.shapes[0]);
    write_part(whole, leading_part(whole, indices.shape()), result[2]);
    result[2] = whole;
    return result;
  }
};
constexpr Op kScatterAdd = make_op<ScatterAddOp>(
    "scatter_add(tensor x, tensor index, tensor source, int64 dim) -> tensor",
    "x, with each element of source, up to the shape of index, added at index (int64) along dim.");

// ---- one_hot --------------------------------------------------------------------------------------------------------

struct OneHotOp {
  static Tensor forward(Inputs inputs, const Attributes& attributes, Saved*) {
    const int64_t classes = get_int(attributes, "num_classes", 0);
    require(classes >= 1 && classes <= kMostClasses, "one_hot: num_classes {} is not from 1 to {}", classes,
            kMostClasses);
    const Tensor indices = checked_indices("one_hot", inputs[0], classes);
    Dims shape = indices.shape();
    shape.push_back(classes);
    Tensor y = zero_tensor(Dtype::kInt64, shape);
    for (int64_t i = 0; i < indices.count(); ++i) {
      y.mutable_data_as<int64_t>()[i * classes + indices.data_as<int64_t>()[i]] = 1;
    }
    return y;
  }

 private:
  static constexpr int64_t kMostClasses = int64_t{1} << 24;
};
constexpr Op kOneHot = make_op<OneHotOp>(
    "one_hot(tensor index, int64 num_classes) -> tensor",
    "1 at each index (int64) of num_classes, else 0, as int64: the shape of index, then num_classes.");

}  // namespace distag::ops
