// Losses of pairs of elements: mse_loss, l1_loss, huber_loss, binary_cross_entropy_with_logits, kl_div. Inputs are
// broadcast and promoted.
#include <cmath>

#include "ops/attributes.h"
#include "ops/binary.h"
#include "ops/builtins.h"
#include "ops/loss_reduction.h"
#include "ops/math.h"
#include "ops/reduce.h"
#include "ops/require.h"
#include "ops/unary.h"

namespace distag::ops {
namespace {

// A Loss is made from the attributes. It has expressions of rows a and b: value, and slope_in_a and slope_in_b, which
// are multiplied by kSlopeFactor.
template <Name kName, typename Loss>
struct PairwiseLoss {
  static Tensor forward(Inputs inputs, const Attributes& attributes, Saved* saved) {
    const auto value = [loss = Loss(attributes)](const auto& a, const auto& b) { return loss.value(a, b); };
    const LossReduction reduction = loss_reduction(kName.text, attributes);
    const Pair pair(kName.text, inputs);
    const Tensor losses = computed(kName.text, Tensor::empty(pair.dtype(), pair.shape), value, pair.a, pair.b);
    const double divisor = reduction == LossReduction::kOfTheMean ? static_cast<double>(losses.count()) : 1.0;
    if (saved != nullptr) {
      save_kinds(saved, inputs);
      saved->attributes = attributes;
      saved->tensors = {pair.a.snapshot(), pair.b.snapshot(),
                        Tensor::scalar(pair.dtype(), Loss::kSlopeFactor / divisor)};
      saved->shapes.push_back(pair.shape);
    }
    if (reduction == LossReduction::kOfEach) return losses;
    DimSet all;
    all.set();
    return reduction == LossReduction::kOfTheMean ? mean_over(losses, all, Dims()) : sum_over(losses, all, Dims());
  }

  static Tensors backward(const Saved& saved, const Tensor& g) {
    Tensors result(2);
    const Loss loss(saved.attributes);
    const auto in_a = [loss](const auto& a, const auto& b) { return loss.slope_in_a(a, b); };
    const auto in_b = [loss](const auto& a, const auto& b) { return loss.slope_in_b(a, b); };
    if (saved.needs(0)) result[0] = gradient(saved, 0, in_a, g);
    if (saved.needs(1)) result[1] = gradient(saved, 1, in_b, g);
    return result;
  }

 private:
  // Divides by the count of a mean first: a slope times the gradient may be too large for the dtype when the mean is
  // not.
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
  return make_op<PairwiseLoss<kName, Loss>>(signature, summary, kCheap);
}

// Slopes use half of the numbers, whose difference is never too large.
struct SquaredDifference {
  static constexpr double kSlopeFactor = 4;
  explicit SquaredDifference(const Attributes&) {}
  static auto value(const auto& a, const auto& b) { return (a - b) * (a - b); }
  static auto slope_in_a(const auto& a, const auto& b) {
    using T = Element<decltype(a)>;
    return a * T(0.5) - b * T(0.5);
  }
  static auto slope_in_b(const auto& a, const auto& b) { return slope_in_a(b, a); }
};

struct AbsoluteDifference {
  static constexpr double kSlopeFactor = 1;
  explicit AbsoluteDifference(const Attributes&) {}
  static auto value(const auto& a, const auto& b) { return xt::fabs(a - b); }
  static auto slope_in_a(const auto& a, const auto& b) {
    using T = Element<decltype(a)>;
    return select(a > b, T(1), select(a < b, T(-1), T(0)));
  }
  static auto slope_in_b(const auto& a, const auto& b) { return slope_in_a(b, a); }
};

// Half of the squared difference up to delta, and a line beyond (Huber 1964).
struct HuberDifference {
  static constexpr double kSlopeFactor = 1;
  explicit HuberDifference(const Attributes& attributes) : delta(get_float(attributes, "delta", 1.0)) {
    require(delta > 0, "huber_loss: delta {} is not above 0", delta);
  }
  auto value(const auto& a, const auto& b) const {
    const auto value_at = [limit = static_cast<Element<decltype(a)>>(delta)]<typename T>(T x, T y) {
      const T distance = std::fabs(x - y);
      return distance <= limit ? T(0.5) * distance * distance : limit * (distance - T(0.5) * limit);
    };
    return each(value_at, a, b);
  }
  // The difference, limited to -delta .. delta; NaN stays.
  auto slope_in_a(const auto& a, const auto& b) const {
    const auto slope_at = [limit = static_cast<Element<decltype(a)>>(delta)]<typename T>(T x, T y) {
      const T difference = x - y;
      const T raised = difference < -limit ? -limit : difference;
      return raised > limit ? limit : raised;
    };
    return each(slope_at, a, b);
  }
  auto slope_in_b(const auto& a, const auto& b) const { return slope_in_a(b, a); }

