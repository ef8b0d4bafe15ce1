#pragma once

#include "ops/op.h"

namespace distag::ops {

// Logits as row-major rows with the classes as their last dim, and the target and weight of each row.
struct Classification {
  Tensor rows;
  Tensor targets;  // row-major, in the shape of the losses
  Tensor weight;   // weights of the classes; undefined for none
  int64_t count = 0;
  int64_t classes = 0;
  int64_t ignored = 0;

  // `all_classes`: the number of all classes, if the logits have only some of them.
  Classification(const char* op, Inputs inputs, const Attributes& attributes, int64_t all_classes = 0);
  // The weight of a row; 0 if the row is ignored. T is the dtype of the logits.
  template <typename T>
  T weight_of(int64_t target) const {
    if (target == ignored) return T(0);
    return weight ? weight.data_as<T>()[target] : T(1);
  }
};

// The classification losses cross_entropy and nll_loss when each process has only some of the classes of each
// row. The loss takes three steps; between them the processes combine their results. Backward is that of the
// op.
class CutClasses {
 public:
  // The classes here begin at index `offset`; `all_classes` is the number of all. Throws what the ops throw.
  CutClasses(const Op& op, std::span<const Tensor> inputs, const Attributes& attributes, int64_t offset,
             int64_t all_classes);

  // Whether the logits are not logarithms of probabilities yet.
  bool takes_exponentials() const { return takes_exponentials_; }
  // The largest logit here in each row, [rows]; -inf if this part has no logits.
  Tensor largest() const;

  // Numbers to be summed over all processes: [numbers, rows]. If exponentials are taken: of sum(exp(x - largest)), the
  // terms that are 1, and all others. Then x - largest of the target and, with weights, the weight of the target.
  // `largest` is that of all classes; undefined if no exponentials are taken.
  Tensor terms(const Tensor& largest) const;

  // The loss according to the attribute reduction, except that a mean is not divided yet: that needs the weights of all
  // rows.
  struct Loss {
    Tensor loss;
    double weights;
  };
  Loss finish(const Tensor& largest, const Tensor& terms, Saved* saved) const;

 private:
  template <typename T>
  void write_terms(Tensor& terms, const Tensor& largest) const;
  template <typename T>
  Loss finish_as(const Tensor& largest, const Tensor& terms, Saved* saved) const;
  // Index of a row's target among the classes here; -1 if it is not among them.
  int64_t place_of(int64_t target) const {
    return target >= offset_ && target < offset_ + batch_.classes ? target - offset_ : -1;
  }

  const char* const op_;
  const bool takes_exponentials_;
  const bool keeps_rows_;
  const int64_t offset_;
  const Classification batch_;  // targets are indices among all classes
};

}  // namespace distag::ops
