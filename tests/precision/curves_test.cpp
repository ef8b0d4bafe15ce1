// Curves and their slopes beside exact numbers over their whole range, in units in the last place: tails, subnormal
// numbers and what has no digits left in 1 included.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <set>

#include "precision/exact.h"
#include "precision/exact_rows.h"
#include "support/tensors.h"

namespace distag::testing {
namespace {

using ops::Attributes;
using ops::make_attributes;

template <typename T>
using Numbers = std::vector<T>;

template <typename T>
struct Range;

template <>
struct Range<float> {
  using Bits = uint32_t;
  static constexpr int kMantissa = 23;
  static constexpr Bits kExponents = 255;
  static constexpr float kEnds[] = {20, 120};
};

template <>
struct Range<double> {
  using Bits = uint64_t;
  static constexpr int kMantissa = 52;
  static constexpr Bits kExponents = 2047;
  static constexpr double kEnds[] = {45, 800};
};

// Some numbers of each exponent, of both signs, and steps between the ends, where curves bend.
template <typename T>
Numbers<T> numbers_of_the_range() {
  using Bits = typename Range<T>::Bits;
  constexpr Bits kPerExponent = 24000 / Range<T>::kExponents;
  constexpr Bits kSign = Bits{1} << (8 * sizeof(T) - 1);
  Numbers<T> numbers = {T(0), T(-0.0), T(1), T(-1), std::numeric_limits<T>::max(), std::numeric_limits<T>::lowest()};
  Bits mantissa = 1;
  for (Bits exponent = 0; exponent < Range<T>::kExponents; ++exponent) {
    for (Bits i = 0; i < kPerExponent; ++i) {
      mantissa = static_cast<Bits>(mantissa * Bits{0x9E3779B97F4A7C15U & ~Bits{0}} + 12345);
      const Bits bits = exponent << Range<T>::kMantissa | mantissa >> (8 * sizeof(T) - Range<T>::kMantissa);
      numbers.push_back(std::bit_cast<T>(bits));
      numbers.push_back(std::bit_cast<T>(static_cast<Bits>(bits | kSign)));
    }
  }
  for (const T end : Range<T>::kEnds) {
    for (int i = -12000; i <= 12000; ++i) numbers.push_back(end * (static_cast<T>(i) / T(12001)));
  }
  return numbers;
}

template <typename T>
struct Results {
  Numbers<T> values;
  Numbers<T> slopes;  // of input 0
};

// An op and its gradient, from seeds of 1 where none are given.
template <typename T>
Results<T> results_of(const std::string& name, const Tensors& inputs, const Attributes& given, Tensor seed = {}) {
  const ops::Op* op = ops::find_op(name);
  Attributes attributes = given;
  ops::check_arguments(*op, inputs, attributes);
  ops::Saved saved;
  saved.needed = ~uint64_t{0};
  const Tensor y = op->forward(inputs, attributes, &saved)[0];
  if (!seed) seed = tensor_of<T>(y.shape(), Numbers<T>(static_cast<size_t>(y.count()), T(1)));
  return {values_of<T>(y), values_of<T>(op->backward(saved, {seed})[0])};
}

// The largest error of many, and where it is.
template <typename T>
class Worst {
 public:
  void take(T x, T actual, long double exact, long double size = 0) {
    const double error = error_in_ulp(actual, exact, size);
    if (error <= error_) return;
    error_ = error;
    at_ = fmt::format("{} ulp at {}: {}, exactly {}", error, x, actual, static_cast<double>(exact));
  }
  void expect_below(double limit, const std::string& what) const {
    fmt::print("{:60} {:10.3g}\n", what, error_);
    EXPECT_LE(error_, limit) << what << ": " << at_;
  }

