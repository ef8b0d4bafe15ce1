#include "base/future.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

namespace distag {
namespace {

TEST(Future, CompletesOnce) {
  auto future = Future<int>::make();
  EXPECT_FALSE(future->is_done());
  EXPECT_TRUE(future->complete(1));
  EXPECT_FALSE(future->complete(2));
  EXPECT_FALSE(future->fail(Error(Status::kInternal, "late")));
  EXPECT_TRUE(future->is_done());
  EXPECT_EQ(future->error(), nullptr);
  EXPECT_EQ(future->value(), 1);
}

TEST(Future, FailureIsThrownByValue) {
  auto future = Future<int>::make();
  EXPECT_TRUE(future->fail(Error(Status::kDeadline, "too late")));
  ASSERT_NE(future->error(), nullptr);
  EXPECT_EQ(future->error()->status(), Status::kDeadline);
  EXPECT_THROW(future->value(), Error);
}

TEST(Future, CallbacksRunOnceInOrder) {
  auto future = Future<Unit>::make();
  std::string order;
  future->on_done([&order] { order += 'a'; });
  future->on_done([&order] { order += 'b'; });
  EXPECT_EQ(order, "");
  future->complete(Unit{});
  EXPECT_EQ(order, "ab");
  future->on_done([&order] { order += 'c'; });
  EXPECT_EQ(order, "abc");
}

TEST(Future, CallbackMayRegisterAnother) {
  auto future = Future<Unit>::make();
  int calls = 0;
  future->on_done([&calls, raw = future.get()] { raw->on_done([&calls] { ++calls; }); });
  future->complete(Unit{});
  EXPECT_EQ(calls, 1);
}

TEST(Future, CancelFailsAndRunsTheCancellerOnce) {
  auto future = Future<int>::make();
  int cancelled = 0;
  future->set_canceller([&cancelled] { ++cancelled; });
  future->cancel();
  future->cancel();
  EXPECT_EQ(cancelled, 1);
  EXPECT_EQ(future->error()->status(), Status::kCancelled);
  EXPECT_EQ(future->error()->message(), "cancelled by the caller");
}

TEST(Future, CancelNamesTheOperation) {
  const auto named = Future<int>::make();
  named->set_operation("all_gather");
  named->cancel();
  EXPECT_EQ(named->error()->message(), "all_gather: cancelled by the caller");
  const std::string subject = "call \"f\"";
  const auto described = Future<int>::make();
  described->set_operation([](const void* text) { return *static_cast<const std::string*>(text); }, &subject);
  described->cancel();
  EXPECT_EQ(described->error()->message(), "call \"f\": cancelled by the caller");
}

TEST(Future, CancelAfterTheEndDoesNothing) {
  auto future = Future<int>::make();
  int cancelled = 0;
  future->set_canceller([&cancelled] { ++cancelled; });
  future->complete(5);
  future->cancel();
  EXPECT_EQ(cancelled, 0);
  EXPECT_EQ(future->value(), 5);
}

TEST(Future, CompletedByOneOfManyThreads) {
  for (int round = 0; round < 100; ++round) {
    auto future = Future<int>::make();
    std::atomic<int> wins{0};
    std::atomic<int> calls{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&future, &wins, &calls, i] {
        future->on_done([&calls] { ++calls; });
        if (i % 2 == 0 ? future->complete(i) : future->fail(Error(Status::kInternal, "lost"))) ++wins;
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(wins, 1);
    EXPECT_EQ(calls, 4);
  }
}

TEST(Future, AllCallbacksRunWhenOneThrows) {
  auto future = Future<int>::make();
  int ran = 0;
  future->on_done([&ran] { ++ran; });
  future->on_done([] { fail(Status::kInternal, "first"); });
  future->on_done([] { fail(Status::kInternal, "second"); });
  future->on_done([&ran] { ++ran; });
  try {
    future->complete(1);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.message(), "first");
  }
  EXPECT_EQ(ran, 2);
  EXPECT_EQ(future->value(), 1);
}

TEST(Future, OneThatIsOwedFailsWithTheTaskThatOwesIt) {
  auto dropped = Future<int>::make();
  auto done = Future<int>::make();
  auto taken = Future<int>::make();
  { const Owed owed(dropped); }
  { Owed(done)->complete(1); }
  {
    Owed owed(taken);
    Owed next(std::move(owed));
    EXPECT_EQ(next.take(), taken);
  }
  ASSERT_TRUE(dropped->is_done());
  EXPECT_EQ(dropped->error()->status(), Status::kCancelled);
  EXPECT_EQ(done->value(), 1);
  EXPECT_FALSE(taken->is_done());
}

}  // namespace
}  // namespace distag