  double delta;
};

// -t log(sigmoid(x)) - (1 - t) log(1 - sigmoid(x)), without overflow.
struct LogitCrossEntropy {
  static constexpr double kSlopeFactor = 1;
  explicit LogitCrossEntropy(const Attributes&) {}
  static auto value(const auto& logits, const auto& targets) {
    constexpr auto kValueAt = []<typename T>(T x, T t) DISTAG_INLINE_LAMBDA {
      const T share = x > T(0) ? T(1) - t : -t;
      return (share == T(0) ? T(0) : x * share) + math::log1p_up_to_1(math::exp_not_positive(-std::fabs(x)));
    };
    return each(kValueAt, logits, targets);
  }
  // sigmoid(x) - t; for x > 0 as (1 - t) - sigmoid(-x), which is exact if t is 1.
  static auto slope_in_a(const auto& logits, const auto& targets) {
    constexpr auto kSlopeAt = []<typename T>(T x, T t) DISTAG_INLINE_LAMBDA {
      const T share = math::sigmoid(-std::fabs(x));
      return x > T(0) ? (T(1) - t) - share : share - t;
    };
    return each(kSlopeAt, logits, targets);
  }
  static auto slope_in_b(const auto& logits, const auto&) { return -logits; }
};

// t (log(t) - x); 0 if t is 0, with a slope of 0 in t. With log_target, exp(t) (t - x) for the logarithm t of a target.
struct Divergence {
  static constexpr double kSlopeFactor = 1;
  explicit Divergence(const Attributes& attributes) : is_log(get_bool(attributes, "log_target", false)) {}
  auto value(const auto& logs, const auto& targets) const {
    const auto value_at = [log_given = is_log]<typename T>(T x, T t) DISTAG_INLINE_LAMBDA {
      if (log_given) return math::exp_times(t, t - x);
      return t == T(0) && x == x ? T(0) : t * (math::log(t) - x);
    };
    return each(value_at, logs, targets);
  }
  auto slope_in_a(const auto& logs, const auto& targets) const {
    const auto slope_at = [log_given = is_log]<typename T>(T, T t) { return log_given ? -math::exp(t) : -t; };
    return each(slope_at, logs, targets);
  }
  auto slope_in_b(const auto& logs, const auto& targets) const {
    const auto slope_at = [log_given = is_log]<typename T>(T x, T t) DISTAG_INLINE_LAMBDA {
      if (log_given) return math::exp_times(t, t - x + T(1));
      return t == T(0) ? T(0) : math::log(t) + T(1) - x;
    };
    return each(slope_at, logs, targets);
  }

  bool is_log;
};

}  // namespace

constexpr Op kMseLoss =
    of_pairs<"mse_loss", SquaredDifference>("mse_loss(tensor a, tensor b, text reduction = mean) -> tensor",
                                            "(a - b)^2, elementwise, shapes broadcast; reduced by mean, sum or none.");

constexpr Op kL1Loss =
    of_pairs<"l1_loss", AbsoluteDifference>("l1_loss(tensor a, tensor b, text reduction = mean) -> tensor",
                                            "|a - b|, elementwise, shapes broadcast; reduced by mean, sum or none.");

constexpr Op kHuberLoss = of_pairs<"huber_loss", HuberDifference>(
    "huber_loss(tensor a, tensor b, text reduction = mean, float64 delta = 1) -> tensor",
    "d^2 / 2 of d = |a - b| up to delta, else delta * (d - delta / 2), elementwise, shapes broadcast; reduced by mean, "
    "sum or none.");

constexpr Op kBinaryCrossEntropyWithLogits = of_pairs<"binary_cross_entropy_with_logits", LogitCrossEntropy>(
    "binary_cross_entropy_with_logits(tensor logits, tensor targets, text reduction = mean) -> tensor",
    "-(t log(s) + (1 - t) log(1 - s)) with s = sigmoid(logits) and targets t, elementwise, shapes broadcast; reduced "
    "by mean, sum or none.");

constexpr Op kKlDiv = of_pairs<"kl_div", Divergence>(
    "kl_div(tensor logs, tensor targets, text reduction = mean, bool log_target = false) -> tensor",
    "t (log(t) - logs) of targets t, 0 (and its slope in t) where t is 0, or exp(t) (t - logs) with log_target, "
    "elementwise, shapes broadcast; reduced by mean, sum or none.");

}  // namespace distag::ops