 private:
  double error_ = 0;
  std::string at_;
};

template <typename T>
constexpr const char* kDtype = std::is_same_v<T, float> ? "float32" : "float64";

template <typename T>
void check_curve(const ExactCurve& curve, const Numbers<T>& x) {
  const Tensor input = tensor_of<T>({static_cast<int64_t>(x.size())}, x);
  const Results<T> results = results_of<T>(curve.op, {input}, curve.attributes);
  Worst<T> value;
  Worst<T> slope;
  for (size_t i = 0; i < x.size(); ++i) {
    const auto at = static_cast<long double>(x[i]);
    value.take(x[i], results.values[i], curve.value(at));
    slope.take(x[i], results.slopes[i], curve.slope(at), curve.slope_terms == nullptr ? 0 : curve.slope_terms(at));
  }
  value.expect_below(curve.value_ulp, fmt::format("{} {}", curve.op, kDtype<T>));
  slope.expect_below(curve.slope_ulp, fmt::format("slope of {} {}", curve.op, kDtype<T>));
}

template <typename T>
class CurvesTest : public ::testing::Test {};

using Dtypes = ::testing::Types<float, double>;
TYPED_TEST_SUITE(CurvesTest, Dtypes);

TYPED_TEST(CurvesTest, AreExactOverTheWholeRange) {
  const Numbers<TypeParam> x = numbers_of_the_range<TypeParam>();
  for (const ExactCurve& curve : exact_curves()) check_curve<TypeParam>(curve, x);
}

// Value and slope at -infinity and infinity.
struct Limits {
  const char* op;
  double values[2];
  double slopes[2];
};

TYPED_TEST(CurvesTest, AreTheirLimitsAtInfinityAndKeepNan) {
  using T = TypeParam;
  constexpr double kInf = std::numeric_limits<double>::infinity();
  const Limits limits[] = {
      {"exp", {0, kInf}, {0, kInf}},  {"erf", {-1, 1}, {0, 0}},       {"tanh", {-1, 1}, {0, 0}},
      {"sigmoid", {0, 1}, {0, 0}},    {"silu", {-0.0, kInf}, {0, 1}}, {"softplus", {0, kInf}, {0, 1}},
      {"gelu", {-0.0, kInf}, {0, 1}}, {"elu", {-1, kInf}, {0, 1}},    {"reciprocal", {-0.0, 0}, {0, 0}},
  };
  const Tensor x = tensor_of<T>({2}, {T(-kInf), T(kInf)});
  for (const Limits& limit : limits) {
    const Results<T> results = results_of<T>(limit.op, {x}, {});
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(results.values[i], T(limit.values[i])) << limit.op << " " << i;
      EXPECT_EQ(results.slopes[i], T(limit.slopes[i])) << limit.op << " " << i;
      EXPECT_EQ(std::signbit(results.values[i]), std::signbit(limit.values[i])) << limit.op << " " << i;
    }
  }
  const Tensor none = tensor_of<T>({1}, {std::numeric_limits<T>::quiet_NaN()});
  for (const ExactCurve& curve : exact_curves()) {
    const Results<T> results = results_of<T>(curve.op, {none}, {});
    EXPECT_TRUE(std::isnan(results.values[0])) << curve.op;
    EXPECT_TRUE(std::isnan(results.slopes[0]) || curve.op == "elu") << curve.op;
  }
}

TYPED_TEST(CurvesTest, LossesOfLogitsAreExactOverTheWholeRange) {
  using T = TypeParam;
  const Numbers<T> x = numbers_of_the_range<T>();
  const auto count = static_cast<int64_t>(x.size());
  const Tensor logits = tensor_of<T>({count}, x);
  for (const double target : {0.0, 1.0, 0.25}) {
    const Tensor targets = tensor_of<T>({count}, Numbers<T>(x.size(), T(target)));
    const Results<T> results =
        results_of<T>("binary_cross_entropy_with_logits", {logits, targets}, make_attributes({{"reduction", "none"}}));
    Worst<T> value;
    Worst<T> slope;
    for (size_t i = 0; i < x.size(); ++i) {
      const auto at = static_cast<long double>(x[i]);
      const long double share = at > 0 ? 1 - target : -target;
      const long double exact = at > 0 ? share - share_with(at) : share_with(-at) + share;
      value.take(x[i], results.values[i], (share == 0 ? 0 : at * share) + log_sum_with(fabsl(at)));
      slope.take(x[i], results.slopes[i], exact, target == 0.25 ? 0.25L : 0);
    }
    value.expect_below(3, fmt::format("binary_cross_entropy of {} {}", target, kDtype<T>));
    slope.expect_below(4, fmt::format("slope of binary_cross_entropy of {} {}", target, kDtype<T>));
  }
}

// Rows [-d, 0] for d of all sizes, subnormal ones too.
template <typename T>
struct Rows {
  Numbers<T> distances;
  Tensor x;
  int64_t count;

