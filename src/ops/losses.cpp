// Losses of a batch of classifications: cross_entropy, nll_loss.
#include <cmath>

#include "ops/attributes.h"
#include "ops/binary.h"
#include "ops/builtins.h"
#include "ops/cut_classes.h"
#include "ops/exp_sums.h"
#include "ops/loss_reduction.h"
#include "ops/reduce.h"
#include "ops/require.h"
#include "ops/softmax.h"
#include "ops/views.h"

namespace distag::ops {

constexpr uint32_t kWeightOfClasses = 1u << 2;

// ---- cross_entropy --------------------------------------------------------------------------------------------------

// log(sum(exp(x))) = largest + log for each row, kept separately: their sum would round away a small loss. Zeros if the
// rows are logarithms of probabilities already.
struct LogSums {
  Tensor largest;
  Tensor logs;
  LogSums(Dtype dtype, int64_t rows) : largest(zero_tensor(dtype, Dims{rows})), logs(zero_tensor(dtype, Dims{rows})) {}
};

namespace {

// The class dim: the only dim, or the second one.
DimSet class_dim(const Tensor& logits) { return DimSet(logits.rank() == 1 ? 1 : 2); }

}  // namespace

Classification::Classification(const char* op, Inputs inputs, const Attributes& attributes, int64_t all_classes) {
  const Tensor& logits = inputs[0];
  targets = inputs[1].contiguous();
  Tensor given_weight = inputs.size() > 2 ? inputs[2] : Tensor();
  const DimsLast moved(logits.shape(), class_dim(logits));
  const Dims expected = reduced_shape(logits.shape(), class_dim(logits), false);
  classes = logits.rank() == 0 ? 0 : moved.count;
  require(
      logits.rank() != 0 && targets.shape() == expected && targets.dtype() == Dtype::kInt64,
      "{}: logits {} and targets {} do not fit: [n, classes] and int64[n] do, or [n, classes, d..] and int64[n, d..]",
      op, logits, targets);
  require(!given_weight || given_weight.shape() == Dims{classes}, "{}: weight {} does not fit {} classes", op,
          given_weight, classes);
  rows = moved.gather(logits);
  if (given_weight) weight = as_dtype(given_weight, logits.dtype()).contiguous();
  count = targets.count();
  ignored = get_int(attributes, "ignore_index", -100);
  const int64_t limit = std::max(classes, all_classes);
  for (int64_t i = 0; i < count; ++i) {
    int64_t target = targets.data_as<int64_t>()[i];
    require(target == ignored || (target >= 0 && target < limit), "{}: target {} at row {} is out of range [0, {})", op,
            target, i, limit);
  }
}

namespace {

template <typename T>
LogSums log_sums_of(const Classification& batch) {
  LogSums sums(batch.rows.dtype(), batch.count);
  Tensor scratch = Tensor::empty(batch.rows.dtype(), Dims{batch.classes});
  if (batch.rows.count() > 0) {
    const auto sum = [](T& largest, T& log, auto terms, auto x) DISTAG_INLINE_LAMBDA {
      const T top = largest_of(x);
      largest = top;
      log = static_cast<T>(log_sum_below_largest(terms, x, top));
    };
    for_rows(batch.count, batch.classes, sum, OfEach(sums.largest.mutable_data_as<T>()),
             OfEach(sums.logs.mutable_data_as<T>()), SameRow(scratch.mutable_data_as<T>()),
             Rows(batch.rows.data_as<T>()));
  }
  return sums;
}

// Returns the loss and, in `divisor`, the divisor of the weighted sum.
template <typename T>
Tensor reduced_loss(const Classification& batch, const LogSums& sums, LossReduction reduction, double& divisor) {
  const auto* targets = batch.targets.data_as<int64_t>();
  const T* largest = sums.largest.data_as<T>();
  const T* logs = sums.logs.data_as<T>();
  const T* rows = batch.rows.data_as<T>();
  bool keeps = reduction == LossReduction::kOfEach;
  Tensor losses = Tensor::empty(batch.rows.dtype(), keeps ? batch.targets.shape() : Dims());
  T* out = losses.mutable_data_as<T>();
  double total = 0;
  double total_weight = 0;
  for (int64_t r = 0; r < batch.count; ++r) {
    T weight = batch.weight_of<T>(targets[r]);
    T loss = T(0);
    if (targets[r] != batch.ignored) loss = weight * (logs[r] - (rows[r * batch.classes + targets[r]] - largest[r]));
    if (keeps) out[r] = loss;
    total += static_cast<double>(loss);
    total_weight += static_cast<double>(weight);
  }
  divisor = reduction == LossReduction::kOfTheMean ? total_weight : 1.0;
  if (!keeps) *out = static_cast<T>(total / divisor);
  return losses;
}

// Saves for backward, for each row: the target, -1 if it is ignored, and the factor of its gradient.
template <typename T>
void save_rows(Saved& saved, const Classification& batch, const LogSums& sums, double divisor) {
  Tensor targets = Tensor::empty(Dtype::kInt64, Dims{batch.count});
  Tensor factors = Tensor::empty(batch.rows.dtype(), Dims{batch.count});
  auto* target_of = targets.mutable_data_as<int64_t>();
  T* factor_of = factors.mutable_data_as<T>();
  for (int64_t r = 0; r < batch.count; ++r) {
    int64_t target = batch.targets.data_as<int64_t>()[r];
    target_of[r] = target == batch.ignored ? -1 : target;
    factor_of[r] = static_cast<T>(static_cast<double>(batch.weight_of<T>(target)) / divisor);
  }
  saved.tensors = {batch.rows.snapshot(), sums.largest, sums.logs, targets, factors};
}

// The gradient of each row's loss, times the factor of the row.
Tensor scales_of(const char* op, const Saved& saved, const Tensor& gradient) {
  const Tensor& factors = saved.tensors[4];
  return value_of(op, kProductOf, factors, gradient.rank() == 0 ? gradient : with_shape(gradient, factors.shape()));
}

// scale (softmax(x) - [target]); 0 for a row without a target (-1). The target may be beyond the row, among classes
// that other processes have.
constexpr auto kCrossEntropyGradient = [](auto out, auto x, auto largest, auto log_sum, auto scale,
                                          int64_t target) DISTAG_INLINE_LAMBDA {
  if (target < 0) {
    std::fill_n(out.data(), out.size(), decltype(scale)(0));
    return;
  }
  const auto share_of_largest = math::exp_not_positive(-log_sum);
  put(out, scale * (share_of_largest * each(math::ExpNotPositive(), x - largest)));
  const auto place = static_cast<size_t>(target);
  if (place >= out.size()) return;
  out.data_element(place) = scale * std::expm1((x.data_element(place) - largest) - log_sum);
};

}  // namespace

// nll_loss takes rows that are the result of log_softmax.
template <Name kName, bool kTakesExponentials>
struct ClassificationOp {
  static Tensor forward(Inputs inputs, const Attributes& attributes, Saved* saved) {
    const LossReduction reduction = loss_reduction(kName.text, attributes);
    const Classification batch(kName.text, inputs, attributes);
    Tensor losses;
    dispatch_floating(kName.text, inputs[0].dtype(), [&]<typename T>(T) {
      const LogSums sums = kTakesExponentials ? log_sums_of<T>(batch) : LogSums(inputs[0].dtype(), batch.count);
      double divisor = 1;
      losses = reduced_loss<T>(batch, sums, reduction, divisor);
      if (saved != nullptr) save_rows<T>(*saved, batch, sums, divisor);
    });
    return losses;
  }
};

struct CrossEntropyOp : ClassificationOp<"cross_entropy", true> {
  static Tensors backward(const Saved& saved, const Tensor& g) {
    const Tensor& rows = saved.tensors[0];
    const Tensor scales = scales_of("cross_entropy", saved, g);
    Tensor out = Tensor::empty(rows.dtype(), rows.shape());
    dispatch_floating("cross_entropy", rows.dtype(), [&]<typename T>(T) {
      if (rows.count() == 0) return;
      for_rows(scales.count(), rows.shape().back(), kCrossEntropyGradient, Rows(out.mutable_data_as<T>()),
               Rows(rows.data_as<T>()), OfEach(saved.tensors[1].data_as<T>()), OfEach(saved.tensors[2].data_as<T>()),
               OfEach(scales.data_as<T>()), OfEach(saved.tensors[3].data_as<int64_t>()));
    });
    return {DimsLast(out.shape(), class_dim(out)).scatter(out), Tensor(), Tensor()};
  }
};
constexpr Op kCrossEntropy = make_op<CrossEntropyOp>(
    "cross_entropy(tensor logits, tensor targets, tensor? weight, text reduction = mean, int64 ignore_index = -100) -> "
    "tensor",
    "-weight[t] * log_softmax(logits)[t] for targets t [n] (int64) of logits [n, classes], without those that are "
    "ignore_index; reduced by mean (over the weights), sum or none.",
    kCheap, kWeightOfClasses);

// ---- nll_loss -------------------------------------------------------------------------------------------------------

struct NllLossOp : ClassificationOp<"nll_loss", false> {
  static Tensors backward(const Saved& saved, const Tensor& g) {
    const Tensor& rows = saved.tensors[0];
    const Tensor scales = scales_of("nll_loss", saved, g);
    Tensor out = zero_tensor(rows.dtype(), rows.shape());
    dispatch_floating("nll_loss", rows.dtype(), [&]<typename T>(T) {
      T* row = out.mutable_data_as<T>();
      const auto* targets = saved.tensors[3].data_as<int64_t>();
      const int64_t classes = rows.shape().back();
      for (int64_t r = 0; r < scales.count(); ++r) {
        if (targets[r] >= 0 && targets[r] < classes) row[r * classes + targets[r]] = -scales.data_as<T>()[r];
      }
    });
    return {DimsLast(out.shape(), class_dim(out)).scatter(out), Tensor(), Tensor()};
  }
};
constexpr Op kNllLoss = make_op<NllLossOp>(
    "nll_loss(tensor logs, tensor targets, tensor? weight, text reduction = mean, int64 ignore_index = -100) -> tensor",
    "-weight[t] * logs[t] for targets t [n] (int64) of logs [n, classes], without those that are ignore_index; reduced "
    "by mean (over the weights), sum or none.",
    kCheap, kWeightOfClasses);

// ---- classes of which other processes have some ---------------------------------------------------------------------

CutClasses::CutClasses(const Op& op, Inputs inputs, const Attributes& attributes, int64_t offset, int64_t all_classes)
    : op_(op.name),
      takes_exponentials_(&op == &kCrossEntropy),
      keeps_rows_(loss_reduction(op.name, attributes) == LossReduction::kOfEach),
      offset_(offset),
      batch_(op_, inputs, attributes, all_classes) {
  dispatch_floating(op_, inputs[0].dtype(), [](auto) {});
}

Tensor CutClasses::largest() const {
  const size_t last = batch_.rows.rank() - 1;
  DimSet classes;
  classes.set(last);
  return max_over(batch_.rows, classes, Dims{batch_.targets.count()});
}

template <typename T>
void CutClasses::write_terms(Tensor& terms, const Tensor& largest) const {
  const int64_t rows = batch_.targets.count();
  T* term = terms.mutable_data_as<T>();
  if (takes_exponentials_) {
    Tensor scratch = Tensor::empty(batch_.rows.dtype(), Dims{batch_.classes});
    // The number of elements equal to the largest, and the sum of the exponentials of all others.
    const auto sums = [](T& ones, T& rest, auto exponentials, auto x, T top) DISTAG_INLINE_LAMBDA {
      const auto below = x - top;
      put(exponentials, each(math::ExpNotPositive(), below));
      ones = static_cast<T>(sum_of(select(xt::equal(below, T(0)), 1.0, 0.0)));
      rest = static_cast<T>(sum_of(select(xt::equal(below, T(0)), 0.0, xt::cast<double>(exponentials))));
    };
    for_rows(rows, batch_.classes, sums, OfEach(term), OfEach(term + rows), SameRow(scratch.mutable_data_as<T>()),
             Rows(batch_.rows.data_as<T>()), OfEach(largest.data_as<T>()));
    term += 2 * rows;
  }
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t target = batch_.targets.data_as<int64_t>()[r];
    const int64_t place = target == batch_.ignored ? -1 : place_of(target);
    const T shift = takes_exponentials_ ? largest.data_as<T>()[r] : T(0);
    term[r] = place < 0 ? T(0) : batch_.rows.data_as<T>()[r * batch_.classes + place] - shift;
    if (batch_.weight) term[rows + r] = place < 0 ? T(0) : batch_.weight.data_as<T>()[place];
  }
}

