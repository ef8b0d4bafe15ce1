#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>

#include "support/sim_group.h"

namespace distag::sim {
namespace {

uint64_t number_from_environment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kIsSanitized = true;
#else
constexpr bool kIsSanitized = false;
#endif
// Under sanitizers everything takes ten times as long: a sweep has a tenth of its seeds, but no fewer than these.
constexpr uint64_t kFew = 100;

}  // namespace

bool for_each_seed(uint64_t count, const std::function<void(uint64_t seed)>& body) {
  const uint64_t only = number_from_environment("DISTAG_SIM_SEED", 0);
  const uint64_t first = only != 0 ? only : number_from_environment("DISTAG_SIM_FIRST", 1);
  const uint64_t usual = kIsSanitized ? std::max(count / 10, std::min(count, kFew)) : count;
  const uint64_t last = only != 0 ? only : first - 1 + number_from_environment("DISTAG_SIM_COUNT", usual);
  if (std::getenv("DISTAG_SIM_FIRST") != nullptr) std::cout << "seeds: " << first << " to " << last << std::endl;
  for (uint64_t seed = first; seed <= last; ++seed) {
    try {
      body(seed);
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what();
    }
    if (!testing::Test::HasFailure()) continue;
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    std::cout << "replay: DISTAG_SIM_SEED=" << seed << " sim_tests --gtest_filter=" << test->test_suite_name() << "."
              << test->name() << std::endl;
    return false;
  }
  return last + 1 - first >= usual;
}

}  // namespace distag::sim
