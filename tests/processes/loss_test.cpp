// A participant is killed in the middle of a forward or a backward: a named error soon, long before a lease has passed.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>

#include "processes/processes.h"
#include "support/promised.h"

namespace distag::testing {
namespace {

class LossTest : public ::testing::Test {
 protected:
  void SetUp() override {
    GroupOptions options;
    options.size = 3;
    options.lease_ns = 600 * DISTAG_SECOND;
    group = std::make_unique<Group>(options);
    const double data[2] = {1, 2};
    const int64_t shape[1] = {2};
    distag_error setup = DISTAG_ERROR_INIT;
    distag_tensor_create(data, sizeof data, DISTAG_FLOAT64, shape, 1, x.out(), &setup);
    distag_tensor_set_requires_grad(x.get(), 1, &setup);
    distag_context_create(group->worker(), context.out(), &setup);
    ASSERT_EQ(setup.code, DISTAG_OK) << text_of(setup);
  }

  // Calls `function` of C through B, with x.
  distag_status call_c_through_b(const char* function) {
    distag_error setup = DISTAG_ERROR_INIT;
    Value to, name;
    distag_value_create_text("C", to.out(), &setup);
    distag_value_create_text(function, name.out(), &setup);
    distag_value* args[] = {to.get(), name.get(), distag_tensor_as_value(x.get())};
    begin = std::chrono::steady_clock::now();
    return distag_call(group->worker(), context.get(), "B", "relay", args, 3, nullptr, answer.out(), &err);
  }
  void expect_a_named_loss_in_time() {
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    EXPECT_EQ(err.code, DISTAG_E_DISCONNECTED) << text_of(err);
    EXPECT_NE(std::string(err.message).find("\"C\""), std::string::npos) << err.message;
    std::printf("figure: processes.%s_told_ms %.1f ms\n",
                ::testing::UnitTest::GetInstance()->current_test_info()->name(), 1e3 * took.count());
    EXPECT_LT(took.count(), kKillToErrorSeconds) << err.message;
  }
  // B goes on serving, and holds nothing of the context once it is released.
  void expect_b_is_well() {
    EXPECT_EQ(group->process(2).wait(120000), -2);
    answer = Value();
    call_for_numbers(group->worker(), "B", "forget");
    context = Context();
    int64_t left = 1;
    for (int tries = 0; left != 0 && tries < 100000; ++tries) {
      left = call_for_numbers(group->worker(), "B", "contexts").at(0);
    }
    EXPECT_EQ(left, 0);
  }

  std::unique_ptr<Group> group;
  Tensor x;
  Context context;
  Value answer;
  distag_error err = DISTAG_ERROR_INIT;
  std::chrono::steady_clock::time_point begin;
};

TEST_F(LossTest, KilledInForward) {
  EXPECT_NE(call_c_through_b("die"), DISTAG_OK);
  expect_a_named_loss_in_time();
  EXPECT_TRUE(err.flags & DISTAG_ERROR_MAY_HAVE_RUN);
  expect_b_is_well();
}

TEST_F(LossTest, KilledInForwardCalledDirectly) {
  begin = std::chrono::steady_clock::now();
  distag_call(group->worker(), context.get(), "C", "die", nullptr, 0, nullptr, nullptr, &err);
  expect_a_named_loss_in_time();
  distag_error again = DISTAG_ERROR_INIT;
  distag_call(group->worker(), nullptr, "C", "noop", nullptr, 0, nullptr, nullptr, &again);
  EXPECT_EQ(again.code, DISTAG_E_DISCONNECTED) << text_of(again);
  EXPECT_FALSE(again.flags & DISTAG_ERROR_MAY_HAVE_RUN);
  expect_b_is_well();
}

TEST_F(LossTest, KilledInBackward) {
  distag_error setup = DISTAG_ERROR_INIT;
  ASSERT_EQ(call_c_through_b("deadly"), DISTAG_OK) << text_of(err);
  distag_tensor* y = nullptr;
  Tensor loss;
  distag_value_get_tensor(answer.get(), &y, &setup);
  distag_sum(y, nullptr, 0, 0, loss.out(), &setup);
  ASSERT_EQ(setup.code, DISTAG_OK) << text_of(setup);

  distag_tensor* root = loss.get();
  begin = std::chrono::steady_clock::now();
  EXPECT_NE(distag_backward(context.get(), &root, 1, nullptr, &err), DISTAG_OK);
  expect_a_named_loss_in_time();

  // All gradients or none.
  Gradients gradients;
  EXPECT_EQ(distag_get_gradients(context.get(), gradients.out(), &setup), DISTAG_OK) << text_of(setup);
  EXPECT_EQ(distag_gradients_get_count(gradients.get()), 0u);
  expect_b_is_well();
}

TEST_F(LossTest, TheSurvivorsShutDownCleanlyAmongThemselves) {
  group->process(2).kill();
  distag_error ignored = DISTAG_ERROR_INIT;
  distag_call(group->worker(), nullptr, "C", "noop", nullptr, 0, nullptr, nullptr, &ignored);
  Value report;
  EXPECT_EQ(group->self().shutdown(120 * DISTAG_SECOND, report.out(), &err), DISTAG_OK) << text_of(err);
  EXPECT_EQ(group->process(1).wait(120000), 0);
}

}  // namespace
}  // namespace distag::testing
