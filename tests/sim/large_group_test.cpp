// A very large group, in one thread: how much starting, calling, gathering and leaving cost each worker.
#include <gtest/gtest.h>

#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "support/sim_group.h"

namespace distag::sim {
namespace {

constexpr int32_t kSize = 1024;

// Messages that each worker sends, from one look to the next.
class Traffic {
 public:
  explicit Traffic(SimWorkerGroup& group) {
    group.network().set_tap([this](const std::string& from, const std::string&, const Frames& frames) {
      ++messages_[from];
      for (const Frame& frame : frames) bytes_[from] += frame.size();
    });
  }
  struct Cost {
    uint64_t most = 0;  // messages of one worker
    uint64_t most_bytes = 0;
    double mean = 0;  // messages of a worker
  };
  Cost take(const char* what) {
    Cost cost;
    uint64_t sum = 0;
    for (const auto& [worker, count] : messages_) cost.most = std::max(cost.most, count), sum += count;
    for (const auto& [worker, count] : bytes_) cost.most_bytes = std::max(cost.most_bytes, count);
    cost.mean = static_cast<double>(sum) / kSize;
    std::printf("%s of %d: %.2f messages per worker, %llu at most, %llu bytes at most\n", what, kSize, cost.mean,
                static_cast<unsigned long long>(cost.most), static_cast<unsigned long long>(cost.most_bytes));
    messages_.clear();
    bytes_.clear();
    return cost;
  }

 private:
  std::map<std::string, uint64_t> messages_;
  std::map<std::string, uint64_t> bytes_;
};

TEST(LargeGroup, StartsCallsARingGathersAndLeavesWithFewMessagesOfEachWorker) {
  SimGroupOptions options;
  options.size = kSize;
  SimWorkerGroup group(1, options);
  Traffic traffic(group);
  for (int32_t rank = 0; rank < kSize; ++rank) {
    group.worker(rank).rpc().register_function("hear", [](Invocation&) {});
  }
  group.start();
  EXPECT_EQ(traffic.take("start").most, 0u) << "streams are made on first use";

  std::vector<std::shared_ptr<Future<Value>>> calls;
  for (int32_t rank = 0; rank < kSize; ++rank) {
    CallRequest request;
    request.to = SimWorkerGroup::name((rank + 1) % kSize);
    request.function = "hear";
    calls.push_back(group.worker(rank).rpc().call(std::move(request)));
  }
  for (const auto& call : calls) {
    wait(*call, kForever);
    call->value();
  }
  const Traffic::Cost ring = traffic.take("ring");
  EXPECT_LE(ring.most, 8u);  // two streams, a call, an answer, and what acknowledges them

  std::vector<std::shared_ptr<Future<Value>>> gathered;
  for (int32_t rank = 0; rank < kSize; ++rank) {
    gathered.push_back(group.worker(rank).group().all_gather(Value(int64_t{rank}), std::nullopt, 30 * kSecond));
  }
  for (const auto& one : gathered) {
    wait(*one, kForever);
    EXPECT_EQ(one->value().as_list().size(), static_cast<size_t>(kSize));
  }
  const Traffic::Cost gathering = traffic.take("all_gather");
  EXPECT_LE(gathering.mean, 16);
  EXPECT_LE(gathering.most, 4u * kSize);  // the lowest rank answers and acknowledges each of the others
  // Twice the values of all, with ranks and turns, and an answer for each. Sending all values to each other is 9 MB.
  EXPECT_LE(gathering.most_bytes, kSize * size_t{410});

  for (const ShutdownReport& report : group.shutdown()) EXPECT_TRUE(report.clean);
  const Traffic::Cost leaving = traffic.take("shutdown");
  EXPECT_LE(leaving.mean, 24);
  EXPECT_LE(leaving.most, 8u * kSize);  // a few questions to each of the others, and what acknowledges the answers
}

}  // namespace
}  // namespace distag::sim
