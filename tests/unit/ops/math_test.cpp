#include "ops/math.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "apply_op.h"

namespace distag::ops {
namespace {

// Distance of a result from the exact value, in units of the last place of the latter.
template <typename T>
double error_in_ulp(T actual, long double exact) {
  T rounded = static_cast<T>(exact);
  T ulp = std::nextafter(std::fabs(rounded), std::numeric_limits<T>::infinity()) - std::fabs(rounded);
  return static_cast<double>(std::fabs(static_cast<long double>(actual) - exact) / static_cast<long double>(ulp));
}

template <typename T>
double worst_error(T low, T high, T (*function)(T), long double (*exact)(long double)) {
  double worst = 0;
  for (int i = 0; i <= 20000; ++i) {
    T x = low + (high - low) * (static_cast<T>(i) / T(20000));
    worst = std::max(worst, error_in_ulp(function(x), exact(static_cast<long double>(x))));
  }
  return worst;
}

template <typename T>
void check_precision(T exp_low, T exp_high) {
  EXPECT_LT(worst_error<T>(exp_low, exp_high, math::exp<T>, expl), 1.5);
  EXPECT_LT(worst_error<T>(T(-0.01), T(0.01), math::exp<T>, expl), 1.0);
  EXPECT_LT(worst_error<T>(T(1e-30), T(1e-28), math::log<T>, logl), 1.5);
  EXPECT_LT(worst_error<T>(T(0.5), T(2), math::log<T>, logl), 1.5);
  EXPECT_LT(worst_error<T>(T(-10), T(10), math::tanh<T>, tanhl), 3.0);
  EXPECT_LT(worst_error<T>(T(-0.001), T(0.001), math::tanh<T>, tanhl), 3.0);
}

TEST(MathTest, IsPrecise) {
  check_precision<float>(-87.0f, 88.0f);
  check_precision<double>(-708.0, 709.0);
}

template <typename T>
void check_curves() {
  const auto expm1 = [](T x) { return math::Expm1NotPositive()(x); };
  const auto softplus = [](T x) { return math::Softplus()(x); };
  const auto softplus_exact = [](long double x) { return log1pl(expl(-fabsl(x))) + (x > 0 ? x : 0); };
  EXPECT_LT(worst_error<T>(T(-1), T(1), math::erf<T>, erfl), 2.0);
  EXPECT_LT(worst_error<T>(T(-7), T(7), math::erf<T>, erfl), 2.0);
  EXPECT_LT(worst_error<T>(T(-1e-5), T(1e-5), math::erf<T>, erfl), 2.0);
  EXPECT_LT(worst_error<T>(T(-90), T(0), +expm1, expm1l), 2.0);
  EXPECT_LT(worst_error<T>(T(-1e-3), T(0), +expm1, expm1l), 2.0);
  EXPECT_LT(worst_error<T>(T(-40), T(80), +softplus, +softplus_exact), 2.0);
  EXPECT_LT(worst_error<T>(T(-1), T(1), +softplus, +softplus_exact), 2.0);
  for (const T range : {T(1), T(100), T(0x1p20)}) {
    EXPECT_LT(worst_error<T>(-range, range, math::sine<0, T>, sinl), 2.0);
    EXPECT_LT(worst_error<T>(-range, range, math::sine<1, T>, cosl), 2.0);
  }
}

TEST(MathTest, CurvesArePrecise) {
  check_curves<float>();
  check_curves<double>();
}

TEST(MathTest, CurvesOfSpecialNumbersAreTheirLimits) {
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(math::erf(infinity), 1);
  EXPECT_EQ(math::erf(-infinity), -1);
  EXPECT_TRUE(std::signbit(math::erf(-0.0)));
  EXPECT_EQ(math::Expm1NotPositive()(-infinity), -1);
  EXPECT_TRUE(std::signbit(math::Expm1NotPositive()(-0.0)));
  EXPECT_EQ(math::Softplus()(infinity), infinity);
  EXPECT_EQ(math::Softplus()(-infinity), 0);
  EXPECT_TRUE(std::isnan(math::Any<math::Sin>()(infinity)));
  EXPECT_TRUE(std::isnan(math::Any<math::Cos>()(std::nan(""))));
  EXPECT_EQ(math::Any<math::Sin>()(1e22), static_cast<double>(sinl(1e22L)));
  EXPECT_EQ(math::Any<math::MinusSin>()(-1e22f), static_cast<float>(sinl(static_cast<long double>(1e22f))));
  for (const auto curve : {+[](double x) { return math::erf(x); }, +[](double x) { return math::Softplus()(x); },
                           +[](double x) { return math::Expm1NotPositive()(x); }}) {
    EXPECT_TRUE(std::isnan(curve(std::nan(""))));
  }
}

// Every 1,009th float from -0 on, with infinity and NaN at the end; of doubles those with the same upper half.
template <typename T>
void check_exp_not_positive(T (*number_of)(uint32_t)) {
  int64_t differ = 0;
  for (uint64_t bits = 0x80000000; bits <= 0xffffffff; bits += 1009) {
    const T x = number_of(static_cast<uint32_t>(bits));
    const T expected = math::exp(x), actual = math::exp_not_positive(x);
    differ += std::isnan(expected) ? !std::isnan(actual) : !(expected == actual);
  }
  EXPECT_EQ(differ, 0);
}

TEST(MathTest, TheShorterExpHasTheSameBits) {
  check_exp_not_positive<float>([](uint32_t bits) { return std::bit_cast<float>(bits); });
  check_exp_not_positive<double>([](uint32_t bits) { return std::bit_cast<double>(uint64_t{bits} << 32 | 12345); });
  EXPECT_EQ(math::exp_not_positive(0.0f), 1.0f);
  EXPECT_EQ(math::exp_not_positive(-std::numeric_limits<double>::infinity()), 0.0);
}

template <typename T>
void check_ends() {
  constexpr T kInfinity = std::numeric_limits<T>::infinity();
  EXPECT_EQ(math::exp(kInfinity), kInfinity);
  EXPECT_EQ(math::exp(-kInfinity), T(0));
  EXPECT_EQ(math::exp(std::numeric_limits<T>::max()), kInfinity);
  EXPECT_EQ(math::exp(std::numeric_limits<T>::lowest()), T(0));
  EXPECT_EQ(math::exp(T(0)), T(1));
  EXPECT_TRUE(std::isnan(math::exp(std::numeric_limits<T>::quiet_NaN())));
  EXPECT_EQ(math::log(T(0)), -kInfinity);
  EXPECT_EQ(math::log(T(1)), T(0));
  EXPECT_EQ(math::log(kInfinity), kInfinity);
  EXPECT_TRUE(std::isnan(math::log(T(-1))));
  EXPECT_TRUE(std::isnan(math::log(std::numeric_limits<T>::quiet_NaN())));
  EXPECT_LT(error_in_ulp(math::log(std::numeric_limits<T>::denorm_min()),
                         logl(static_cast<long double>(std::numeric_limits<T>::denorm_min()))),
            1.5);
  EXPECT_EQ(math::tanh(kInfinity), T(1));
  EXPECT_EQ(math::tanh(-kInfinity), T(-1));
  EXPECT_TRUE(std::signbit(math::tanh(T(-0.0))));
  EXPECT_TRUE(std::isnan(math::tanh(std::numeric_limits<T>::quiet_NaN())));
  EXPECT_EQ(math::sigmoid(T(-1000)), T(0));
  EXPECT_EQ(math::sigmoid(T(1000)), T(1));
  EXPECT_EQ(math::sigmoid(T(0)), T(0.5));
}

TEST(MathTest, IsRightAtTheEnds) {
  check_ends<float>();
  check_ends<double>();
}

// Vectorised rows and single elements are the same function.
TEST(MathTest, GivesTheSameBitsInEveryPlaceOfARow) {
  for (const char* op : {"exp", "log", "tanh", "sigmoid"}) {
    Tensor row = Tensor::empty(Dtype::kFloat32, Dims{67});
    for (int64_t i = 0; i < 67; ++i) row.mutable_data_as<float>()[i] = 0.01f + static_cast<float>(i) * 0.37f;
    auto together = testing::floats_of(testing::run(op, {row}));
    for (int64_t i = 0; i < 67; ++i) {
      Tensor one = testing::floats({}, {row.data_as<float>()[i]});
      EXPECT_EQ(testing::floats_of(testing::run(op, {one}))[0], together[static_cast<size_t>(i)]) << op << " " << i;
    }
  }
}

TEST(ActivationTest, ComputesIntegersAsFloat32) {
  Tensor y = testing::run("exp", {testing::integers({2}, {0, 1})});
  EXPECT_EQ(y.dtype(), Dtype::kFloat32);
  EXPECT_FLOAT_EQ(testing::floats_of(y)[1], 2.7182817f);
  EXPECT_EQ(testing::run("relu", {testing::integers({2}, {-3, 4})}).dtype(), Dtype::kInt64);
}

TEST(ActivationTest, KeepsNanInRelu) {
  auto y = testing::floats_of(testing::run("relu", {testing::floats({3}, {-1, std::nanf(""), 2})}));
  EXPECT_EQ(y[0], 0);
  EXPECT_TRUE(std::isnan(y[1]));
  EXPECT_EQ(y[2], 2);
}

}  // namespace
}  // namespace distag::ops
