// The time that the longest task of a loop takes, whatever peers ask for.
#include <gtest/gtest.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/memory.h"
#include "base/mutex.h"
#include "worker/threaded_worker.h"

namespace distag {
namespace {

constexpr Nanos kLongest = 600 * kSecond;

// Two workers that are watched.
class ShortTasksTest : public ::testing::Test {
 protected:
  void SetUp() override { start_workers(); }

  void stop_workers() { workers_.clear(); }

  void start_workers() {
    stop_workers();
    for (int32_t rank : {0, 1}) {
      ThreadedOptions options;
      options.worker.rank = rank;
      options.worker.world_size = 2;
      options.worker.rendezvous = "inproc://short tasks";
      options.thread_count = 2;
      options.loop_watchdog = [this](const char* what, const FdLoop::Cost& cost) { note(what, cost.taken); };
      workers_.push_back(std::make_unique<ThreadedWorker>(options));
    }
    std::vector<std::shared_ptr<Future<Value>>> started;
    for (const auto& one : workers_) started.push_back(one->start(kLongest));
    for (const auto& future : started) get(future);
    worker(0).rpc().register_function("echo", [](Invocation& call) { call.set_result(call.args().front()); });
  }

  // There and back.
  Value echo(Value value) { return get(call("echo", {std::move(value)})); }

  // The time of the longest task is reported, not judged: it depends on the machine, and should be 5 ms at most. A long
  // task takes long each time; a short one may take long when others use the machine: so the best of three. A task that
  // copies a piece of payload may be the first to touch a huge page, which the machine clears then.
  void tell_longest_task(const std::function<void()>& scenario) {
    Longest least{kNever, ""};
    for (int attempt = 0; attempt < 3 && least.taken > 5 * kMillisecond; ++attempt) {
      {
        MutexLock lock(mutex_);
        longest_ = {};
      }
      const Nanos clearing = time_to_clear_a_page();
      scenario();
      MutexLock lock(mutex_);
      longest_.taken = std::max<Nanos>(longest_.taken - clearing, 0);
      if (longest_.taken < least.taken) least = longest_;
    }
    const auto* const test = ::testing::UnitTest::GetInstance()->current_test_info();
    std::printf("the longest task: %s\nfigure: %s.%s_longest_task_us %.0f us\n", least.what.c_str(),
                test->test_suite_name(), test->name(), static_cast<double>(least.taken) / kMicrosecond);
  }

  Worker& worker(int32_t rank) { return workers_[static_cast<size_t>(rank)]->worker(); }
  static Value get(const std::shared_ptr<Future<Value>>& future) {
    EXPECT_TRUE(wait(*future, kLongest));
    return future->value();
  }
  std::shared_ptr<Future<Value>> call(const std::string& function, Values args) {
    CallRequest request;
    request.to = worker(0).name();
    request.function = function;
    request.args = std::move(args);
    return worker(1).rpc().call(std::move(request));
  }

 private:
  struct Longest {
    Nanos taken = 0;
    std::string what;
  };

