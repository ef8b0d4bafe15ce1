// Starts in which handshakes take long: all members call each other at once, and the handshakes of a host take longer
// than a lease together. Living members lose no peer; a member that dies meanwhile is lost in time.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "support/sim_group.h"

namespace distag::sim {
namespace {

constexpr Nanos kLease = kSecond;
constexpr uint64_t kSeeds = 40;
constexpr int kWordsOfHandshake = 3;

// How many workers start, and how long the handshakes of a host take together.
struct Load {
  int32_t fewest;
  int32_t most;
  Nanos all_handshakes;
};
// Words of these handshakes take up to a quarter of a lease while eight have their turn.
constexpr Load kMany = {28, 32, 5 * kLease / 2};
// Handshakes that are silent for longer: if eight begin at once, a word of the first takes up to two thirds of a lease.
constexpr Load kSilent[] = {{16, 20, 4 * kLease}, {12, 16, 4 * kLease}, {24, 28, 4 * kLease}, {28, 32, 3 * kLease}};

class SlowStart {
 public:
  SlowStart(uint64_t seed, const Load& load)
      : load_(load), random_(seed), size_(between(load.fewest, load.most)), group_(seed, options()) {
    for (int32_t rank = 0; rank < size_; ++rank) {
      group_.worker(rank).rpc().register_function("count", [this, rank](Invocation& invocation) {
        ++runs_[{static_cast<int32_t>(invocation.args()[0].as_int64()), rank}];
      });
    }
    group_.start();
    group_.network().faults.handshake_work = work();
    begin_ = now();
  }

  // Each worker calls every other one at once.
  void call_all() {
    for (int32_t from = 0; from < size_; ++from) {
      for (int32_t to = 0; to < size_; ++to) {
        if (from != to) calls_[{from, to}] = call(from, to);
      }
    }
  }
  // Drops connections while the handshakes go on, most of them while they are being made.
  void plan_drops() {
    for (int64_t drops = between(size_ / 2, size_); drops > 0; --drops) {
      soon([this, from = any_rank(), to = any_rank()] { group_.network().hang_up(name(from), name(to)); });
    }
  }
  // A process ends, or a machine falls silent.
  void plan_death() {
    victim_ = any_rank();
    soon([this, is_told = between(0, 1) == 0] {
      died_at_ = now();
      if (is_told) return group_.kill(victim_);
      for (int32_t other = 0; other < size_; ++other) group_.network().part(name(victim_), name(other));
    });
  }

  void expect_no_loss() {
    for (const auto& [pair, one] : calls_) {
      wait(*one, kForever);
      if (one->error() != nullptr) {
        ADD_FAILURE() << name(pair.first) << " to " << name(pair.second) << ": " << one->error()->message();
        return;
      }
      EXPECT_EQ(runs_[pair], 1) << name(pair.first) << " to " << name(pair.second);
    }
    for (int32_t rank = 0; rank < size_; ++rank) EXPECT_EQ(lost_by(rank), 0u) << name(rank);
    for (const ShutdownReport& report : group_.shutdown()) EXPECT_TRUE(report.clean);
  }

  // Each of the others loses the dead worker within `bound`, and no other peer.
  void expect_loss_within(Nanos bound) {
    group_.scheduler().run_until([this] { return died_at_ >= 0; });
    group_.scheduler().run_for(bound);
    for (const auto& [pair, one] : calls_) {
      if (pair.first == victim_) continue;
      if (pair.second != victim_) wait(*one, kForever);
      const std::string who = name(pair.first) + " to " + name(pair.second);
      const int runs = runs_[pair];
      EXPECT_LE(runs, 1) << who;
      if (!one->is_done()) {
        ADD_FAILURE() << who << " waits";
      } else if (one->error() == nullptr) {
        EXPECT_EQ(runs, 1) << who;
      } else {
        EXPECT_EQ(pair.second, victim_) << who << ": " << one->error()->message();
        EXPECT_EQ(one->error()->status(), Status::kDisconnected) << who << ": " << one->error()->message();
      }
    }
    for (int32_t rank = 0; rank < size_; ++rank) {
      EXPECT_TRUE(rank == victim_ || lost_by(rank) == 1) << name(rank);
    }
  }

 private:
  static std::string name(int32_t rank) { return SimWorkerGroup::name(rank); }
  Nanos now() { return group_.scheduler().now(); }
  int32_t between(int32_t low, int32_t high) {
    return low + static_cast<int32_t>(random_.next() % static_cast<uint64_t>(high - low + 1));
  }
  int32_t any_rank() { return between(0, size_ - 1); }
  SimGroupOptions options() const {
    SimGroupOptions options;
    options.size = size_;
    options.lease = kLease;
    return options;
  }
  // Each handshake is work of two hosts.
  Nanos work() const { return load_.all_handshakes / (2 * (size_ - 1) * kWordsOfHandshake); }
  void soon(Task task) {
    const auto most = static_cast<uint64_t>(load_.all_handshakes);
    group_.scheduler().at(begin_ + static_cast<Nanos>(random_.next() % most), std::move(task));
  }
  std::shared_ptr<Future<Value>> call(int32_t from, int32_t to) {
    CallRequest request;
    request.to = name(to);
    request.function = "count";
    request.args = {Value(int64_t{from})};
    request.timeout = kForever;
    return group_.worker(from).rpc().call(std::move(request));
  }
  uint64_t lost_by(int32_t rank) {
    const auto fresh = group_.worker(rank).fetch_loop_stats();
    wait(*fresh, kForever);
    return fresh->value().session.peers_lost;
  }

  const Load load_;
  SeededRandom random_;
  const int32_t size_;
  int32_t victim_ = -1;
  Nanos died_at_ = -1;
  Nanos begin_ = 0;
  std::map<std::pair<int32_t, int32_t>, int> runs_;  // of the function, by caller and callee
  std::map<std::pair<int32_t, int32_t>, std::shared_ptr<Future<Value>>> calls_;
  SimWorkerGroup group_;
};

TEST(SlowHandshakesTest, LoseNobody) {
  for_each_seed(kSeeds, [](uint64_t seed) {
    SlowStart start(seed, kMany);
    start.call_all();
    start.expect_no_loss();
  });
}

TEST(SlowHandshakesTest, ThatAreSilentForLongLoseNobody) {
  for (const Load& load : kSilent) {
    for_each_seed(kSeeds / 2, [&load](uint64_t seed) {
      SlowStart start(seed, load);
      start.call_all();
      start.expect_no_loss();
    });
  }
}

// Handshakes that drop return to the line, and go on.
TEST(SlowHandshakesTest, ThatDropInTheMiddleLoseNobody) {
  for_each_seed(kSeeds, [](uint64_t seed) {
    SlowStart start(seed, kMany);
    start.plan_drops();
    start.call_all();
    start.expect_no_loss();
  });
}

TEST(SlowHandshakesTest, KeepNobodyThatIsDead) {
  for_each_seed(kSeeds / 4, [](uint64_t seed) {
    SlowStart start(seed, kMany);
    start.plan_death();
    start.call_all();
    start.expect_loss_within(2 * kMany.all_handshakes + 2 * kLease);
  });
}

}  // namespace
}  // namespace distag::sim
