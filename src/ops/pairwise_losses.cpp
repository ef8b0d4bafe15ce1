// Losses of pairs of elements: mse_loss, l1_loss, binary_cross_entropy_with_logits. Inputs are broadcast and promoted.
#include <cmath>

#include "ops/attributes.h"
#include "ops/binary.h"
#include "ops/builtins.h"
#include "ops/loss_reduction.h"
#include "ops/math.h"
#include "ops/reduce.h"
#include "ops/unary.h"

namespace distag::ops {
namespace {

// A Loss has expressions of rows a and b: value, and slope_in_a and slope_in_b, to be multiplied by kSlopeFactor.
template <Name kName, typename Loss>
struct PairwiseLoss {
  static Tensors forward(std::span<const Tensor> inputs, const Attributes& attributes, Saved* saved) {
    LossReduction reduction = loss_reduction(kName.text, attributes);
    Pair pair(kName.text, inputs);
    Tensor losses = Tensor::empty(pair.dtype(), pair.shape);
    dispatch_floating(kName.text, pair.dtype(),
                      [&]<typename T>(T) { compute_alike<T>(losses, Loss::value, pair.a, pair.b); });
    double divisor = reduction == LossReduction::kOfTheMean ? static_cast<double>(losses.count()) : 1.0;
    if (saved != nullptr) {
      save_kinds(saved, inputs);
      saved->tensors = {pair.a.snapshot(), pair.b.snapshot(),
                        Tensor::scalar(pair.dtype(), Loss::kSlopeFactor / divisor)};
      saved->shapes.push_back(pair.shape);
    }
    if (reduction == LossReduction::kOfEach) return {losses};
    DimSet all;
    all.set();
    return {reduction == LossReduction::kOfTheMean ? mean_over(losses, all, Dims()) : sum_over(losses, all, Dims())};
  }

  static Tensors backward(const Saved& saved, Tensors gradients) {
    Tensors result(2);
    if (!gradients[0]) return result;
    if (saved.needs(0)) result[0] = gradient(saved, 0, Loss::slope_in_a, gradients[0]);
    if (saved.needs(1)) result[1] = gradient(saved, 1, Loss::slope_in_b, gradients[0]);
    return result;
  }

 private:
  // The division of a mean first: a slope times the gradient may be too large for the dtype where the mean is not.
  template <typename Slope>
  static Tensor gradient(const Saved& saved, size_t input, Slope slope, const Tensor& g) {
    const Tensor& factor = saved.tensors[2];
    Tensor out = Tensor::empty(factor.dtype(), saved.shapes[2]);
    dispatch_floating(kName.text, out.dtype(), [&]<typename T>(T) {
      const T number = *factor.data_as<T>();
      const auto scaled = [slope, number](const auto& a, const auto& b, const auto& grad) {
        return slope(a, b) * number * grad;
      };
      compute_alike<T>(out, scaled, saved.tensors[0], saved.tensors[1], g);
    });
    return gradient_of(saved, input, out);
  }
};

template <Name kName, typename Loss>
constexpr Op of_pairs(const char* signature, const char* summary) {
  return elementwise_op<PairwiseLoss<kName, Loss>>(kName.text, signature, summary);
}

// Slopes are those of half the numbers, whose difference is never too large.
struct SquaredDifference {
  static constexpr double kSlopeFactor = 4;
  static constexpr auto value = [](const auto& a, const auto& b) { return (a - b) * (a - b); };
  static constexpr auto slope_in_a = [](const auto& a, const auto& b) {
    using T = Element<decltype(a)>;
    return a * T(0.5) - b * T(0.5);
  };
  static constexpr auto slope_in_b = [](const auto& a, const auto& b) { return slope_in_a(b, a); };
};

struct AbsoluteDifference {
  static constexpr double kSlopeFactor = 1;
  static constexpr auto value = [](const auto& a, const auto& b) { return xt::fabs(a - b); };
  static constexpr auto slope_in_a = [](const auto& a, const auto& b) {
    using T = Element<decltype(a)>;
    return select(a > b, T(1), select(a < b, T(-1), T(0)));
  };
  static constexpr auto slope_in_b = [](const auto& a, const auto& b) { return slope_in_a(b, a); };
};

// -t log(sigmoid(x)) - (1 - t) log(1 - sigmoid(x)), without overflow.
struct LogitCrossEntropy {
  struct Value {
    template <typename T>
    DISTAG_INLINE T operator()(T x, T t) const {
      const T share = x > T(0) ? T(1) - t : -t;
      return (share == T(0) ? T(0) : x * share) + math::log1p_up_to_1(math::exp_not_positive(-std::fabs(x)));
    }
  };
  static constexpr double kSlopeFactor = 1;
  static constexpr auto value = [](const auto& x, const auto& t) { return each(Value(), x, t); };
  static constexpr auto slope_in_a = [](const auto& x, const auto& t) { return each(math::Sigmoid(), x) - t; };
  static constexpr auto slope_in_b = [](const auto& x, const auto&) { return -x; };
};

}  // namespace

constexpr Op kMseLoss =
    of_pairs<"mse_loss", SquaredDifference>("mse_loss(tensor a, tensor b, text reduction = mean) -> tensor",
                                            "(a - b)^2, elementwise, shapes broadcast; reduced by mean, sum or none.");

constexpr Op kL1Loss =
    of_pairs<"l1_loss", AbsoluteDifference>("l1_loss(tensor a, tensor b, text reduction = mean) -> tensor",
                                            "|a - b|, elementwise, shapes broadcast; reduced by mean, sum or none.");

constexpr Op kBinaryCrossEntropyWithLogits = of_pairs<"binary_cross_entropy_with_logits", LogitCrossEntropy>(
    "binary_cross_entropy_with_logits(tensor logits, tensor targets, text reduction = mean) -> tensor",
    "-(t log(s) + (1 - t) log(1 - s)) with s = sigmoid(logits) and targets t, elementwise, shapes broadcast; reduced "
    "by "
    "mean, sum or none.");

}  // namespace distag::ops
