#include "base/idle_checks.h"

#include <gtest/gtest.h>

#include <functional>

namespace distag {
namespace {

int run(IdleChecks& checks) {
  int answers = 0;
  checks.each([&answers](const std::function<bool()>& check) { answers += check() ? 1 : 0; });
  return answers;
}

TEST(IdleChecksTest, ACheckMayRemoveItselfAndOthersWhileTheyRun) {
  IdleChecks checks;
  uint64_t first = 0, second = 0;
  first = checks.add([&checks, &first, &second] {
    checks.remove(first);
    checks.remove(second);
    return true;
  });
  second = checks.add([] { return true; });
  checks.add([] { return true; });
  EXPECT_EQ(run(checks), 2);
  EXPECT_EQ(run(checks), 1);
}

TEST(IdleChecksTest, ACheckThatIsAddedMeanwhileHasItsTurn) {
  IdleChecks checks;
  bool is_added = false;
  checks.add([&checks, &is_added] {
    if (!is_added) checks.add([] { return true; });
    is_added = true;
    return false;
  });
  EXPECT_EQ(run(checks), 1);
}

}  // namespace
}  // namespace distag
