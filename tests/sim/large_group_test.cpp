// A very large group, in one thread: how much starting, calling, gathering and leaving cost each worker.
#include <gtest/gtest.h>

#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "support/sim_group.h"

namespace distag::sim {
namespace {

// Messages that each worker sends, from one look to the next.
class Traffic {
 public:
  Traffic(SimWorkerGroup& group, int32_t size) : size_(size) {
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
    cost.mean = static_cast<double>(sum) / size_;
    std::printf("%s of %d: %.2f messages per worker, %llu at most, %llu bytes at most\n", what, size_, cost.mean,
                static_cast<unsigned long long>(cost.most), static_cast<unsigned long long>(cost.most_bytes));
    messages_.clear();
    bytes_.clear();
    return cost;
  }

 private:
  const int32_t size_;
  std::map<std::string, uint64_t> messages_;
  std::map<std::string, uint64_t> bytes_;
};

// Starts, calls a ring, gathers and leaves.
void expect_few_messages_of_each_worker(int32_t size) {
  const auto members = static_cast<size_t>(size);
  SimGroupOptions options;
  options.size = size;
  SimWorkerGroup group(1, options);
  Traffic traffic(group, size);
  for (int32_t rank = 0; rank < size; ++rank) {
    group.worker(rank).rpc().register_function("hear", [](Invocation&) {});
  }
  group.start();
  EXPECT_EQ(traffic.take("start").most, 0u) << "streams are made on first use";

  std::vector<std::shared_ptr<Future<Value>>> calls;
  for (int32_t rank = 0; rank < size; ++rank) {
    CallRequest request;
    request.to = SimWorkerGroup::name((rank + 1) % size);
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
  for (int32_t rank = 0; rank < size; ++rank) {
    gathered.push_back(group.worker(rank).group().all_gather(Value(int64_t{rank}), std::nullopt, 30 * kSecond));
  }
  for (const auto& one : gathered) {
    wait(*one, kForever);
    EXPECT_EQ(one->value().as_list().size(), members);
  }
  const Traffic::Cost gathering = traffic.take("all_gather");
  EXPECT_LE(gathering.mean, 16);
  EXPECT_LE(gathering.most, 4 * members);  // the lowest rank answers and acknowledges each of the others
  // Twice the values of all, with ranks and turns, and an answer for each. For 1,024 it is 9 MB if all send to all.
  EXPECT_LE(gathering.most_bytes, 410 * members);

  for (const ShutdownReport& report : group.shutdown()) EXPECT_TRUE(report.clean);
  const Traffic::Cost leaving = traffic.take("shutdown");
  EXPECT_LE(leaving.mean, 24);
  EXPECT_LE(leaving.most, 8 * members);  // a few questions to each of the others, and what acknowledges the answers
}

TEST(LargeGroup, Of256TakesFewMessagesOfEachWorker) { expect_few_messages_of_each_worker(256); }
TEST(LongLargeGroup, Of1024TakesFewMessagesOfEachWorker) { expect_few_messages_of_each_worker(1024); }

}  // namespace
}  // namespace distag::sim
