// Each curve has the same bits by each instruction set of this machine.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "ops/elementwise.h"
#include "ops/gelu.h"
#include "ops/math.h"

namespace distag::ops {
namespace {

// Numbers of all sizes and signs, of which 5 are infinite or NaN.
template <typename T>
std::vector<T> numbers() {
  std::vector<T> result;
  for (int exponent = -130; exponent <= 130; ++exponent) {
    for (int step = 0; step < 37; ++step) {
      const T magnitude = std::ldexp(T(1) + T(step) / T(37), exponent);
      result.push_back(step % 2 == 0 ? magnitude : -magnitude);
    }
  }
  for (const T x : {T(0), T(-0.0), std::numeric_limits<T>::infinity(), -std::numeric_limits<T>::infinity(),
                    std::numeric_limits<T>::quiet_NaN()}) {
    result.push_back(x);
  }
  return result;
}

template <typename T, typename F>
std::vector<std::vector<T>> values_by_each_set(const F& f, const std::vector<T>& x) {
  using Kernel = RowExpression<F, T, T>;
  const auto count = static_cast<int64_t>(x.size());
  std::vector<std::vector<T>> results(1, std::vector<T>(x.size()));
  simd::run_baseline<Kernel, const void*, T*, int64_t, unsigned, const T*>(&f, results[0].data(), count, 0, x.data());
#if defined(__x86_64__)
  if (simd::registers() != simd::Registers::kBaseline) {
    results.emplace_back(x.size());
    simd::run_avx2<Kernel, const void*, T*, int64_t, unsigned, const T*>(&f, results.back().data(), count, 0, x.data());
  }
  if (simd::registers() == simd::Registers::kAvx512) {
    results.emplace_back(x.size());
    simd::run_avx512<Kernel, const void*, T*, int64_t, unsigned, const T*>(&f, results.back().data(), count, 0,
                                                                           x.data());
  }
#endif
  return results;
}

template <typename T, typename Curve>
void check_curve(const char* name, Curve curve) {
  const std::vector<T> x = numbers<T>();
  const auto f = [curve](const auto& row) { return each(curve, row); };
  const std::vector<std::vector<T>> results = values_by_each_set<T>(f, x);
  for (size_t set = 1; set < results.size(); ++set) {
    for (size_t i = 0; i < x.size(); ++i) {
      if (std::isnan(results[0][i]) && std::isnan(results[set][i])) continue;
      ASSERT_EQ(std::memcmp(&results[0][i], &results[set][i], sizeof(T)), 0)
          << name << " of " << x[i] << ": " << results[0][i] << " and " << results[set][i] << " by set " << set;
    }
  }
}

template <typename T>
void check_curves() {
  check_curve<T>("exp", math::Exp());
  check_curve<T>("log", math::Log());
  check_curve<T>("tanh", math::Tanh());
  check_curve<T>("sigmoid", math::Sigmoid());
  check_curve<T>("tanh's slope", math::TanhSlope());
  check_curve<T>("sigmoid's slope", math::SigmoidSlope());
  check_curve<T>("silu", math::Silu());
  check_curve<T>("silu's slope", math::SiluSlope());
  check_curve<T>("erf", math::Erf());
  check_curve<T>("erf's slope", math::ErfSlope());
  check_curve<T>("sin", math::Any<math::Sin>());
  check_curve<T>("cos", math::Any<math::Cos>());
  check_curve<T>("expm1", math::Expm1NotPositive());
  check_curve<T>("softplus", math::Softplus());
  check_curve<T>("gelu", math::Gelu());
  check_curve<T>("gelu's slope", math::GeluSlope());
}

TEST(InstructionSetsTest, CurvesHaveTheSameBitsInFloat32) { check_curves<float>(); }
TEST(InstructionSetsTest, CurvesHaveTheSameBitsInFloat64) { check_curves<double>(); }

}  // namespace
}  // namespace distag::ops
