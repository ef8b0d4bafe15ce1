#include <gtest/gtest.h>

#include "sharing_group.h"

namespace distag::testing {
namespace {

using Ref = std::shared_ptr<Rref>;

class OwnedTest : public ::testing::Test {
 protected:
  ~OwnedTest() override { home_->gate.close(); }

  Ref share(Value value) {
    const auto owned = home_->make_value({1, ++last_});
    owned->outcome().complete(std::move(value));
    return std::make_shared<Rref>(home_, owned);
  }
  static Value as_value(const Ref& reference) { return Value(std::shared_ptr<ExternalValue>(reference)); }

  OneLoop loop_;
  Log log_;
  std::shared_ptr<RrefHome> home_ = std::make_shared<RrefHome>(loop_, log_);
  uint64_t last_ = 0;
};

TEST_F(OwnedTest, AChainOfAMillionEndsWithItsFirst) {
  Ref first = share(Value(int64_t{1}));
  for (int i = 1; i < 1'000'000; ++i) first = share(as_value(first));
  EXPECT_EQ(home_->table.count(), 1'000'000u);
  first.reset();
  EXPECT_EQ(home_->table.count(), 0u);
}

TEST_F(OwnedTest, WhatOthersHoldOfAChainStays) {
  Ref inner = share(Value(int64_t{1}));
  Ref middle = share(Value::list({as_value(inner), Value::map({{"again", as_value(inner)}})}));
  Ref outer = share(Value::list({as_value(middle), as_value(share(Value(int64_t{2})))}));
  inner.reset();
  outer.reset();
  EXPECT_EQ(home_->table.count(), 2u);
  middle.reset();
  EXPECT_EQ(home_->table.count(), 0u);
}

TEST_F(OwnedTest, TheEndOfAValueLeavesAnotherOneOfItsName) {
  auto first = home_->make_value({1, 5});
  const auto second = home_->make_value({1, 5});
  first.reset();
  EXPECT_EQ(home_->table.find({1, 5}), second);
}

TEST_F(OwnedTest, AValueThatIsMadeWhileAllAreVisitedStaysInTheTable) {
  const auto first = home_->make_value({1, 1});
  std::shared_ptr<OwnedValue> made;
  home_->table.visit([&](OwnedValue&) { made = home_->make_value({1, 2}); });
  EXPECT_EQ(home_->table.find({1, 1}), first);
  EXPECT_EQ(home_->table.find({1, 2}), made);
}

TEST_F(OwnedTest, AValueIsGoneBeforeWhatFollowsItsRelease) {
  bool is_destroyed = false;
  auto object = std::make_shared<HostObject>("model", nullptr, [this, &is_destroyed] {
    // The host's destroy function may release references itself.
    share(Value(int64_t{1})).reset();
    is_destroyed = true;
  });
  Ref reference = share(as_value(share(Value(object))));
  object.reset();
  reference.reset();
  EXPECT_TRUE(is_destroyed);
  EXPECT_EQ(home_->table.count(), 0u);
}

}  // namespace
}  // namespace distag::testing
