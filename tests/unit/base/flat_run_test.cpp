#include "base/flat_run.h"

#include <gtest/gtest.h>

#include <string>

namespace distag {
namespace {

TEST(FlatRun, RunsAtOnce) {
  bool ran = false;
  run_flat([&ran] { ran = true; });
  EXPECT_TRUE(ran);
}

TEST(FlatRun, WhatComesUpWithinOneFollowsIt) {
  std::string order;
  run_flat([&order] {
    run_flat([&order] { order += 'c'; });
    order += 'a';
    run_flat([&order] { order += 'd'; });
    order += 'b';
  });
  EXPECT_EQ(order, "abcd");
}

void count_down(int left) {
  if (left > 0) run_flat([left] { count_down(left - 1); });
}

TEST(FlatRun, TakesNoStackForALongChain) { count_down(1000000); }

}  // namespace
}  // namespace distag
