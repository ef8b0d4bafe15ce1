// Products of matrices: matmul and linear.
#include "ops/broadcast.h"
#include "ops/builtins.h"
#include "ops/dispatch.h"
#include "ops/gemm.h"
#include "ops/reduce.h"
#include "ops/require.h"
#include "ops/views.h"

namespace distag::ops {

// ---- matmul ---------------------------------------------------------------------------------------------------------
namespace {

// Gives both sides at least two dims: a 1-d tensor is a row on the left, a column on the right.
Tensor left_side(const Tensor& a) { return a.rank() == 1 ? with_shape(a, Dims{1, a.count()}) : a; }
Tensor right_side(const Tensor& b) { return b.rank() == 1 ? with_shape(b, Dims{b.count(), 1}) : b; }

// The shape of a result or its gradient without the dims that 1-d sides added.
Dims without_sides(Dims shape, bool left_is_row, bool right_is_column) {
  if (right_is_column) shape.pop_back();
  if (left_is_row) {
    std::rotate(shape.end() - (right_is_column ? 1 : 2), shape.end() - (right_is_column ? 0 : 1), shape.end());
    shape.pop_back();
  }
  return shape;
}

Tensor swapped(const Tensor& x) { return transposed(x, x.rank() - 2, x.rank() - 1); }

// x [.., size] as a matrix [rows, size].
Tensor as_rows(const Tensor& x, int64_t size) {
  int64_t rows = 1;
  for (size_t i = 0; i + 1 < x.rank(); ++i) rows *= x.shape()[i];
  return with_shape(x, Dims{rows, size});
}

void check_matmul(const Tensor& a, const Tensor& b) {
  require(a.rank() != 0 && b.rank() != 0, "matmul: both sides need at least one dim, not {} and {}", a, b);
  int64_t left = a.shape().back();
  int64_t right = b.rank() == 1 ? b.shape()[0] : b.shape()[b.rank() - 2];
  require(left == right, "matmul: inner sizes {} and {} differ ({} x {})", left, right, a.shape(), b.shape());
}

}  // namespace

struct MatmulOp {
  static Tensor forward(Inputs inputs, const Attributes&, Saved* saved) {
    check_matmul(inputs[0], inputs[1]);
    Dtype dtype = promote(inputs[0].dtype(), inputs[1].dtype());
    Tensor a = as_dtype(inputs[0], dtype);
    Tensor b = as_dtype(inputs[1], dtype);
    Tensor y = product("matmul", left_side(a), right_side(b));
    if (saved != nullptr) {
      saved->tensors = {saved->needs(1) ? a.snapshot() : Tensor(), saved->needs(0) ? b.snapshot() : Tensor()};
      saved->shapes = {a.shape(), b.shape(), y.shape()};
      saved->dtypes = {inputs[0].dtype(), inputs[1].dtype()};
    }
    return with_shape(y, without_sides(y.shape(), a.rank() == 1, b.rank() == 1));
  }

  // da = g b^T, db = a^T g, summed over the batches that were broadcast.
  static Tensors backward(const Saved& saved, Tensor g) {
    Tensors result(2);
    g = with_shape(g, saved.shapes[2]);
    if (saved.needs(0)) {
      Tensor da = product("matmul", g, swapped(right_side(saved.tensors[1])));
      Dims side = saved.shapes[0];
      if (side.size() == 1) side = Dims{1, side[0]};
      result[0] = with_shape(reduce_to(da, side, saved.dtypes[0]), saved.shapes[0]);
    }
    if (saved.needs(1)) {
      Tensor a = left_side(saved.tensors[0]);
      Dims side = saved.shapes[1];
      if (side.size() == 1) side = Dims{side[0], 1};
      if (side.size() == 2 && a.rank() > 2) {
        // All batches share b, so they become more rows of one product.
        a = as_rows(a, side[0]);
        g = as_rows(g, side[1]);
      }
      Tensor db = product("matmul", swapped(a), g);
      result[1] = with_shape(reduce_to(db, side, saved.dtypes[1]), saved.shapes[1]);
    }
    return result;
  }
};
constexpr Op kMatmul = make_op<MatmulOp>(
    "matmul(tensor a, tensor b) -> tensor",
    "[.., n, k] times [.., k, m] gives [.., n, m], batches broadcast; a 1-d side is a row or column, dropped again.",
    kSeparable);

// ---- linear ---------------------------------------------------------------------------------------------------------

struct LinearOp {
  static Tensor forward(Inputs inputs, const Attributes&, Saved* saved) {
    Tensor bias = inputs.size() > 2 ? inputs[2] : Tensor();
    check_linear(inputs[0], inputs[1], bias);
    Dtype dtype = promote(inputs[0].dtype(), inputs[1].dtype());
    if (bias) dtype = promote(dtype, bias.dtype());
    Tensor weight = as_dtype(inputs[1], dtype);
    Tensor rows = as_rows(as_dtype(inputs[0], dtype), weight.shape()[1]);
    Dims shape = inputs[0].shape();
    shape[shape.size() - 1] = weight.shape()[0];
    Tensor y = Tensor::empty(dtype, shape);
    if (bias && y.count() > 0) assign(y, bias);
    if (y.count() > 0) {
      Tensor left = readable_by_blas(rows);
      Tensor right = readable_by_blas(transposed(weight, 0, 1));
      Matrix left_matrix;
      Matrix right_matrix;
      as_matrix(left, left_matrix);
      as_matrix(right, right_matrix);
      dispatch_numeric("linear", dtype, [&]<typename T>(T) {
        multiply<T>(y.mutable_data_as<T>(), left.data_as<T>(), left_matrix, right.data_as<T>(), right_matrix,
                    bias ? T(1) : T(0));
      });
    }
    if (saved != nullptr) {
      saved->tensors = {saved->needs(1) ? rows.snapshot() : Tensor(), saved->needs(0) ? weight.snapshot() : Tensor()};
      saved->shapes = {inputs[0].shape(), weight.shape()};
      for (const Tensor& input : inputs) saved->dtypes.push_back(input ? input.dtype() : dtype);
    }
    return y;
  }

  static Tensors backward(const Saved& saved, Tensor g) {
    Tensors result(saved.dtypes.size());
    const Dims& weight_shape = saved.shapes[1];
    g = as_rows(g, weight_shape[0]);
    if (saved.needs(0)) {
      result[0] = as_dtype(with_shape(product("linear", g, saved.tensors[1]), saved.shapes[0]), saved.dtypes[0]);
    }
    if (saved.needs(1)) result[1] = as_dtype(product("linear", transposed(g, 0, 1), saved.tensors[0]), saved.dtypes[1]);
    if (result.size() > 2 && saved.needs(2)) {
      result[2] = reduce_to(g, Dims{weight_shape[0]}, saved.dtypes[2]);
    }
    return result;
  }

 private:
  static void check_linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
    bool fits = x.rank() >= 1 && weight.rank() == 2 && x.shape().back() == weight.shape()[1] &&
                (!bias || (bias.rank() == 1 && bias.shape()[0] == weight.shape()[0]));
    require(fits, "linear: x {}, weight {}, bias {} do not fit: [.., in], [out, in] and [out] do", x, weight, bias);
  }
};
constexpr Op kLinear =
    make_op<LinearOp>("linear(tensor x, tensor weight, tensor? bias) -> tensor",
                      "x weight^T + bias: [.., in], [out, in] and [out] give [.., out].", kSeparable);

}  // namespace distag::ops
