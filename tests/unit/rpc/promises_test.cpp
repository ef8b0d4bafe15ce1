#include <gtest/gtest.h>

#include <map>

#include "rpc_group.h"

namespace distag {
namespace {

using testing::NodeConfig;
using testing::number;
using testing::RpcGroup;

constexpr Nanos kLongestCall = 3 * kSecond;

// Random calls in a group whose connections drop, and of which one may die: nested, deferred, dropped, cancelled, with
// deadlines of their own.
class Storm {
 public:
  Storm(uint64_t seed, int32_t size) : group_(size, seed, NodeConfig{kLongestCall, 2 * kSecond}), size_(size) {
    for (size_t rank = 0; rank < static_cast<size_t>(size); ++rank) {
      Rpc& rpc = group_.rpc(rank);
      rpc.register_function("note", [this](Invocation& invocation) { note(invocation); });
      rpc.register_function("later", [this](Invocation& invocation) {
        note(invocation);
        replies_.push_back(invocation.defer());
      });
      rpc.register_function("nest", [this, rank](Invocation& invocation) {
        note(invocation);
        auto future = call(rank, &invocation);
        wait(*future, kForever);
        future->value();
      });
    }
    group_.begin();
  }

  void blow(bool kill) {
    group_.network.faults.drop = 0.02;
    group_.network.faults.would_block = 0.05;
    for (int i = 0; i < 60; ++i) {
      const size_t from = below(static_cast<uint64_t>(size_));
      if (!is_dead(from)) futures_.push_back(call(from, nullptr));
      if (below(8) == 0) futures_[below(futures_.size())]->cancel();
      if (below(4) == 0 && !replies_.empty()) settle(below(replies_.size()));
      if (below(10) == 0) group_.network.cut_all();
      if (kill && i == 30) die(below(static_cast<uint64_t>(size_)));
      for (uint64_t steps = below(40); steps > 0; --steps) group_.scheduler.step();
    }
    const Nanos begun = group_.scheduler.now();
    for (auto& future : futures_) {
      ASSERT_TRUE(group_.scheduler.run_until([&future] { return future->is_done(); }, 60 * kSecond));
    }
    EXPECT_LE(group_.scheduler.now() - begun, kLongestCall + 100 * kMillisecond);
  }

  // The outcomes that a caller was told and the calls that ran.
  void check() const {
    for (const auto& [call, runs] : runs_) EXPECT_EQ(runs, 1) << "call " << call;
    for (size_t i = 0; i < futures_.size(); ++i) {
      const Error* error = futures_[i]->error();
      const bool has_run = runs_.contains(made_.at(futures_[i].get()));
      if (error == nullptr) {
        EXPECT_TRUE(has_run);
      } else if (!error->may_have_run()) {
        EXPECT_FALSE(has_run) << error->message();
      }
    }
  }

  void shut_down() {
    replies_.clear();
    group_.network.faults = sim::SimFaults();
    std::vector<std::shared_ptr<Future<ShutdownReport>>> reports;
    const Nanos begun = group_.scheduler.now();
    for (size_t rank = 0; rank < static_cast<size_t>(size_); ++rank) {
      if (!is_dead(rank)) reports.push_back(group_.node(rank).shutdown(10 * kSecond));
    }
    for (auto& report : reports) {
      ASSERT_TRUE(group_.scheduler.run_until([&report] { return report->is_done(); }, 60 * kSecond));
      EXPECT_TRUE(dead_ >= 0 || report->value().clean);
    }
    EXPECT_LE(group_.scheduler.now() - begun, 10 * kSecond);
    for (size_t rank = 0; rank < static_cast<size_t>(size_); ++rank) {
      EXPECT_TRUE(is_dead(rank) || group_.rpc(rank).stats().calls_open == 0);
    }
  }

 private:
  uint64_t below(uint64_t bound) { return group_.scheduler.below(bound); }
  bool is_dead(size_t rank) const { return dead_ == static_cast<int>(rank); }

  void die(size_t rank) {
    dead_ = static_cast<int>(rank);
    group_.network.kill(testing::RpcNode::name_of(dead_));
    group_.node(rank).loop.freeze();
    group_.node(rank).functions.freeze();
    group_.node(rank).compute.freeze();
    for (auto it = futures_.begin(); it != futures_.end();) {  // its host died with it
      it = makers_.at(it->get()) == rank ? futures_.erase(it) : it + 1;
    }
  }

  void note(Invocation& invocation) { ++runs_[invocation.args()[0].as_int64()]; }

  void settle(size_t which) {
    const auto reply = replies_[which];
    replies_.erase(replies_.begin() + static_cast<ptrdiff_t>(which));
    if (below(3) == 0) return;  // dropped
    if (below(2) == 0) {
      reply->finish(number(1));
    } else {
      reply->fail(Error(Status::kNotFound, "as it happens"));
    }
  }

  std::shared_ptr<Future<Value>> call(size_t from, Invocation* within) {
    static constexpr const char* kFunctions[] = {"note", "later", "nest"};
    CallRequest request;
    request.to = testing::RpcNode::name_of(static_cast<int32_t>(below(static_cast<uint64_t>(size_))));
    request.function = kFunctions[below(within != nullptr ? 2 : 3)];
    request.args = {number(++last_call_)};
    request.timeout = 1 + static_cast<Nanos>(below(kLongestCall));
    if (within != nullptr) request.within = within->shared_from_this();
    const int64_t made = last_call_;
    auto future = group_.rpc(from).call(std::move(request));
    made_[future.get()] = made;
    makers_[future.get()] = from;
    kept_.push_back(future);
    return future;
  }

  RpcGroup group_;
  const int32_t size_;
  int dead_ = -1;
  int64_t last_call_ = 0;
  std::map<int64_t, int> runs_;
  std::map<const void*, int64_t> made_;
  std::map<const void*, size_t> makers_;
  std::vector<std::shared_ptr<Future<Value>>> kept_;  // so that no address comes twice
  std::vector<std::shared_ptr<Future<Value>>> futures_;
  std::vector<std::shared_ptr<PendingReply>> replies_;
};

TEST(Promises, HoldWhileConnectionsDrop) {
  for (uint64_t seed = 1; seed <= 150; ++seed) {
    SCOPED_TRACE(seed);
    Storm storm(seed, 2 + static_cast<int32_t>(seed % 4));
    storm.blow(false);
    storm.check();
    storm.shut_down();
    if (HasFatalFailure() || HasNonfatalFailure()) return;
  }
}

TEST(Promises, HoldWhileAWorkerDies) {
  for (uint64_t seed = 1; seed <= 150; ++seed) {
    SCOPED_TRACE(seed);
    Storm storm(seed, 3 + static_cast<int32_t>(seed % 3));
    storm.blow(true);
    storm.check();
    storm.shut_down();
    if (HasFatalFailure() || HasNonfatalFailure()) return;
  }
}

}  // namespace
}  // namespace distag