  Rows() {
    for (const T number : numbers_of_the_range<T>()) {
      if (number >= 0 && number < T(1e4)) distances.push_back(number);
    }
    count = static_cast<int64_t>(distances.size());
    Numbers<T> elements;
    for (const T d : distances) elements.insert(elements.end(), {-d, T(0)});
    x = tensor_of<T>({count, 2}, elements);
  }
};

using OfDistance = std::function<long double(long double d)>;

template <typename T>
void check_rows(const Rows<T>& rows, const Numbers<T>& actual, size_t width, size_t place, const OfDistance& exact,
                double ulp, const std::string& what) {
  Worst<T> worst;
  for (size_t r = 0; r < rows.distances.size(); ++r) {
    worst.take(rows.distances[r], actual[r * width + place], exact(static_cast<long double>(rows.distances[r])));
  }
  worst.expect_below(ulp, what + " " + kDtype<T>);
}

// A seed of 1 for element `place` of each row.
template <typename T>
Tensor seed_of(const Rows<T>& rows, size_t place) {
  Numbers<T> seed(2 * rows.distances.size(), T(0));
  for (size_t r = 0; r < rows.distances.size(); ++r) seed[2 * r + place] = T(1);
  return tensor_of<T>({rows.count, 2}, seed);
}

TYPED_TEST(CurvesTest, LogarithmsOfSumsHaveAllDigitsBelowOne) {
  using T = TypeParam;
  const Rows<T> rows;
  const auto last = make_attributes({{"dims", Dims{1}}});
  const Results<T> sums = results_of<T>("logsumexp", {rows.x}, last);
  check_rows<T>(rows, sums.values, 1, 0, log_sum_with, 3, "logsumexp");
  check_rows<T>(rows, sums.slopes, 2, 0, share_with, 3, "slope of logsumexp");
  for (const size_t place : {size_t{0}, size_t{1}}) {
    const Results<T> logs = results_of<T>("log_softmax", {rows.x}, {}, seed_of(rows, place));
    check_rows<T>(
        rows, logs.values, 2, 1, [](long double d) { return -log_sum_with(d); }, 3, "log_softmax");
    const double sign = place == 0 ? -1 : 1;
    check_rows<T>(
        rows, logs.slopes, 2, 1,
        [sign, place](long double d) { return place == 0 ? sign * (1 - share_with(d)) : share_with(d); }, 4,
        fmt::format("slope of log_softmax {} in the largest", place));
    const Results<T> shares = results_of<T>("softmax", {rows.x}, {}, seed_of(rows, place));
    for (const size_t of : {size_t{0}, size_t{1}}) {
      const double turned = of == place ? 1 : -1;
      check_rows<T>(
          rows, shares.slopes, 2, of, [turned](long double d) { return turned * slope_with(d); }, 4,
          fmt::format("slope of softmax {} in {}", place, of));
    }
  }
}

TYPED_TEST(CurvesTest, CrossEntropiesOfConfidentRowsKeepTheirDigits) {
  using T = TypeParam;
  const Rows<T> rows;
  for (const int64_t target : {int64_t{0}, int64_t{1}}) {
    const Tensor targets =
        tensor_of<int64_t>({rows.count}, std::vector<int64_t>(static_cast<size_t>(rows.count), target));
    const Results<T> results =
        results_of<T>("cross_entropy", {rows.x, targets}, make_attributes({{"reduction", "none"}}));
    const auto loss = [target](long double d) { return log_sum_with(d) + (target == 1 ? 0 : d); };
    const auto of_small = [target](long double d) { return target == 1 ? share_with(d) : share_with(d) - 1; };
    check_rows<T>(rows, results.values, 1, 0, loss, 3, fmt::format("cross_entropy of {}", target));
    check_rows<T>(rows, results.slopes, 2, 0, of_small, 4, fmt::format("slope of cross_entropy of {} in 0", target));
    check_rows<T>(
        rows, results.slopes, 2, 1, [of_small](long double d) { return -of_small(d); }, 4,
        fmt::format("slope of cross_entropy of {} in 1", target));
  }
}

// ---- ops on rows ----------------------------------------------------------------------------------------------------

// The seed of each element of a result.
constexpr double kSeeds[] = {1, -0.5, 2, 0.25, -1.5, 0.75};

// The rows of a case in T, and what the op makes of them.
template <typename T>
class RowResults {
 public:
  explicit RowResults(const ExactRows& rows) : rows_(rows) {
    for (const std::vector<double>& row : rows.rows(std::is_same_v<T, float>))
      numbers_.emplace_back(row.begin(), row.end());
    Tensors inputs;
    size_t begin = 0;
    for (const Dims& dims : rows.inputs) {
      inputs.push_back(input_of(dims, begin));
      begin += static_cast<size_t>(element_count(dims));
    }
    if (rows.target)
      inputs.push_back(tensor_of<int64_t>({count()}, std::vector<int64_t>(numbers_.size(), *rows.target)));
    apply(inputs);
  }

