#pragma once

#include "ops/op.h"

namespace distag::ops {

// Logits with the classes as their last dim, row-major, and the target and weight of each row.
struct Classification {
  Tensor rows;
  Tensor targets;  // row-major, in the shape of the losses
  Tensor weight;   // of classes; undefined for none
  int64_t count = 0;
  int64_t classes = 0;
  int64_t ignored = 0;

  // `all_classes`: where there are more than those of the logits.
  Classification(const char* op, Inputs inputs, const Attributes& attributes, int64_t all_classes = 0);
  // Weight of a row; 0 for an ignored one. T is the dtype of the logits.
  template <typename T>
  T weight_of(int64_t target) const {
    if (target == ignored) return T(0);
    return weight ? weight.data_as<T>()[target] : T(1);
  }
};

// The losses of classifications, cross_entropy and nll_loss, where one process has some of the classes of each row, and
// others have the rest. In three steps, between which they put together what each of them has. Backward is that of the
// op.
class CutClasses {
 public:
  // The classes here count from `offset` on, `all_classes` are everywhere. Throws as the ops do.
  CutClasses(const Op& op, std::span<const Tensor> inputs, const Attributes& attributes, int64_t offset,
             int64_t all_classes);

  // Whether the logits are no logarithms of probabilities yet.
  bool takes_exponentials() const { return takes_exponentials_; }
  // Of each row the largest logit here, [rows]; -inf where this part has no logits.
  Tensor largest() const;

  // To be added up: [numbers, rows]. Of sum(exp(x - largest)) the terms that are 1, and all others, where exponentials
  // are taken; x - largest of the target; with weights the weight of the target. `largest`: that of all classes,
  // undefined where none are taken.
  Tensor terms(const Tensor& largest) const;

  // The loss by the attribute reduction, but a sum is not divided for a mean: that takes the weights of all rows.
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
  // Of the target of a row, among the classes here; -1 where it is not among them.
  int64_t place_of(int64_t target) const {
    return target >= offset_ && target < offset_ + batch_.classes ? target - offset_ : -1;
  }

  const char* const op_;
  const bool takes_exponentials_;
  const bool keeps_rows_;
  const int64_t offset_;
  const Classification batch_;  // targets are those of the whole
};

}  // namespace distag::ops
