// Ops that create tensors of numbers: zeros, ones, full, arange.
#include <cmath>

#include "ops/attributes.h"
#include "ops/builtins.h"
#include "ops/require.h"
#include "ops/rows.h"
#include "ops/unary.h"

namespace distag::ops {
namespace {

// Converts a number to an element; integers accept whole numbers only.
template <typename T>
T element_of(const char* op, double value) {
  if constexpr (kIsFloating<T>) {
    return static_cast<T>(value);
  } else if constexpr (std::is_same_v<T, Bool>) {
    return value != 0 ? 1 : 0;
  } else {
    require(is_int64(value), "{}: {} is no int64", op, value);
    return static_cast<T>(value);
  }
}

// The elements are the attribute "value", or kValue without it.
template <Name kName, int kValue>
struct FilledOp {
  static Tensor forward(Inputs, const Attributes& attributes, Saved*) {
    const double value = get_float(attributes, "value", kValue);
    Tensor out = Tensor::empty(get_dtype(attributes, "dtype", Dtype::kFloat32), get_dims(attributes, "shape"));
    dispatch(out.dtype(), [&]<typename T>(T) {
      const T element = element_of<T>(kName.text, value);
      if (out.count() > 0) std::fill_n(out.mutable_data_as<T>(), out.count(), element);
    });
    return out;
  }
};

}  // namespace

constexpr Op kZeros = make_op<FilledOp<"zeros", 0>>("zeros(int64[] shape = [], dtype dtype = float32) -> tensor",
                                                    "A tensor of the shape, filled with 0.");

constexpr Op kOnes = make_op<FilledOp<"ones", 1>>("ones(int64[] shape = [], dtype dtype = float32) -> tensor",
                                                  "A tensor of the shape, filled with 1.");

constexpr Op kFull =
    make_op<FilledOp<"full", 0>>("full(float64 value, int64[] shape = [], dtype dtype = float32) -> tensor",
                                 "A tensor of the shape, filled with value.");

struct ArangeOp {
  // start + i step, each computed from i, so that errors do not accumulate.
  static Tensor forward(Inputs, const Attributes& attributes, Saved*) {
    double start = get_float(attributes, "start", 0.0);
    double stop = get_float(attributes, "stop", 0.0);
    double step = get_float(attributes, "step", 1.0);
    require(step != 0 && std::isfinite(start) && std::isfinite(stop) && std::isfinite(step),
            "arange: start {}, stop {} and step {} must be finite, and step not 0", start, stop, step);
    double count = std::max(0.0, std::ceil((stop - start) / step));
    require(count < 0x1p60, "arange: from {} to {} by {} are too many", start, stop, step);
    Tensor out = Tensor::empty(get_dtype(attributes, "dtype", Dtype::kFloat32), Dims{static_cast<int64_t>(count)});
    dispatch_numeric("arange", out.dtype(), [&]<typename T>(T) {
      element_of<T>("arange", start);
      element_of<T>("arange", step);
      if (out.count() > 0) element_of<T>("arange", start + static_cast<double>(out.count() - 1) * step);
      const auto count_up = [](auto row, double first, double by) DISTAG_INLINE_LAMBDA {
        T* const to = row.data();
        const auto size = static_cast<int64_t>(row.size());
        for (int64_t i = 0; i < size; ++i) to[i] = static_cast<T>(first + static_cast<double>(i) * by);
      };
      if (out.count() > 0) for_rows(1, out.count(), count_up, Rows(out.mutable_data_as<T>()), Same(start), Same(step));
    });
    return out;
  }
};
constexpr Op kArange =
    make_op<ArangeOp>("arange(float64 start = 0, float64 stop, float64 step = 1, dtype dtype = float32) -> tensor",
                      "[n]: start + i * step in float64, then cast, for i from 0 below (stop - start) / step.");

}  // namespace distag::ops
