// Every op, and its gradient, in float32 beside the same op in float64 on the same numbers: the error is at most 4 eps
// times the condition. Prints the table, with the errors of PyTorch 1.13 beside it (tests/data/precision.json).
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "ops/broadcast.h"
#include "precision/cases.h"
#include "support/tensors.h"

namespace distag::testing {
namespace {

constexpr double kMostEpsilons = 4;

Tensor in_float64(const Tensor& x) { return is_floating(x.dtype()) ? ops::as_dtype(x, Dtype::kFloat64) : x; }

Tensors in_float64(const Tensors& inputs) {
  Tensors wide;
  for (const Tensor& input : inputs) wide.push_back(in_float64(input));
  return wide;
}

Tensor without_signs(const Tensor& x) {
  if (!is_floating(x.dtype())) return x;
  return ops::find_op("abs")->forward(Tensors{x}, {}, nullptr)[0];
}

struct Applied {
  Tensors outputs;
  Tensors gradients;  // of the inputs, from seeds of 1, 2, 1, 2, ..
};

// The gradient of an op that adds nothing up is the same at every size.
bool wants_gradient(const PrecisionCase& the_case) { return the_case.adds_up || the_case.size <= 100000; }

Applied apply(const PrecisionCase& the_case, const Tensors& inputs, ops::Attributes attributes) {
  const ops::Op* op = ops::find_op(the_case.op);
  ops::check_arguments(*op, inputs, attributes);
  ops::Saved saved;
  saved.needed = ~uint64_t{0};
  Applied applied;
  applied.outputs = op->forward(inputs, attributes, &saved);
  if (op->backward == nullptr || !wants_gradient(the_case)) return applied;
  Tensors seeds;
  for (const Tensor& output : applied.outputs) {
    if (!is_floating(output.dtype())) return applied;
    Tensor seed = Tensor::empty(Dtype::kFloat32, output.shape());
    for (int64_t i = 0; i < seed.count(); ++i) seed.mutable_data_as<float>()[i] = i % 2 == 0 ? 1.0F : 2.0F;
    seeds.push_back(ops::as_dtype(seed, output.dtype()));
  }
  applied.gradients = op->backward(saved, std::move(seeds));
  return applied;
}

double largest(const Tensor& x) {
  double result = 0;
  for (int64_t i = 0; i < x.count(); ++i) result = std::max(result, std::fabs(x.data_as<double>()[i]));
  return result;
}

// In eps of float32. The sizes of the terms count as well as that of the result.
double error_of(const Tensor& narrow, const Tensor& wide, const Tensor& of_terms, Scale scale) {
  const Tensor actual = ops::as_dtype(narrow, Dtype::kFloat64).contiguous();
  const Tensor exact = ops::as_dtype(wide, Dtype::kFloat64).contiguous();
  const Tensor terms = ops::as_dtype(of_terms, Dtype::kFloat64).contiguous();
  const double whole = std::max(largest(exact), largest(terms));
  double worst = 0;
  for (int64_t i = 0; i < exact.count(); ++i) {
    const double size = scale == Scale::kLargest
                            ? whole
                            : std::max(std::fabs(exact.data_as<double>()[i]), std::fabs(terms.data_as<double>()[i]));
    const double error = std::fabs(actual.data_as<double>()[i] - exact.data_as<double>()[i]);
    if (error == 0) continue;
    if (!(error <= std::numeric_limits<double>::max())) return std::numeric_limits<double>::infinity();
    worst = std::max(worst, error / size / static_cast<double>(std::numeric_limits<float>::epsilon()));
  }
  return worst;
}

// The gradient of log_softmax is made of exp(y), where a relative error of y counts |y| times.
double condition_of_gradient(const PrecisionCase& the_case, const Applied& wide) {
  return the_case.op == "log_softmax" ? 1 + largest(wide.outputs[0].contiguous()) : 1;
}

struct Errors {
  double output = 0;
  double gradient = 0;
};

Errors errors_of(const PrecisionCase& the_case) {
  const ops::Op* op = ops::find_op(the_case.op);
  const Applied narrow = apply(the_case, the_case.inputs, the_case.attributes);
  ops::Attributes wide_attributes = the_case.attributes;
  if (op->arguments.min_inputs() == 0) {
    wide_attributes.emplace_back("dtype", Value::text("float64"));
    std::sort(wide_attributes.begin(), wide_attributes.end(),
              [](const auto& a, const auto& b) { return a.first < b.first; });
  }
  const Tensors wide_inputs = in_float64(the_case.inputs);
  const Applied wide = apply(the_case, wide_inputs, wide_attributes);
  Tensors magnitudes;
  for (const Tensor& input : wide_inputs) magnitudes.push_back(without_signs(input));
  const bool has_signs = the_case.mean == 0;  // else the terms are what they are without signs
  const Applied terms =
      the_case.scale == Scale::kTerms && has_signs ? apply(the_case, magnitudes, wide_attributes) : wide;
  Errors errors;
  for (size_t i = 0; i < wide.outputs.size(); ++i) {
    errors.output = std::max(
        errors.output, error_of(narrow.outputs[i], wide.outputs[i], without_signs(terms.outputs[i]), the_case.scale));
  }
  for (size_t i = 0; i < wide.gradients.size(); ++i) {
    if (!wide.gradients[i]) continue;
    const double error = error_of(narrow.gradients[i], wide.gradients[i], terms.gradients[i], Scale::kLargest);
    errors.gradient = std::max(errors.gradient, error / condition_of_gradient(the_case, wide));
  }
  return errors;
}

// "sum", and where an op has several cases "sum[100000, 10]" as well.
std::string title(const PrecisionCase& the_case) {
  std::string shape = the_case.inputs.empty() ? "" : to_string(the_case.inputs.back().shape());
  return fmt::format("{} {} {} {}", the_case.op, shape, the_case.size, the_case.mean);
}

void check_every_op(int64_t size) {
  std::ifstream file(DISTAG_TEST_DATA "/precision.json");
  const auto peer = nlohmann::json::parse(file);
  fmt::print("{:60} {:>10} {:>10} {:>10} {:>10}\n", "errors in eps: op, last input, numbers, their mean", "output",
             "gradient", "PyTorch", "gradient");
  // Blocks that go back to the system each time would take longer than the ops.
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
  for_each_precision_case(size, [&peer](const PrecisionCase& the_case) {
    const std::string name = title(the_case);
    const Errors errors = errors_of(the_case);
    const auto there = peer.find(name);
    const auto number = [&](size_t i) {
      return there == peer.end() ? "" : fmt::format("{:.3g}", (*there)[i].get<double>());
    };
    fmt::print("{:60} {:>10.3g} {:>10.3g} {:>10} {:>10}\n", name, errors.output, errors.gradient, number(0), number(1));
    EXPECT_LE(errors.output, kMostEpsilons) << name;
    EXPECT_LE(errors.gradient, kMostEpsilons) << name;
  });
}

TEST(PrecisionTest, OfEveryOpOnAThousandNumbers) { check_every_op(1000); }

TEST(PrecisionTest, OfEveryOpOnAHundredThousand) { check_every_op(100'000); }

// ctest -C long. Sums of 10^5 terms take all paths of the longer ones; this takes minutes where memory is slow.
TEST(LongPrecisionTest, OfEveryOpOnTenMillion) { check_every_op(10'000'000); }

TEST(PrecisionTest, HasACaseForEveryOp) {
  std::set<std::string> there;
  for_each_precision_case(1000, [&there](const PrecisionCase& the_case) { there.insert(the_case.op); });
  for (const ops::Op* op : ops::builtins()) EXPECT_EQ(there.count(op->name), 1u) << op->name;
}

}  // namespace
}  // namespace distag::testing
