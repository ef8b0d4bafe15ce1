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

std::span<const int64_t> values_of(const Tensor& indices) {
  return {indices.data_as<int64_t>(), static_cast<size_t>(indices.count())};
}

// Row-major indices, all of them in [0, size).
Tensor checked_indices(const char* op, const Tensor& index, int64_t size) {
  require(index.dtype() == Dtype::kInt64, "{}: the index must be int64, not {}", op, index);
  Tensor indices = index.contiguous();
  const std::span<const int64_t> values = values_of(indices);
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
void add_row(Total* sums, const T* terms, const IndexRow& row) {
  Total* to = sums + row.first;
  for (int64_t i = 0; i < row.count; ++i) to[row.index[i] * row.step + i * row.side] += static_cast<Total>(terms[i]);
}

// Calls visit with the type of the elements: integers as uint64_t, which wraps around.
template <typename Visit>
void dispatch_terms(const char* op, Dtype dtype, Visit visit) {
  dtype == Dtype::kInt64 ? visit(uint64_t{}) : dispatch_floating(op, dtype, visit);
}

// Adds each term to the element of y at its index along dim. Sums of float32 are made in double and rounded once.
template <typename T>
Tensor with_terms(Tensor y, const Tensor& indices, const Tensor& terms, size_t dim) {
  const auto for_each_row = [&](auto add) {
    const T* in = terms.data_as<T>();
    for_each_index_row(indices, y.strides(), dim, [&](const IndexRow& row) {
      add(in, row);
      in += row.count;
    });
  };
  if (terms.count() == 0) return y;
  if (indices.shape()[dim] == 1) {
    T* const out = y.mutable_data_as<T>();
    for_each_row([out](const T* in, const IndexRow& row) { add_row(out, in, row); });
  } else if (dim + 1 == y.rank()) {  // each row has sums of its own
    T* const out = y.mutable_data_as<T>();
    RowSums<T> sums(y.shape()[dim]);
    for_each_row([&sums, out](const T* in, IndexRow row) {
      T* const to = out + std::exchange(row.first, 0);
      add_row(sums.start(to), in, row);
      sums.round_to(to);
    });
  } else {
    RowSums<T> sums(y.count());
    auto* const totals = sums.start(y.data_as<T>());
    for_each_row([totals](const T* in, const IndexRow& row) { add_row(totals, in, row); });
    sums.round_to(y.mutable_data_as<T>());
  }
  return y;
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
    Tensor result;
    dispatch_floating("gather", g.dtype(), [&]<typename T>(T) {
      result =
          with_terms<T>(zero_tensor(g.dtype(), saved.shapes[0]), saved.tensors[0], g.contiguous(), saved_dim(saved));
    });
    return {result, Tensor()};
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

// The positions of each index in a list, in order.
class Occurrences {
 public:
  // All indices are in [0, size).
  Occurrences(std::span<const int64_t> values, int64_t size)
      : ends_(static_cast<size_t>(size)), positions_(values.size()) {
    for (const int64_t index : values) ++ends_[static_cast<size_t>(index)];
    int64_t before = 0;
    for (int64_t& end : ends_) before += std::exchange(end, before);
    for (size_t i = 0; i < values.size(); ++i) {
      positions_[static_cast<size_t>(ends_[static_cast<size_t>(values[i])]++)] = static_cast<int64_t>(i);
    }
  }
  std::span<const int64_t> of(size_t index) const {
    const auto begin = static_cast<size_t>(index == 0 ? 0 : ends_[index - 1]);
    return std::span(positions_).subspan(begin, static_cast<size_t>(ends_[index]) - begin);
  }

 private:
  std::vector<int64_t> ends_;
  std::vector<int64_t> positions_;
};

template <typename T, typename Total>
void add_slab(Total* sums, const T* terms, int64_t inner) {
  for (int64_t k = 0; k < inner; ++k) sums[k] += static_cast<Total>(terms[k]);
}

// y[i, :] += the terms of index i, of which only those that are several need sums of their own.
template <typename T>
void add_grouped(T* y, const T* terms, const Slabs& slabs, const Occurrences& occurrences, RowSums<T>& sums) {
  for (int64_t i = 0; i < slabs.size; ++i, y += slabs.inner) {
    const std::span<const int64_t> positions = occurrences.of(static_cast<size_t>(i));
    if (positions.size() == 1) {
      add_slab(y, terms + positions[0] * slabs.inner, slabs.inner);
    } else if (!positions.empty()) {
      auto* const totals = sums.start(y);
      for (const int64_t position : positions) add_slab(totals, terms + position * slabs.inner, slabs.inner);
      sums.round_to(y);
    }
  }
}

constexpr int64_t kLeastGrouped = 8;  // elements of a slab; smaller ones are added faster in the order of the terms

// y[o, indices[i], :] += terms[o, i, :], with the same sums.
Tensor with_slabs(const char* op, Tensor y, const Tensor& indices, const Tensor& terms, size_t dim) {
  if (terms.count() == 0) return y;
  const Slabs slabs(y.shape(), dim);
  const bool is_grouped = slabs.inner >= kLeastGrouped;
  const Occurrences occurrences(is_grouped ? values_of(indices) : std::span<const int64_t>(),
                                is_grouped ? slabs.size : 0);
  dispatch_terms(op, y.dtype(), [&]<typename T>(T) {
    T* to = y.mutable_data_as<T>();
    const T* in = terms.data_as<T>();
    const auto* const index = indices.data_as<int64_t>();
    RowSums<T> sums(is_grouped ? slabs.inner : slabs.size * slabs.inner);
    for (int64_t o = 0; o < slabs.outer; ++o, in += indices.count() * slabs.inner, to += slabs.size * slabs.inner) {
      if (is_grouped) {
        add_grouped(to, in, slabs, occurrences, sums);
        continue;
      }
      auto* const totals = sums.start(to);
      for (int64_t i = 0; i < indices.count(); ++i) {
        add_slab(totals + index[i] * slabs.inner, in + i * slabs.inner, slabs.inner);
      }
      sums.round_to(to);
    }
  });
  return y;
}

// The gradients of equal indices, added.
Tensor added_slabs(const char* op, const Tensor& g, const Saved& saved, size_t dim) {
  return with_slabs(op, zero_tensor(g.dtype(), saved.shapes[0]), saved.tensors[0], g.contiguous(), dim);
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
    save_indices(saved, indices, terms.shape(), dim);
    return with_slabs("index_add", x.clone(), indices, terms, dim);
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
    const Tensor terms = leading_part(source, index.shape()).contiguous();
    Tensor y = x.clone();
    dispatch_terms("scatter_add", x.dtype(), [&]<typename T>(T) { y = with_terms<T>(y, indices, terms, dim); });
    save_indices(saved, indices, source.shape(), dim);
    return y;
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