  static Nanos time_to_clear_a_page() {
    void* const block = map_pages(kHugeBlockBytes);
    prefer_huge_pages(block, kHugeBlockBytes);
    timespec begin{};
    timespec end{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
    static_cast<volatile char*>(block)[kHugeBlockBytes / 2] = 1;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
    unmap_pages(block, kHugeBlockBytes);
    return (end.tv_sec - begin.tv_sec) * kSecond + end.tv_nsec - begin.tv_nsec;
  }

  void note(const char* what, Nanos taken) {
    MutexLock lock(mutex_);
    if (taken > longest_.taken) longest_ = {taken, what};
  }

  Mutex mutex_;
  Longest longest_ GUARDED_BY(mutex_);

  std::vector<std::unique_ptr<ThreadedWorker>> workers_;  // last: their loops report tasks until they end
};

// 160 KB of arguments, and a result of 64 MB: the loop would take a few of the hundred milliseconds that it takes.
TEST_F(ShortTasksTest, AnOpIsJudgedByWhatItYields) {
  Tensor row = Tensor::empty(Dtype::kFloat32, {int64_t{1}, int64_t{1024}});
  std::fill_n(row.mutable_data_as<float>(), 1024, 3.0F);
  Tensor index = Tensor::empty(Dtype::kInt64, {int64_t{16'384}});
  std::fill_n(index.mutable_data_as<int64_t>(), 16'384, 0);
  tell_longest_task([&] {
    const Value result = get(call("index_select", {Value(row), Value(index)}));
    EXPECT_EQ(result.as_tensor().shape(), (Dims{16'384, 1024}));
  });
}

// Two halves of 16 MiB become a whole on each member.
TEST_F(ShortTasksTest, AGatherOfALargeTensor) {
  layout::MeshRequest request;
  request.name = "pair";
  std::vector<Meshes::Made> made;
  for (const int32_t rank : {0, 1}) made.push_back(worker(rank).meshes().create(request, kLongest));
  std::vector<std::shared_ptr<Mesh>> meshes;
  for (const Meshes::Made& one : made) {
    ASSERT_TRUE(wait(*one, kLongest));
    meshes.push_back(one->value());
  }
  const Tensor half = Tensor::empty(Dtype::kFloat32, {int64_t{2048}, int64_t{2048}});
  tell_longest_task([&] {
    std::vector<std::shared_ptr<Future<Tensor>>> wholes;
    for (const auto& mesh : meshes) {
      CollectiveCall gather;
      gather.kind = CollectiveKind::kAllGather;
      gather.axes = {0};
      gather.tensor = half;
      wholes.push_back(mesh->collective(std::move(gather)));
    }
    for (const auto& whole : wholes) {
      ASSERT_TRUE(wait(*whole, kLongest));
      EXPECT_EQ(whole->value().shape(), (Dims{4096, 2048}));
    }
  });
}

TEST_F(ShortTasksTest, ALongText) {
  const size_t size = size_t{24} << 20;
  const Value text = Value::text(std::string(size, 't'));
  tell_longest_task([&] { EXPECT_EQ(echo(text).as_text().size(), size); });
}

TEST_F(ShortTasksTest, ALongListOfNumbers) {
  Value::List numbers;
  for (int64_t i = 0; i < 4'000'000; ++i) numbers.emplace_back(i);
  const Value list = Value::list(std::move(numbers));
  tell_longest_task([&] {
    const Value back = echo(list);
    ASSERT_EQ(back.as_list().size(), 4'000'000u);
    EXPECT_EQ(back.as_list().back().as_int64(), 3'999'999);
  });
}

TEST_F(ShortTasksTest, AListOfManyTexts) {
  Value::List names;
  for (int i = 0; i < 100'000; ++i) names.push_back(Value::text("name " + std::to_string(i)));
  const Value list = Value::list(std::move(names));
  tell_longest_task([&] {
    const Value back = echo(list);
    ASSERT_EQ(back.as_list().size(), 100'000u);
    EXPECT_EQ(back.as_list().back().as_text(), "name 99999");
  });
}

TEST_F(ShortTasksTest, ALargeBoolTensor) {
  Tensor flags = Tensor::empty(Dtype::kBool, {int64_t{64} << 20});
  std::fill_n(flags.mutable_data_as<bool>(), flags.count(), true);
  tell_longest_task([&] { EXPECT_EQ(echo(Value(flags)).as_tensor().count(), flags.count()); });
}

// Calls that never answer; ends when the other worker has them all.
class ShortTasksOfManyCallsTest : public ShortTasksTest {
 protected:
  static constexpr size_t kCalls = 20'000;

  // Functions that have not run yet would hold their replies in what is gone.
  void TearDown() override {
    drop_held();
    stop_workers();
    drop_held();
  }

  // From new workers, with all of them at the other worker.
  std::vector<std::shared_ptr<Future<Value>>> call_many(Nanos timeout) {
    drop_held();
    start_workers();
    const auto arrived = std::make_shared<std::atomic<size_t>>(0);
    const auto all_arrived = Future<Unit>::make();
    worker(0).rpc().register_function("wait", [=, this](Invocation& call) {
      hold(call.defer());
      if (++*arrived == kCalls) all_arrived->complete({});
    });
    std::vector<std::shared_ptr<Future<Value>>> calls;
    for (size_t i = 0; i < kCalls; ++i) {
      CallRequest request;
      request.to = worker(0).name();
      request.function = "wait";
      request.timeout = timeout;
      calls.push_back(worker(1).rpc().call(std::move(request)));
    }
    if (timeout == kForever) {
      EXPECT_TRUE(wait(*all_arrived, kLongest));
    }
    return calls;
  }

  int64_t shut_down(int32_t rank) {
    const auto report = worker(rank).shutdown(0);
    EXPECT_TRUE(wait(*report, kLongest));
    return report->value().open_calls;
  }

  static void expect_all(const std::vector<std::shared_ptr<Future<Value>>>& calls, Status status) {
    for (const auto& call : calls) {
      ASSERT_TRUE(wait(*call, kLongest));
      ASSERT_EQ(call->error()->status(), status);
    }
  }

 private:
  void hold(std::shared_ptr<PendingReply> reply) {
    MutexLock lock(mutex_);
    held_.push_back(std::move(reply));
  }
  void drop_held() {
    std::vector<std::shared_ptr<PendingReply>> held;
    MutexLock lock(mutex_);
    held.swap(held_);
  }

  Mutex mutex_;
  std::vector<std::shared_ptr<PendingReply>> held_ GUARDED_BY(mutex_);
};

TEST_F(ShortTasksOfManyCallsTest, EndAtOneDeadline) {
  tell_longest_task([this] { expect_all(call_many(300 * kMillisecond), Status::kDeadline); });
}

TEST_F(ShortTasksOfManyCallsTest, EndWithTheirCaller) {
  tell_longest_task([this] {
    const auto calls = call_many(kForever);
    EXPECT_EQ(shut_down(1), static_cast<int64_t>(kCalls));
    expect_all(calls, Status::kCancelled);
    shut_down(0);
  });
}

TEST_F(ShortTasksOfManyCallsTest, EndWithTheirCallee) {
  tell_longest_task([this] {
    const auto calls = call_many(kForever);
    EXPECT_EQ(shut_down(0), static_cast<int64_t>(kCalls));
    expect_all(calls, Status::kDisconnected);
    shut_down(1);
  });
}

}  // namespace
}  // namespace distag
