// A worker that gets no memory at some moment, on its pools. Tasks of the loop, and what is posted to them, have the
// reserve (base/reserve.h).
#include <gtest/gtest.h>

#include "base/error.h"
#include "support/sim_group.h"

namespace distag::sim {
namespace {

TEST(ShortageTest, ACallWhoseFunctionCannotBeginIsAnswered) {
  SimWorkerGroup group(1, SimGroupOptions());
  bool has_run = false;
  group.worker(1).rpc().register_function("run", [&has_run](Invocation&) { has_run = true; });
  group.start();
  group.memory(1).refuse(0, 1);
  try {
    group.call(0, 1, "run", {});
    ADD_FAILURE() << "it was answered";
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Status::kOutOfMemory) << error.message();
    EXPECT_FALSE(error.may_have_run());
  }
  EXPECT_FALSE(has_run);
  group.call(0, 1, "run", {});
  EXPECT_TRUE(has_run);
}

}  // namespace
}  // namespace distag::sim
