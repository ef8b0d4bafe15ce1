#include "session/debt.h"

#include <gtest/gtest.h>

namespace distag {
namespace {

TEST(DebtTest, GrowsFromItsBeginning) {
  Debt debt;
  EXPECT_FALSE(debt.is_there());
  debt.begin(kSecond);
  debt.begin(2 * kSecond);
  EXPECT_EQ(debt.since(), kSecond);
  debt.settle();
  EXPECT_FALSE(debt.is_there());
  debt.begin(3 * kSecond);
  EXPECT_EQ(debt.since(), 3 * kSecond);
}

TEST(DebtTest, TimeThatIsExcusedDoesNotCount) {
  Debt debt;
  debt.begin(kSecond);
  debt.excuse(5 * kSecond, 2 * kSecond);
  EXPECT_EQ(debt.since(), 3 * kSecond);
  debt.excuse(5 * kSecond, 10 * kSecond);
  EXPECT_EQ(debt.since(), 5 * kSecond);
  debt.begin(6 * kSecond);
  debt.excuse(8 * kSecond, kNever);
  EXPECT_EQ(debt.since(), 8 * kSecond);
}

TEST(DebtTest, OneThatIsPutOffStaysAsOldAsItIs) {
  Debt debt;
  debt.begin(kSecond);
  debt.put_off(4 * kSecond);
  EXPECT_FALSE(debt.is_there());
  debt.excuse(10 * kSecond, 2 * kSecond);
  debt.begin(20 * kSecond);
  EXPECT_EQ(debt.since(), 17 * kSecond);
  debt.put_off(21 * kSecond);
  debt.excuse(22 * kSecond, kNever);
  debt.begin(30 * kSecond);
  EXPECT_EQ(debt.since(), 30 * kSecond);
}

}  // namespace
}  // namespace distag
