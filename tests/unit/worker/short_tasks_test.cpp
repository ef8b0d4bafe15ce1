// No task of a loop is long, whatever others ask for.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "worker/production.h"

namespace distag {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr Nanos kLongest = 75 * kMillisecond;  // every access to memory is checked
#else
constexpr Nanos kLongest = 5 * kMillisecond;
#endif
constexpr Nanos kPatience = 60 * kSecond;

// Two workers, of which the first is watched.
class ShortTasks : public ::testing::Test {
 protected:
  void SetUp() override {
    for (int32_t rank : {0, 1}) {
      ProductionOptions options;
      options.worker.rank = rank;
      options.worker.world_size = 2;
      options.worker.rendezvous = "inproc://short tasks";
      options.thread_count = 2;
      if (rank == 0) {
        options.loop_watchdog = [](const char* what, Nanos taken) {
          EXPECT_LE(taken, kLongest) << "a task took " << taken / kMicrosecond << " us of the loop: " << what;
        };
      }
      workers_.push_back(std::make_unique<ProductionWorker>(options));
    }
    std::vector<std::shared_ptr<Future<Value>>> started;
    for (const auto& one : workers_) started.push_back(one->start(kPatience));
    for (const auto& future : started) get(future);
  }

  Worker& worker(int32_t rank) { return workers_[static_cast<size_t>(rank)]->worker(); }
  static Value get(const std::shared_ptr<Future<Value>>& future) {
    EXPECT_TRUE(wait(*future, kPatience));
    return future->value();
  }
  std::shared_ptr<Future<Value>> call(const std::string& function, Values args) {
    CallRequest request;
    request.to = worker(0).name();
    request.function = function;
    request.args = std::move(args);
    return worker(1).rpc().call(std::move(request));
  }

  std::vector<std::unique_ptr<ProductionWorker>> workers_;
};

// 160 KB of arguments, and a result of 64 MB: the loop would take a few of the hundred milliseconds that it takes.
TEST_F(ShortTasks, AnOpIsJudgedByWhatItYields) {
  Tensor row = Tensor::empty(Dtype::kFloat32, {int64_t{1}, int64_t{1024}});
  std::fill_n(row.mutable_data_as<float>(), 1024, 3.0F);
  Tensor index = Tensor::empty(Dtype::kInt64, {int64_t{16'384}});
  std::fill_n(index.mutable_data_as<int64_t>(), 16'384, 0);
  const Value result = get(call("index_select", {Value(row), Value(index)}));
  EXPECT_EQ(result.as_tensor().shape(), (Dims{16'384, 1024}));
}

}  // namespace
}  // namespace distag
