// A host forks while a product is under way, or a handler of its own takes long: the fork waits for them, and the
// workers of the process go on meanwhile.
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/fork_gate.h"
#include "base/shared_memory.h"
#include "worker/threaded_worker.h"

namespace distag {
namespace {

// A handler that was there before those of distag, and so runs after them.
std::atomic<bool> g_may_fork{true};
std::atomic<int> g_forks_at_handler{0};

void wait_before_fork() {
  ++g_forks_at_handler;
  while (!g_may_fork) std::this_thread::yield();
}

[[gnu::constructor(101)]] void add_handler_of_host() { pthread_atfork(wait_before_fork, nullptr, nullptr); }

// The product is this test's: of no size, and as long as it likes.
class ForkBesideProductTest : public ::testing::Test {
 protected:
  static constexpr Nanos kPatience = 120 * kSecond;  // against hanging
  static constexpr int64_t kCount = int64_t{1} << 18;
  inline static std::atomic<int> forks_begun_{0};

  static void SetUpTestSuite() {
    ASSERT_EQ(pthread_atfork([] { ++forks_begun_; }, nullptr, nullptr), 0);  // runs before the handlers of distag
  }

  ForkBesideProductTest() {
    std::string pattern = ::testing::TempDir() + "distag-fork-XXXXXX";
    folder_ = mkdtemp(pattern.data());
  }
  ~ForkBesideProductTest() override {
    g_may_fork = true;
    std::filesystem::remove_all(folder_);
  }

  void start(bool no_lane, const std::string& bind) {
    for (int32_t rank = 0; rank < 2; ++rank) {
      ThreadedOptions options;
      options.worker.rank = rank;
      options.worker.world_size = 2;
      options.worker.rendezvous = "file://" + folder_;
      options.worker.bind = bind;
      options.no_lane = no_lane;
      options.thread_count = 1;
      workers_.push_back(std::make_unique<ThreadedWorker>(options));
      workers_.back()->worker().rpc().register_function(
          "give_back", [](Invocation& invocation) { invocation.set_result(Value(invocation.args()[0])); });
    }
    await(workers_[0]->start(kPatience), workers_[1]->start(kPatience));
    call_each_way();
    EXPECT_EQ(shared_memory::has_blocks(), !no_lane);
  }

  void TearDown() override {
    await(workers_[0]->begin_shutdown(kPatience), workers_[1]->begin_shutdown(kPatience));
    for (const auto& worker : workers_) EXPECT_TRUE(worker->finish(kPatience));
  }

  void fork_beside_product() {
    std::atomic<bool> is_forked{false};
    std::jthread forker;
    std::optional<NoFork> product(std::in_place);
    const int before = forks_begun_;
    forker = std::jthread([&is_forked] { fork_once(is_forked); });
    while (forks_begun_ == before) std::this_thread::yield();
    for (int turn = 0; turn < 20; ++turn) call_each_way();
    EXPECT_FALSE(is_forked);
    product.reset();
    forker.join();
    call_each_way();
  }

  void fork_beside_handler() {
    std::atomic<bool> is_forked{false};
    g_may_fork = false;
    const int before = g_forks_at_handler;
    std::jthread forker([&is_forked] { fork_once(is_forked); });
    while (g_forks_at_handler == before) std::this_thread::yield();
    for (int turn = 0; turn < 20; ++turn) call_each_way();
    EXPECT_FALSE(is_forked);
    g_may_fork = true;
    forker.join();
    call_each_way();
  }

  template <typename T>
  static void await(const std::shared_ptr<Future<T>>& one, const std::shared_ptr<Future<T>>& other) {
    for (const auto& future : {one, other}) {
      ASSERT_TRUE(wait(*future, kPatience));
      future->value();
    }
  }

  static void fork_once(std::atomic<bool>& is_forked) {
    const pid_t child = fork();
    if (child == 0) _exit(0);
    is_forked = true;
    int status = -1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }

  // With a tensor that is large enough to be lent.
  void call_each_way() {
    for (size_t from = 0; from < 2; ++from) {
      Tensor x = Tensor::empty(Dtype::kFloat32, {kCount});
      x.mutable_data_as<float>()[kCount - 1] = static_cast<float>(++calls_);
      CallRequest request;
      request.to = workers_[1 - from]->worker().name();
      request.function = "give_back";
      request.args = {Value(x)};
      const auto answer = workers_[from]->worker().rpc().call(std::move(request));
      ASSERT_TRUE(wait(*answer, kPatience));
      ASSERT_EQ(answer->error(), nullptr) << answer->error()->message();
      EXPECT_EQ(answer->value().as_tensor().data_as<float>()[kCount - 1], static_cast<float>(calls_));
    }
  }

  std::string folder_;
  std::vector<std::unique_ptr<ThreadedWorker>> workers_;
  int calls_ = 0;
};

TEST_F(ForkBesideProductTest, WorkersThatShareALaneGoOn) {
  start(false, "");
  fork_beside_product();
}

TEST_F(ForkBesideProductTest, WorkersGoOnOverLocalSockets) {
  start(true, "");
  fork_beside_product();
}

TEST_F(ForkBesideProductTest, WorkersGoOnOverTcp) {
  start(true, "tcp://127.0.0.1:0");
  fork_beside_product();
}

TEST_F(ForkBesideProductTest, WorkersThatShareALaneGoOnWhileAHandlerOfTheHostWaits) {
  start(false, "");
  fork_beside_handler();
}

}  // namespace
}  // namespace distag