  int64_t count() const { return static_cast<int64_t>(numbers_.size()); }
  const Numbers<T>& row(size_t r) const { return numbers_[r]; }
  // Element `place` of row r of the result; of the gradients of the inputs, one after the other.
  T value(size_t r, size_t place) const { return element(values_, width_, r, place); }
  T slope(size_t r, size_t place) const {
    size_t input = 0;
    for (size_t size = 0; place >= (size = static_cast<size_t>(element_count(rows_.inputs[input]))); ++input)
      place -= size;
    return element(slopes_[input], static_cast<size_t>(element_count(rows_.inputs[input])), r, place);
  }

 private:
  T element(const Numbers<T>& of, size_t width, size_t r, size_t place) const {
    return of[rows_.are_columns ? place * numbers_.size() + r : r * width + place];
  }
  Tensor input_of(const Dims& dims, size_t begin) const {
    const auto width = static_cast<size_t>(element_count(dims));
    Numbers<T> elements(width * numbers_.size());
    for (size_t r = 0; r < numbers_.size(); ++r) {
      for (size_t i = 0; i < width; ++i) {
        elements[rows_.are_columns ? i * numbers_.size() + r : r * width + i] = numbers_[r][begin + i];
      }
    }
    Dims shape;
    if (!rows_.are_columns) shape.push_back(count());
    for (const int64_t size : dims) shape.push_back(size);
    if (rows_.are_columns) shape.push_back(count());
    return tensor_of<T>(shape, elements);
  }
  void apply(const Tensors& inputs) {
    const ops::Op* op = ops::find_op(rows_.op);
    ops::check_arguments(*op, inputs, rows_.attributes);
    ops::Saved saved;
    saved.needed = ~uint64_t{0};
    const Tensor y = op->forward(inputs, rows_.attributes, &saved)[0];
    values_ = values_of<T>(y);
    width_ = values_.size() / numbers_.size();
    Numbers<T> seed(values_.size());
    for (size_t i = 0; i < seed.size(); ++i) {
      const size_t place = rows_.are_columns ? i / numbers_.size() : i % width_;
      seed[i] = T(kSeeds[place % std::size(kSeeds)]);
    }
    const Tensors gradients = op->backward(saved, {tensor_of<T>(y.shape(), seed)});
    for (size_t i = 0; i < rows_.inputs.size(); ++i) slopes_.push_back(values_of<T>(gradients[i]));
  }

  const ExactRows& rows_;
  std::vector<Numbers<T>> numbers_;
  Numbers<T> values_;
  std::vector<Numbers<T>> slopes_;
  size_t width_ = 0;
};

// The exact results of a row, each with the size that its error is measured against.
struct ExactResults {
  std::vector<Wide> values;
  std::vector<Wide> value_sizes;
  std::vector<Wide> slopes;
  std::vector<Wide> slope_sizes;

