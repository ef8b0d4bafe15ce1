// The order in which a worker and all that its host gave it end.
#include "worker/hosted_worker.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"

namespace distag {
namespace {

using Names = std::vector<std::string>;

// Notes the end of something that the host gave.
struct Note {
  Names& ended;
  std::string name;
  HostData data() {
    return HostData(this, [](void* note) {
      auto* const self = static_cast<Note*>(note);
      self->ended.push_back(self->name);
    });
  }
};

class HostedWorkerTest : public ::testing::Test {
 protected:
  static std::unique_ptr<HostedWorker> make(HostData data, const std::string& group) {
    ThreadedOptions options;
    options.worker.rank = 0;
    options.worker.world_size = 1;
    options.worker.rendezvous = "inproc://hosted_" + group;
    options.thread_count = 1;
    return std::make_unique<HostedWorker>(std::move(options), std::move(data));
  }

  static void add(
      HostedWorker& worker, Note& note, std::function<void()> body = [] {}) {
    auto function = std::make_shared<HostFunction>(HostFunction{note.name, note.data()});
    worker.register_function(function, [function, body](Invocation&) { body(); }, {});
  }

  static void start(HostedWorker& worker) {
    const auto started = worker.start(120 * kSecond);
    ASSERT_TRUE(wait(*started, 120 * kSecond));
    started->value();
  }

  static bool is_clean(const std::optional<Value>& report) { return report->as_map()[0].second.as_bool(); }

  Names ended_;
  Note of_options_{ended_, "options"};
};

TEST_F(HostedWorkerTest, DataOfFunctionsEndsBeforeThatOfTheOptions) {
  Note first{ended_, "first"}, second{ended_, "second"};
  const auto worker = make(of_options_.data(), "order");
  add(*worker, first);
  add(*worker, second);
  EXPECT_EQ(worker->unregister_function("third", kForever), HostedWorker::Withdrawal::kUnknown);
  EXPECT_EQ(worker->unregister_function("first", kForever), HostedWorker::Withdrawal::kDone);
  EXPECT_EQ(ended_, Names{"first"});
  EXPECT_TRUE(worker->shutdown(0));
  EXPECT_TRUE(worker->is_down());
  EXPECT_EQ(ended_, (Names{"first", "second", "options"}));
}

TEST_F(HostedWorkerTest, ShutDownTwiceAtOnceBothGetTheReport) {
  const auto worker = make(of_options_.data(), "twice");
  start(*worker);
  bool is_clean_there = false;
  std::thread other([&] { is_clean_there = is_clean(worker->shutdown(120 * kSecond)); });
  EXPECT_TRUE(is_clean(worker->shutdown(120 * kSecond)));
  other.join();
  EXPECT_TRUE(is_clean_there);
  EXPECT_EQ(ended_, Names{"options"});
}

TEST_F(HostedWorkerTest, AFunctionThatRunsKeepsItsDataAndMakesTheShutdownLate) {
  Note slow{ended_, "slow"};
  const auto worker = make(of_options_.data(), "late");
  const auto begun = Future<Unit>::make(), may_end = Future<Unit>::make();
  add(*worker, slow, [begun, may_end] {
    begun->complete(Unit{});
    wait(*may_end, kForever);
  });
  start(*worker);
  CallRequest request;
  request.to = "worker0";
  request.function = "slow";
  const auto answer = worker->core().rpc().call(std::move(request));
  ASSERT_TRUE(wait(*begun, 120 * kSecond));
  try {
    worker->shutdown(0);
    ADD_FAILURE() << "a function still runs";
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Status::kDeadline);
    EXPECT_NE(std::string(error.message()).find("functions still run: \"slow\""), std::string::npos);
  }
  EXPECT_FALSE(worker->is_down());
  EXPECT_EQ(ended_, Names{});
  may_end->complete(Unit{});
  EXPECT_TRUE(worker->shutdown(kForever));
  EXPECT_EQ(ended_, (Names{"slow", "options"}));
}

TEST_F(HostedWorkerTest, AfterItsEndForGoodItMayBeFreed) {
  auto worker = make(of_options_.data(), "good");
  start(*worker);
  const auto freed = Future<Unit>::make();
  worker->end_for_good([&worker, freed] {
    worker.reset();
    freed->complete(Unit{});
  });
  ASSERT_TRUE(wait(*freed, 120 * kSecond));
  EXPECT_EQ(ended_, Names{"options"});
}

// A loop that does not answer in time has not lost what it counted.
TEST_F(HostedWorkerTest, CountersOfABusyLoopAreTheLastOnesThatWereRead) {
  std::atomic<bool> is_held{false};
  std::promise<void> may_go_on;
  const std::shared_future<void> go_on = may_go_on.get_future().share();
  std::vector<std::unique_ptr<HostedWorker>> workers;
  std::vector<std::shared_ptr<Future<Value>>> starts;
  for (int rank = 0; rank < 2; ++rank) {
    ThreadedOptions options;
    options.worker.rank = rank;
    options.worker.world_size = 2;
    options.worker.rendezvous = "inproc://hosted_busy";
    options.thread_count = 1;
    if (rank == 0) {
      options.loop_watchdog = [&is_held, go_on](const char*, const FdLoop::Cost&) {
        if (is_held) go_on.wait();
      };
    }
    workers.push_back(std::make_unique<HostedWorker>(std::move(options), HostData(nullptr, nullptr)));
    starts.push_back(workers.back()->start(120 * kSecond));
  }
  for (const auto& started : starts) {
    ASSERT_TRUE(wait(*started, 120 * kSecond));
    started->value();
  }
  Note answered{ended_, "answered"};
  add(*workers[1], answered);
  CallRequest request;
  request.to = "worker1";
  request.function = "answered";
  ASSERT_TRUE(wait(*workers[0]->core().rpc().call(std::move(request)), 120 * kSecond));
  const uint64_t sent = workers[0]->stats().session.bytes_sent;
  is_held = true;
  workers[0]->stats();  // its task may be the one after which the loop stands
  const WorkerStats stats = workers[0]->stats();
  EXPECT_GT(sent, 0u);
  EXPECT_GE(stats.session.bytes_sent, sent);
  EXPECT_EQ(stats.session.peers_connected, 1u);
  is_held = false;
  may_go_on.set_value();
  for (const auto& worker : workers) EXPECT_TRUE(worker->shutdown(0));
}

}  // namespace
}  // namespace distag