Tensor CutClasses::terms(const Tensor& largest) const {
  const int64_t numbers = (takes_exponentials_ ? 2 : 0) + 1 + (batch_.weight ? 1 : 0);
  Tensor terms = Tensor::empty(batch_.rows.dtype(), Dims{numbers, batch_.targets.count()});
  if (terms.count() == 0) return terms;
  dispatch_floating(op_, batch_.rows.dtype(), [&]<typename T>(T) { write_terms<T>(terms, largest); });
  return terms;
}

template <typename T>
CutClasses::Loss CutClasses::finish_as(const Tensor& largest, const Tensor& terms, Saved* saved) const {
  const int64_t rows = batch_.targets.count();
  LogSums sums(batch_.rows.dtype(), rows);
  if (takes_exponentials_) sums.largest = largest;
  Tensor factors = Tensor::empty(batch_.rows.dtype(), Dims{rows});
  Tensor places = Tensor::empty(Dtype::kInt64, Dims{rows});
  Loss loss{Tensor::empty(batch_.rows.dtype(), keeps_rows_ ? batch_.targets.shape() : Dims()), 0};
  T* logs = sums.logs.mutable_data_as<T>();
  T* weights = factors.mutable_data_as<T>();
  T* out = loss.loss.mutable_data_as<T>();
  const T* term = terms.data_as<T>();
  const T* of_target = takes_exponentials_ ? term + 2 * rows : term;
  double total = 0;
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t target = batch_.targets.data_as<int64_t>()[r];
    const bool counts = target != batch_.ignored;
    if (takes_exponentials_) logs[r] = log_of_terms(term[r], term[rows + r]);
    weights[r] = counts ? (batch_.weight ? of_target[rows + r] : T(1)) : T(0);
    const T each = counts ? weights[r] * (logs[r] - of_target[r]) : T(0);
    if (keeps_rows_) out[r] = each;
    total += static_cast<double>(each);
    loss.weights += static_cast<double>(weights[r]);
    // A target among the classes of another process is placed beyond the row.
    const int64_t place = place_of(target);
    places.mutable_data_as<int64_t>()[r] = counts ? (place < 0 ? batch_.classes : place) : -1;
  }
  if (!keeps_rows_) *out = static_cast<T>(total);
  if (saved != nullptr) saved->tensors = {batch_.rows.snapshot(), sums.largest, sums.logs, places, factors};
  return loss;
}

CutClasses::Loss CutClasses::finish(const Tensor& largest, const Tensor& terms, Saved* saved) const {
  Loss loss{Tensor(), 0};
  dispatch_floating(op_, batch_.rows.dtype(), [&]<typename T>(T) { loss = finish_as<T>(largest, terms, saved); });
  return loss;
}

}  // namespace distag::ops
