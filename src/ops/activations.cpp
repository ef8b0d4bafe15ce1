// Elementwise functions of one tensor. The gradients of exp, sqrt and relu follow from the result; those of log, tanh
// and sigmoid from the argument, which has digits that the result has lost.
#include "ops/builtins.h"
#include "ops/math.h"
#include "ops/unary.h"

namespace distag::ops {

constexpr Op kExp = of_result<"exp", [](const auto& x) { return each(math::Exp(), x); },
                              [](const auto& g, const auto& y) { return g * y; }>(
    "exp(tensor x) -> tensor", "e to the power of each element, in the shape of x.");

constexpr Op kLog = of_argument<"log", [](const auto& x) { return each(math::Log(), x); },
                                [](const auto& g, const auto& x) { return g / x; }>(
    "log(tensor x) -> tensor", "The natural logarithm of each element, in the shape of x.");

constexpr Op kSqrt = of_result<"sqrt", [](const auto& x) { return xt::sqrt(x); },
                               [](const auto& g, const auto& y) { return g / (y + y); }>(
    "sqrt(tensor x) -> tensor", "The square root of each element, in the shape of x.");

constexpr Op kTanh = of_argument<"tanh", [](const auto& x) { return each(math::Tanh(), x); },
                                 [](const auto& g, const auto& x) { return g * each(math::TanhSlope(), x); }>(
    "tanh(tensor x) -> tensor", "The hyperbolic tangent of each element, in the shape of x.");

constexpr Op kSigmoid = of_argument<"sigmoid", [](const auto& x) { return each(math::Sigmoid(), x); },
                                    [](const auto& g, const auto& x) { return g * each(math::SigmoidSlope(), x); }>(
    "sigmoid(tensor x) -> tensor", "1 / (1 + exp(-x)) of each element, in the shape of x.");

// ---- relu: a NaN stays, forward and backward; integers stay integers ------------------------------------------------

struct ReluOp {
  static Tensor forward(Inputs inputs, const Attributes&, Saved* saved) {
    Tensor y = Tensor::empty(inputs[0].dtype(), inputs[0].shape());
    dispatch_numeric("relu", y.dtype(), [&]<typename T>(T) { compute_alike<T>(y, kReluOf, inputs[0]); });
    if (saved != nullptr) saved->tensors = {y.snapshot()};
    return y;
  }
  static Tensor backward(const Saved& saved, const Tensor& g) {
    return gradient_by("relu", kReluGradient, g, saved.tensors[0]);
  }

 private:
  static constexpr auto kReluOf = [](const auto& x) { return select(x < 0, Element<decltype(x)>(0), x); };
  static constexpr auto kReluGradient = [](const auto& g, const auto& y) {
    return select(y <= 0, Element<decltype(g)>(0), g);
  };
};
constexpr Op kRelu =
    make_op<ReluOp>("relu(tensor x) -> tensor", "max(x, 0) of each element, in the shape of x; its gradient at 0 is 0.",
                    kCheap | kOnePass);

}  // namespace distag::ops
