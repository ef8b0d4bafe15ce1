#pragma once

#include "ops/op.h"

namespace distag::ops {

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
    return target >= offset_ && target < offset_ + classes_ ? target - offset_ : -1;
  }

  const char* const op_;
  const bool takes_exponentials_;
  const bool keeps_rows_;
  const int64_t offset_;
  int64_t classes_ = 0;
  int64_t ignored_ = 0;
  Tensor rows_;     // classes last
  Tensor targets_;  // of the whole
  Tensor weight_;   // of the classes here; undefined for none
};

}  // namespace distag::ops
