// Losses of pairs of elements: mse_loss, l1_loss, binary_cross_entropy_with_logits. Inputs are broadcast and promoted.
#include <cmath>

#include "ops/attributes.h"
#include "ops/binary.h"
#include "ops/builtins.h"
#include "ops/loss_reduction.h"
#include "ops/math.h"
#include "ops/reduce.h"

namespace distag::ops {
namespace {

// Of a Loss with value(a, b) and the slopes of it in a and b, each as an elementwise function and to be multiplied by
// kSlopeFactor.
template <typename Loss>
Tensors loss_forward(const char* op, std::span<const Tensor> inputs, const Attributes& attributes, Saved* saved) {
  LossReduction reduction = loss_reduction(op, attributes);
  Pair pair(op, inputs);
  Tensor losses = Tensor::empty(pair.dtype(), pair.shape);
  dispatch_floating(op, pair.dtype(),
                    [&]<typename T>(T) { binary_into<typename Loss::Value, T, T, T>(losses, pair.a, pair.b); });
  double divisor = reduction == LossReduction::kOfTheMean ? static_cast<double>(losses.count()) : 1.0;
  if (saved != nullptr) {
    save_kinds(saved, inputs);
    saved->tensors = {pair.a.snapshot(), pair.b.snapshot(), Tensor::scalar(pair.dtype(), Loss::kSlopeFactor / divisor)};
    saved->shapes.push_back(pair.shape);
  }
  if (reduction == LossReduction::kOfEach) return {losses};
  DimSet all;
  all.set();
  return {reduction == LossReduction::kOfTheMean ? mean_over(losses, all, Dims()) : sum_over(losses, all, Dims())};
}

template <typename Loss>
Tensors loss_backward(const char* op, const Saved& saved, Tensors gradients) {
  Tensors result(2);
  if (!gradients[0]) return result;
  const Tensor& factor = saved.tensors[2];
  for (size_t i = 0; i < 2; ++i) {
    if (!saved.needs(i)) continue;
    Tensor slope = Tensor::empty(factor.dtype(), saved.shapes[2]);
    dispatch_floating(op, slope.dtype(), [&]<typename T>(T) {
      if (i == 0) {
        binary_into<typename Loss::FirstSlope, T, T, T>(slope, saved.tensors[0], saved.tensors[1]);
      } else {
        binary_into<typename Loss::SecondSlope, T, T, T>(slope, saved.tensors[0], saved.tensors[1]);
      }
    });
    // The division of a mean first: a slope times the gradient may be too large for the dtype where the mean is not.
    slope = combine<MulOf>(op, slope, factor);
    result[i] = gradient_of(saved, i, combine<MulOf>(op, slope, gradients[0]));
  }
  return result;
}

// ---- mse_loss -------------------------------------------------------------------------------------------------------

struct SquaredDifference {
  // Slopes are those of half the numbers, whose difference is never too large.
  static constexpr double kSlopeFactor = 4;
  struct Value {
    template <typename T>
    DISTAG_INLINE static T apply(T a, T b) {
      return (a - b) * (a - b);
    }
  };
  struct FirstSlope {
    template <typename T>
    DISTAG_INLINE static T apply(T a, T b) {
      return a * T(0.5) - b * T(0.5);
    }
  };
  struct SecondSlope {
    template <typename T>
    DISTAG_INLINE static T apply(T a, T b) {
      return b * T(0.5) - a * T(0.5);
    }
  };
};

Tensors mse_loss_forward(std::span<const Tensor> inputs, const Attributes& attributes, Saved* saved) {
  return loss_forward<SquaredDifference>("mse_loss", inputs, attributes, saved);
}

Tensors mse_loss_backward(const Saved& saved, Tensors gradients) {
  return loss_backward<SquaredDifference>("mse_loss", saved, std::move(gradients));
}

}  // namespace

constexpr Op kMseLoss{.name = "mse_loss",
                      .signature = "mse_loss(tensor a, tensor b, text reduction = mean) -> tensor",
                      .summary = "(a - b)^2, elementwise, shapes broadcast; reduced by mean, sum or none.",
                      .forward = mse_loss_forward,
                      .backward = mse_loss_backward,
                      .is_cheap = true};

// ---- l1_loss --------------------------------------------------------------------------------------------------------

namespace {

struct AbsoluteDifference {
  static constexpr double kSlopeFactor = 1;
  struct Value {
    template <typename T>
    DISTAG_INLINE static T apply(T a, T b) {
      return std::fabs(a - b);
    }
  };
  struct FirstSlope {
    template <typename T>
    DISTAG_INLINE static T apply(T a, T b) {
      return a > b ? T(1) : a < b ? T(-1) : T(0);
    }
  };
  struct SecondSlope {
    template <typename T>
    DISTAG_INLINE static T apply(T a, T b) {
      return FirstSlope::apply(b, a);
    }
  };
};

Tensors l1_loss_forward(std::span<const Tensor> inputs, const Attributes& attributes, Saved* saved) {
  return loss_forward<AbsoluteDifference>("l1_loss", inputs, attributes, saved);
}

Tensors l1_loss_backward(const Saved& saved, Tensors gradients) {
  return loss_backward<AbsoluteDifference>("l1_loss", saved, std::move(gradients));
}

}  // namespace

constexpr Op kL1Loss{.name = "l1_loss",
                     .signature = "l1_loss(tensor a, tensor b, text reduction = mean) -> tensor",
                     .summary = "|a - b|, elementwise, shapes broadcast; reduced by mean, sum or none.",
                     .forward = l1_loss_forward,
                     .backward = l1_loss_backward,
                     .is_cheap = true};

// ---- binary_cross_entropy_with_logits -------------------------------------------------------------------------------

namespace {

// -t log(sigmoid(x)) - (1 - t) log(1 - sigmoid(x)), without overflow.
struct LogitCrossEntropy {
  static constexpr double kSlopeFactor = 1;
  struct Value {
    template <typename T>
    DISTAG_INLINE static T apply(T x, T t) {
      const T share = x > T(0) ? T(1) - t : -t;
      return (share == T(0) ? T(0) : x * share) + std::log1p(math::exp(-std::fabs(x)));
    }
  };
  struct FirstSlope {
    template <typename T>
    DISTAG_INLINE static T apply(T x, T t) {
      return math::sigmoid(x) - t;
    }
  };
  struct SecondSlope {
    template <typename T>
    DISTAG_INLINE static T apply(T x, T) {
      return -x;
    }
  };
};

Tensors bce_forward(std::span<const Tensor> inputs, const Attributes& attributes, Saved* saved) {
  return loss_forward<LogitCrossEntropy>("binary_cross_entropy_with_logits", inputs, attributes, saved);
}

Tensors bce_backward(const Saved& saved, Tensors gradients) {
  return loss_backward<LogitCrossEntropy>("binary_cross_entropy_with_logits", saved, std::move(gradients));
}

}  // namespace

constexpr Op kBinaryCrossEntropyWithLogits{
    .name = "binary_cross_entropy_with_logits",
    .signature = "binary_cross_entropy_with_logits(tensor logits, tensor targets, text reduction = mean) -> tensor",
    .summary =
        "-(t log(s) + (1 - t) log(1 - s)) with s = sigmoid(logits) and targets t, elementwise, shapes broadcast; "
        "reduced "
        "by mean, sum or none.",
    .forward = bce_forward,
    .backward = bce_backward,
    .is_cheap = true};

}  // namespace distag::ops
