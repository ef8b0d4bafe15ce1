#pragma once

#include "base/error.h"
#include "ops/attributes.h"

namespace distag::ops {

// How a loss combines the losses of its elements: attribute "reduction", "mean" by default.
enum class LossReduction : int64_t { kOfEach, kOfTheSum, kOfTheMean };

inline LossReduction loss_reduction(const char* op, const Attributes& attributes) {
  std::string name = get_text(attributes, "reduction", "mean");
  if (name == "mean") return LossReduction::kOfTheMean;
  if (name == "sum") return LossReduction::kOfTheSum;
  if (name == "none") return LossReduction::kOfEach;
  fail(Status::kInvalidArgument, "{}: reduction \"{}\" is invalid: give mean, sum or none", op, name);
}

}  // namespace distag::ops
