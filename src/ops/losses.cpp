// Losses of a batch: cross_entropy, mse_loss.
#include "base/error.h"
#include "ops/attributes.h"
#include "ops/binary.h"
#include "ops/builtins.h"
#include "ops/reduce.h"
#include "ops/softmax.h"
#include "ops/views.h"

namespace distag::ops {
namespace {

enum class LossReduction : int64_t { kNone, kSum, kMean };

LossReduction loss_reduction(const char* op, const Attributes& attributes) {
  std::string name = get_text(attributes, "reduction", "mean");
  if (name == "mean") return LossReduction::kMean;
  if (name == "sum") return LossReduction::kSum;
  if (name == "none") return LossReduction::kNone;
  fail(Status::kInvalidArgument, "{}: reduction \"{}\" is none of mean, sum, none", op, name);
}

// ---- cross_entropy --------------------------------------------------------------------------------------------------

// Logits with the classes as their last dim, row-major, and the target and weight of each row.
struct Classification {
  Tensor rows;
  Tensor targets;  // row-major, in the shape of the losses
  Tensor weight;   // of classes; undefined for none
  int64_t count = 0;
  int64_t classes = 0;
  int64_t ignored = 0;

  Classification(std::span<const Tensor> inputs, const Attributes& attributes);
  // Weight of a row; 0 for an ignored one. T is the dtype of the logits.
  template <typename T>
  T weight_of(int64_t target) const {
    if (target == ignored) return T(0);
    return weight ? weight.data_as<T>()[target] : T(1);
  }
};

// The class dim: the only one, or the second.
size_t class_dim(const Tensor& logits) { return logits.rank() == 1 ? 0 : 1; }

// Moves the class dim to the end and back: [n, classes, d...] and [n, d..., classes].
Tensor classes_last(const Tensor& x) {
  if (x.rank() <= 2) return x;
  Dims order{0};
  for (size_t i = 2; i < x.rank(); ++i) order.push_back(static_cast<int64_t>(i));
  order.push_back(1);
  return permuted(x, order);
}

Tensor classes_second(const Tensor& x) {
  if (x.rank() <= 2) return x;
  Dims order{0, static_cast<int64_t>(x.rank() - 1)};
  for (size_t i = 1; i + 1 < x.rank(); ++i) order.push_back(static_cast<int64_t>(i));
  return permuted(x, order);
}

Classification::Classification(std::span<const Tensor> inputs, const Attributes& attributes) {
  const Tensor& logits = inputs[0];
  targets = inputs[1].contiguous();
  Tensor given_weight = inputs.size() > 2 ? inputs[2] : Tensor();
  Dims expected = logits.shape();
  if (logits.rank() > 0) {
    std::copy(expected.begin() + class_dim(logits) + 1, expected.end(), expected.begin() + class_dim(logits));
    expected.pop_back();
    classes = logits.shape()[class_dim(logits)];
  }
  if (logits.rank() == 0 || targets.shape() != expected || targets.dtype() != Dtype::kInt64) {
    fail(Status::kInvalidArgument,
         "cross_entropy: logits {} and targets {} do not fit: [n, classes] and int64[n] do, or [n, classes, d..] and "
         "int64[n, d..]",
         describe(logits), describe(targets));
  }
  if (given_weight && given_weight.shape() != Dims{classes}) {
    fail(Status::kInvalidArgument, "cross_entropy: weight {} does not fit {} classes", describe(given_weight), classes);
  }
  rows = classes_last(logits).contiguous();
  if (given_weight) weight = as_dtype(given_weight, logits.dtype()).contiguous();
  count = targets.count();
  ignored = get_int(attributes, "ignore_index", -100);
  for (int64_t i = 0; i < count; ++i) {
    int64_t target = targets.data_as<int64_t>()[i];
    if (target != ignored && (target < 0 || target >= classes)) {
      fail(Status::kInvalidArgument, "cross_entropy: target {} at row {} is out of range [0, {})", target, i, classes);
    }
  }
}

// logs[r] = log(sum(exp(row r))); scratch has room for a row.
template <typename T>
struct LogSumExpRows {
  DISTAG_INLINE static void run(T* logs, T* scratch, const T* x, int64_t rows, int64_t count) {
    for (int64_t r = 0; r < rows; ++r, x += count) {
      T largest = reduce_row<Maximum<T>, T>(x, count);
      logs[r] = math::log(exp_of_row(scratch, x, largest, count)) + largest;
    }
  }
};

// out = scale (exp(x - log_sum) - [target]) for each row, 0 for one without a target (-1).
template <typename T>
struct CrossEntropyGradientRows {
  DISTAG_INLINE static void run(T* out, const T* x, const T* log_sums, const T* scales, const int64_t* targets,
                                int64_t rows, int64_t count) {
    for (int64_t r = 0; r < rows; ++r, out += count, x += count) {
      T scale = scales[r];
      T log_sum = log_sums[r];
      if (targets[r] < 0) {
        for (int64_t i = 0; i < count; ++i) out[i] = T(0);
        continue;
      }
      DISTAG_INDEPENDENT
      for (int64_t i = 0; i < count; ++i) out[i] = scale * math::exp(x[i] - log_sum);
      out[targets[r]] -= scale;
    }
  }
};

template <typename T>
Tensor log_sums_of(const Classification& batch) {
  Tensor log_sums = Tensor::empty(batch.rows.dtype(), Dims{batch.count});
  Tensor scratch = Tensor::empty(batch.rows.dtype(), Dims{batch.classes});
  if (batch.rows.count() > 0) {
    simd::run<LogSumExpRows<T>, T*, T*, const T*, int64_t, int64_t>(
        log_sums.mutable_data_as<T>(), scratch.mutable_data_as<T>(), batch.rows.data_as<T>(), batch.count,
        batch.classes);
  }
  return log_sums;
}

// The loss, and by what the weighted sum was divided.
template <typename T>
Tensor reduced_loss(const Classification& batch, const Tensor& log_sums, LossReduction reduction, double& divisor) {
  const auto* targets = batch.targets.data_as<int64_t>();
  const T* sums = log_sums.data_as<T>();
  const T* rows = batch.rows.data_as<T>();
  bool keeps = reduction == LossReduction::kNone;
  Tensor losses = Tensor::empty(batch.rows.dtype(), keeps ? batch.targets.shape() : Dims());
  T* out = losses.mutable_data_as<T>();
  double total = 0;
  double total_weight = 0;
  for (int64_t r = 0; r < batch.count; ++r) {
    T weight = batch.weight_of<T>(targets[r]);
    T loss = targets[r] == batch.ignored ? T(0) : weight * (sums[r] - rows[r * batch.classes + targets[r]]);
    if (keeps) out[r] = loss;
    total += static_cast<double>(loss);
    total_weight += static_cast<double>(weight);
  }
  divisor = reduction == LossReduction::kMean ? total_weight : 1.0;
  if (!keeps) *out = static_cast<T>(total / divisor);
  return losses;
}

Tensors cross_entropy_forward(std::span<const Tensor> inputs, const Attributes& attributes, Saved* saved) {
  LossReduction reduction = loss_reduction("cross_entropy", attributes);
  Classification batch(inputs, attributes);
  Tensor losses;
  dispatch_floating("cross_entropy", inputs[0].dtype(), [&]<typename T>(T) {
    Tensor log_sums = log_sums_of<T>(batch);
    double divisor = 1;
    losses = reduced_loss<T>(batch, log_sums, reduction, divisor);
    if (saved == nullptr) return;
    // Of ignored rows the target is -1.
    Tensor targets = Tensor::empty(Dtype::kInt64, Dims{batch.count});
    Tensor weights = Tensor::empty(batch.rows.dtype(), Dims{batch.count});
    for (int64_t r = 0; r < batch.count; ++r) {
      int64_t target = batch.targets.data_as<int64_t>()[r];
      targets.mutable_data_as<int64_t>()[r] = target == batch.ignored ? -1 : target;
      weights.mutable_data_as<T>()[r] = static_cast<T>(static_cast<double>(batch.weight_of<T>(target)) / divisor);
    }
    saved->tensors = {batch.rows.snapshot(), log_sums, targets, weights};
    saved->shapes = {Dims{static_cast<int64_t>(inputs.size())}};
  });
  return {losses};
}

Tensors cross_entropy_backward(const Saved& saved, Tensors gradients) {
  Tensors result(static_cast<size_t>(saved.shapes[0][0]));
  if (!gradients[0]) return result;
  const Tensor& rows = saved.tensors[0];
  const Tensor& weights = saved.tensors[3];
  Tensor scales = Tensor::empty(weights.dtype(), weights.shape());
  Tensor out = Tensor::empty(rows.dtype(), rows.shape());
  Tensor g = gradients[0].rank() == 0 ? gradients[0] : with_shape(gradients[0], weights.shape());
  dispatch_floating("cross_entropy", rows.dtype(), [&]<typename T>(T) {
    binary_into<MulOf, T, T, T>(scales, weights, g);
    if (rows.count() == 0) return;
    simd::run<CrossEntropyGradientRows<T>, T*, const T*, const T*, const T*, const int64_t*, int64_t, int64_t>(
        out.mutable_data_as<T>(), rows.data_as<T>(), saved.tensors[1].data_as<T>(), scales.data_as<T>(),
        saved.tensors[2].data_as<int64_t>(), weights.count(), rows.shape().back());
  });
  result[0] = classes_second(out);
  return result;
}

}  // namespace

constexpr Op kCrossEntropy{.name = "cross_entropy",
                           .signature =
                               "cross_entropy(tensor logits, tensor targets, tensor? weight, "
                               "text reduction = mean, int64 ignore_index = -100) -> tensor",
                           .forward = cross_entropy_forward,
                           .backward = cross_entropy_backward,
                           .is_cheap = true};

// ---- mse_loss -------------------------------------------------------------------------------------------------------

namespace {

struct Squared {
  template <typename T>
  DISTAG_INLINE static T apply(T d, T) {
    return d * d;
  }
};

Tensors mse_loss_forward(std::span<const Tensor> inputs, const Attributes& attributes, Saved* saved) {
  LossReduction reduction = loss_reduction("mse_loss", attributes);
  Pair pair("mse_loss", inputs);
  Tensor difference = Tensor::empty(pair.dtype(), pair.shape);
  Tensor squares = Tensor::empty(pair.dtype(), pair.shape);
  Tensor loss;
  double divisor = reduction == LossReduction::kMean ? static_cast<double>(difference.count()) : 1.0;
  dispatch_floating("mse_loss", pair.dtype(), [&]<typename T>(T) {
    binary_into<SubOf, T, T, T>(difference, pair.a, pair.b);
    binary_into<Squared, T, T, T>(squares, difference, difference);
    if (reduction == LossReduction::kNone) {
      loss = squares;
      return;
    }
    DimSet all;
    loss = sum_over(squares, all.set(), Dims());
    *loss.mutable_data_as<T>() /= static_cast<T>(divisor);
  });
  if (saved != nullptr) {
    save_kinds(saved, inputs);
    saved->tensors = {difference, Tensor::scalar(pair.dtype(), 2.0 / divisor)};
  }
  return {loss};
}

Tensors mse_loss_backward(const Saved& saved, Tensors gradients) {
  Tensors result(2);
  if (!gradients[0]) return result;
  const Tensor& difference = saved.tensors[0];
  Tensor slope = combine<MulOf>("mse_loss", gradients[0], saved.tensors[1]);
  for (size_t i = 0; i < 2; ++i) {
    if (!saved.needs(i)) continue;
    if (i == 1) slope = combine<MulOf>("mse_loss", slope, Tensor::scalar(slope.dtype(), -1.0));
    Tensor whole = Tensor::empty(difference.dtype(), difference.shape());
    dispatch_floating("mse_loss", whole.dtype(),
                      [&]<typename T>(T) { binary_into<MulOf, T, T, T>(whole, difference, slope); });
    result[i] = gradient_of(saved, i, std::move(whole));
  }
  return result;
}

}  // namespace

constexpr Op kMseLoss{.name = "mse_loss",
                      .signature = "mse_loss(tensor a, tensor b, text reduction = mean) -> tensor",
                      .forward = mse_loss_forward,
                      .backward = mse_loss_backward,
                      .is_cheap = true};

}  // namespace distag::ops
