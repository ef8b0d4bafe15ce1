#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ops/attributes.h"
#include "precision/exact_number.h"

namespace distag::testing {

using ExactNumbers = std::vector<Exact>;

// An op that contains a curve, on rows of numbers of a range where digits may be lost, and its exact results.
struct ExactRows {
  using Value = ExactNumbers (*)(const ExactNumbers& x);
  using Rows = std::vector<std::vector<double>> (*)(bool is_float);
  using Size = Wide (*)(const ExactNumbers& x, size_t place);
  using Condition = Wide (*)(const ExactNumbers& x, size_t input, size_t output);

  const char* op;
  const char* range;
  std::vector<Dims> inputs;  // the dims of each tensor in a row
  ops::Attributes attributes;
  Rows rows;
  Value value;
  double value_ulp;  // the largest errors
  double slope_ulp;

  // An error is measured against the exact number, or against a size where that is larger. For a slope, the size is the
  // sum of its terms without their signs, each times the condition.
  Condition condition = nullptr;  // by how much a term multiplies the rounding of what it is made of
  Size value_size = nullptr;      // of a result whose terms cancel, or do so
  Size slope_size = nullptr;      // of a slope whose terms cancel
  bool is_of_largest = false;     // the largest of the row is the size of all

  std::optional<int64_t> target = std::nullopt;  // the class of each row, another input
  bool are_columns = false;                      // a row is a column of the input
};

const std::vector<ExactRows>& exact_rows();

}  // namespace distag::testing
