// The seeds of scenarios, as the environment chooses them.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <optional>
#include <string>

#include "support/sim_group.h"

namespace distag::sim {
namespace {

class SeedsTest : public ::testing::Test {
 protected:
  SeedsTest() {
    for (const char* name : {"DISTAG_SIM_SEED", "DISTAG_SIM_FIRST", "DISTAG_SIM_COUNT"}) {
      const char* const text = std::getenv(name);
      before_[name] = text == nullptr ? std::nullopt : std::optional<std::string>(text);
      unsetenv(name);
    }
  }
  ~SeedsTest() override {
    for (const auto& [name, text] : before_) {
      unsetenv(name.c_str());
      if (text) setenv(name.c_str(), text->c_str(), 1);
    }
  }

  bool run() {
    ran_ = 0;
    return for_each_seed(3, [this](uint64_t) { ++ran_; });
  }

  int ran_ = 0;

 private:
  std::map<std::string, std::optional<std::string>> before_;
};

// Checks of counts over all seeds would fail with one seed, and hide what a replay shows.
TEST_F(SeedsTest, AreASweepFromTheUsualNumberOn) {
  EXPECT_TRUE(run());
  EXPECT_EQ(ran_, 3);
  setenv("DISTAG_SIM_COUNT", "2", 1);
  EXPECT_FALSE(run());
  setenv("DISTAG_SIM_COUNT", "4", 1);
  EXPECT_TRUE(run());
  EXPECT_EQ(ran_, 4);
  setenv("DISTAG_SIM_SEED", "7", 1);
  EXPECT_FALSE(run());
  EXPECT_EQ(ran_, 1);
}

}  // namespace
}  // namespace distag::sim