  ExactResults(const ExactRows& rows, ExactNumbers x) {
    const auto condition = [&](size_t i, size_t j) {
      return rows.condition == nullptr ? Wide(1) : rows.condition(x, i, j);
    };
    for (const Exact& y : rows.value(x)) values.push_back(y.value);
    for (size_t j = 0; j < values.size(); ++j) {
      value_sizes.push_back(without_sign(values[j]));
      if (rows.value_size != nullptr) value_sizes[j] = std::max(value_sizes[j], rows.value_size(x, j));
    }
    for (size_t i = 0; i < x.size(); ++i) {
      x[i].slope = 1;
      const ExactNumbers y = rows.value(x);
      x[i].slope = 0;
      Wide sum = 0;
      Wide size = rows.slope_size == nullptr ? Wide(0) : rows.slope_size(x, i);
      Wide terms = 0;
      for (size_t j = 0; j < y.size(); ++j) {
        const Wide term = y[j].slope * Wide(kSeeds[j % std::size(kSeeds)]);
        sum += term;
        terms += without_sign(term) * condition(i, j);
      }
      slopes.push_back(sum);
      slope_sizes.push_back(std::max(size, terms));
    }
    if (!rows.is_of_largest) return;
    for (auto* sizes : {&value_sizes, &slope_sizes}) {
      const Wide largest = *std::max_element(sizes->begin(), sizes->end());
      sizes->assign(sizes->size(), largest);
    }
  }
};

template <typename T>
void check_rows(const ExactRows& rows) {
  const RowResults<T> results(rows);
  Worst<T> value;
  Worst<T> slope;
  for (size_t r = 0; r < static_cast<size_t>(results.count()); ++r) {
    ExactNumbers x;
    for (const T number : results.row(r)) x.emplace_back(static_cast<Wide>(number));
    const ExactResults exact(rows, x);
    const auto take = [&](Worst<T>& worst, T actual, Wide wanted, Wide size) {
      worst.take(results.row(r)[0], actual, static_cast<long double>(wanted), static_cast<long double>(size));
    };
    for (size_t j = 0; j < exact.values.size(); ++j)
      take(value, results.value(r, j), exact.values[j], exact.value_sizes[j]);
    for (size_t i = 0; i < x.size(); ++i) take(slope, results.slope(r, i), exact.slopes[i], exact.slope_sizes[i]);
  }
  const std::string name = fmt::format("{} {} {}", rows.op, rows.range, kDtype<T>);
  value.expect_below(rows.value_ulp, name);
  slope.expect_below(rows.slope_ulp, "slope of " + name);
}

TYPED_TEST(CurvesTest, OpsThatContainOneAreExactWhereDigitsCancel) {
  for (const ExactRows& rows : exact_rows()) check_rows<TypeParam>(rows);
}

// Ops that round each result once, or as a sum does (precision_test.cpp), choose or move elements, or draw them.
constexpr const char* kWithoutCurve[] = {"zeros",
                                         "ones",
                                         "full",
                                         "arange",
                                         "rand",
                                         "randn",
                                         "add",
                                         "sub",
                                         "mul",
                                         "div",
                                         "maximum",
                                         "eq",
                                         "add_scalar",
                                         "mul_scalar",
                                         "neg",
                                         "relu",
                                         "sum",
                                         "mean",
                                         "max",
                                         "argmax",
                                         "matmul",
                                         "linear",
                                         "transpose",
                                         "reshape",
                                         "slice",
                                         "concat",
                                         "conv2d",
                                         "max_pool2d",
                                         "cast",
                                         "clone",
                                         "detach",
                                         "abs",
                                         "square",
                                         "clamp",
                                         "leaky_relu",
                                         "permute",
                                         "expand",
                                         "squeeze",
                                         "unsqueeze",
                                         "stack",
                                         "split",
                                         "flip",
                                         "pad",
                                         "tril",
                                         "cumsum",
                                         "where",
                                         "gather",
                                         "index_select",
                                         "embedding",
                                         "amin",
                                         "nll_loss",
                                         "l1_loss",
                                         "dropout",
                                         "gt",
                                         "ge",
                                         "lt",
                                         "le",
                                         "ne",
                                         "logical_and",
                                         "logical_or",
                                         "logical_not",
                                         "minimum",
                                         "masked_fill",
                                         "floor",
                                         "round",
                                         "sign",
                                         "triu",
                                         "any",
                                         "all",
                                         "one_hot",
                                         "topk",
                                         "index_add",
                                         "scatter_add",
                                         "nonzero",
                                         "sort",
                                         "avg_pool2d",
                                         "adaptive_avg_pool2d",
                                         "conv1d",
                                         "conv_transpose2d",
                                         "repeat",
                                         "interpolate",
                                         "min_with_indices",
                                         "max_with_indices"};

TEST(CurvesTableTest, HoldsEveryOpAgainstExactNumbersUnlessItHasNoCurve) {
  std::multiset<std::string> named(std::begin(kWithoutCurve), std::end(kWithoutCurve));
  std::set<std::string> held;
  for (const ExactCurve& curve : exact_curves()) held.insert(curve.op);
  for (const ExactRows& rows : exact_rows()) held.insert(rows.op);
  for (const ops::Op* op : ops::builtins()) {
    EXPECT_EQ(named.count(op->name) + held.count(op->name), 1U) << op->name << ": give it a row of exact numbers";
  }
  EXPECT_EQ(named.size() + held.size(), ops::builtins().size());
}

}  // namespace
}  // namespace distag::testing
