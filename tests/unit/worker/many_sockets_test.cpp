// A worker that has many connections of libzmq, and a peer that hears nothing: its end.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "worker/threaded_worker.h"

namespace distag {
namespace {

// Rank 0 with libzmq, the others with zmtp, which takes less: over ipc:// without lanes.
class ManySocketsTest : public ::testing::Test {
 protected:
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  static constexpr int32_t kMembers = 64;  // more threads take too long where each access is checked
#else
  static constexpr int32_t kMembers = 256;
#endif
  static constexpr Nanos kPatience = 600 * kSecond;
  static constexpr Nanos kTimeout = kSecond;

  // A loop that waits here hears nothing, as that of a process that is stopped.
  class Gate {
   public:
    void close() {
      const std::lock_guard<std::mutex> lock(mutex_);
      is_open_ = false;
    }
    void open() {
      const std::lock_guard<std::mutex> lock(mutex_);
      is_open_ = true;
      opened_.notify_all();
    }
    void pass() {
      std::unique_lock<std::mutex> lock(mutex_);
      opened_.wait(lock, [this] { return is_open_; });
    }

   private:
    std::mutex mutex_;
    std::condition_variable opened_;
    bool is_open_ = true;
  };

  void SetUp() override {
    rlimit limit{};
    ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
    if (limit.rlim_max < 16 * static_cast<rlim_t>(kMembers)) GTEST_SKIP() << "ulimit -Hn is below 16 for each member";
    limit.rlim_cur = limit.rlim_max;
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
    ASSERT_NE(mkdtemp(folder_.data()), nullptr);
    for (int32_t rank = 0; rank < kMembers; ++rank) workers_.push_back(make(rank));
    std::vector<std::shared_ptr<Future<Value>>> started;
    for (const auto& one : workers_) started.push_back(one->start(kPatience));
    for (const auto& future : started) get(future);
  }
  void TearDown() override {
    gate_.open();
    workers_.clear();
    rmdir(folder_.c_str());
  }

  static Value get(const std::shared_ptr<Future<Value>>& future) {
    EXPECT_TRUE(wait(*future, kPatience));
    return future->value();
  }
  // A call of the first worker at another one.
  std::shared_ptr<Future<Value>> call(int32_t rank, Values args) {
    CallRequest request;
    request.to = workers_[static_cast<size_t>(rank)]->worker().name();
    request.function = "hear";
    request.args = std::move(args);
    request.timeout = kForever;
    return workers_.front()->worker().rpc().call(std::move(request));
  }
  ThreadedWorker& first() { return *workers_.front(); }
  Gate& gate_of_last() { return gate_; }
  Nanos longest_task() {
    MutexLock lock(mutex_);
    return longest_;
  }

 private:
  std::unique_ptr<ThreadedWorker> make(int32_t rank) {
    ThreadedOptions options;
    options.worker.rank = rank;
    options.worker.world_size = kMembers;
    options.worker.rendezvous = "file://" + folder_;
    options.worker.lease = kPatience;
    options.thread_count = 1;
    options.no_lane = true;
    options.log_level = LogLevel::kError;
    options.socket_engine = rank == 0 ? SocketEngineKind::kZmq : SocketEngineKind::kZmtp;
    if (rank == 0) options.loop_watchdog = [this](const char*, const FdLoop::Cost& cost) { note(cost.taken); };
    if (rank == kMembers - 1) options.loop_watchdog = [this](const char*, const FdLoop::Cost&) { gate_.pass(); };
    auto worker = std::make_unique<ThreadedWorker>(options);
    worker->worker().rpc().register_function("hear", [](Invocation&) {});
    return worker;
  }
  void note(Nanos taken) {
    MutexLock lock(mutex_);
    longest_ = std::max(longest_, taken);
  }

  std::string folder_ = "/tmp/distag-test-XXXXXX";
  Gate gate_;
  Mutex mutex_;
  Nanos longest_ GUARDED_BY(mutex_) = 0;
  std::vector<std::unique_ptr<ThreadedWorker>> workers_;  // last: their loops report tasks until they end
};

// Queued bytes keep the end of libzmq's context for the time of last words, and neither the loop nor the caller longer.
// What a task of the loop takes is told, as in short_tasks_test.cpp.
TEST_F(ManySocketsTest, AnEndBesideAPeerThatHearsNothingComesInTime) {
  std::vector<std::shared_ptr<Future<Value>>> calls;
  for (int32_t rank = 1; rank < kMembers; ++rank) calls.push_back(call(rank, {}));
  for (const auto& one : calls) get(one);
  gate_of_last().close();
  calls.clear();
  const Value large(Tensor::empty(Dtype::kFloat32, {int64_t{1} << 20}));
  for (int i = 0; i < 16; ++i) calls.push_back(call(kMembers - 1, {large}));

  const Nanos begun = SteadyClock().now();
  const auto report = first().begin_shutdown(kTimeout);
  ASSERT_TRUE(wait(*report, kPatience));
  EXPECT_FALSE(report->value().clean);
  EXPECT_TRUE(first().finish(kPatience));
  const Nanos taken = SteadyClock().now() - begun;
  EXPECT_LT(taken, kTimeout + 60 * kSecond) << "with room for a machine that stops";
  for (const auto& one : calls) {
    ASSERT_TRUE(wait(*one, kPatience));
    EXPECT_NE(one->error(), nullptr);
  }
  std::printf("figure: unit_worker.many_sockets_shutdown_ms %.0f ms\n", static_cast<double>(taken) / kMillisecond);
  std::printf("figure: unit_worker.many_sockets_longest_task_us %.0f us\n",
              static_cast<double>(longest_task()) / kMicrosecond);
}

}  // namespace
}  // namespace distag
