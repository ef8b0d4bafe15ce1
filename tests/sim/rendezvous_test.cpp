// Groups that meet by the rendezvous of rank 0, over a network that drops, refuses and parts: members that come at any
// moment, give a start up and begin again, are killed or leave and come back; rivals for a place that is taken; and the
// end of rank 0, after which the others go on and no worker joins any more.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "support/sim_group.h"
#include "unit/group/joiners.h"

namespace distag::sim {
namespace {

constexpr const char* kUri = "tcp://w0:29500";
constexpr Nanos kPatience = 60 * kSecond;

class Meetings {
 public:
  explicit Meetings(uint64_t seed) : random_(seed), is_open_(below(2) == 0), group_(seed, options()) {
    for (int32_t rank = 0; rank < group_.size(); ++rank) register_functions(rank);
    group_.scheduler().set_observer([this] { look_at_log(); });
  }
  ~Meetings() { group_.scheduler().set_observer(nullptr); }
  Meetings(const Meetings&) = delete;
  Meetings& operator=(const Meetings&) = delete;

  void run() {
    start_all();
    expect_all_call_all();
    for (uint64_t round = below(4); round > 0; --round) {
      if (below(3) == 0) {
        expect_no_place_for_a_rival();
      } else {
        return_once();
      }
      expect_all_call_all();
    }
    if (below(2) == 0) end_without_host();
    for (const ShutdownReport& report : group_.shutdown()) EXPECT_TRUE(report.clean || !gone_.empty());
  }

 private:
  uint64_t below(uint64_t bound) { return bound < 2 ? 0 : random_.next() % bound; }
  Nanos between(Nanos low, Nanos high) {
    return low + static_cast<Nanos>(below(static_cast<uint64_t>(high - low) + 1));
  }
  double up_to(double most) { return most * static_cast<double>(below(1001)) / 1000; }
  int32_t any_guest() { return 1 + static_cast<int32_t>(below(static_cast<uint64_t>(group_.size() - 1))); }
  static std::string name(int32_t rank) { return SimWorkerGroup::name(rank); }
  void later(Nanos delay, Task task) { group_.scheduler().at(group_.scheduler().now() + delay, std::move(task)); }

  SimGroupOptions options() {
    SimGroupOptions options;
    options.size = 2 + static_cast<int32_t>(below(4));
    options.is_open = is_open_;
    options.rendezvous = kUri;
    options.faults.max_delay = between(10 * kMicrosecond, 3 * kMillisecond);
    options.faults.drop = below(2) == 0 ? 0 : up_to(0.1);
    options.faults.would_block = below(2) == 0 ? 0 : up_to(0.1);
    options.faults.fail_dial = below(2) == 0 ? 0 : up_to(0.3);
    return options;
  }

  void register_functions(int32_t rank) {
    group_.worker(rank).rpc().register_function(
        "double", [](Invocation& invocation) { invocation.set_result(Value(2 * invocation.args().at(0).as_int64())); });
  }

  // A fault that the rendezvous has to tolerate while workers join.
  void plan_trouble() {
    const int32_t rank = static_cast<int32_t>(below(static_cast<uint64_t>(group_.size())));
    const Nanos when = between(0, 300 * kMillisecond);
    const Nanos duration = between(0, 2 * kSecond);
    switch (below(3)) {
      case 0:
        later(when, [this, rank] { group_.network().cut(name(0), name(rank)); });
        break;
      case 1:
        later(when, [this, rank, duration] {
          group_.freeze(rank);
          later(duration, [this, rank] { group_.thaw(rank); });
        });
        break;
      default:
        later(when, [this, rank, duration, is_one_way = below(2) == 0] {
          is_one_way ? group_.network().part_one_way(name(0), name(rank)) : group_.network().part(name(0), name(rank));
          later(duration, [this, rank] { group_.network().join(name(0), name(rank)); });
        });
    }
  }

  void start(int32_t rank) {
    const auto started = group_.worker(rank).start(kPatience);
    if (below(4) == 0) {
      group_.scheduler().run_for(between(0, 50 * kMillisecond));
      started->cancel();
    }
    wait(*started, kForever);
    if (started->error() == nullptr) return;
    EXPECT_EQ(started->error()->status(), Status::kCancelled) << started->error()->message();
    began_again_.insert(name(rank));
    const auto again = group_.worker(rank).start(kPatience);
    wait(*again, kForever);
    again->value();
  }

  void start_all() {
    if (below(2) == 0) plan_trouble();
    std::vector<std::shared_ptr<Future<Unit>>> threads;
    for (int32_t rank = 0; rank < group_.size(); ++rank) {
      threads.push_back(group_.scheduler().spawn([this, rank, delay = between(0, 500 * kMillisecond)] {
        let_pass(delay);
        start_in_thread(rank);
      }));
    }
    for (const auto& thread : threads) {
      wait(*thread, kForever);
      thread->value();
    }
  }

  // On a thread of the host; the time is that of the simulation.
  static void let_pass(Nanos duration) { wait(*Future<Unit>::make(), duration); }
  void start_in_thread(int32_t rank) {
    const auto first = group_.worker(rank).start(kPatience);
    if (rank != 0 && below(4) == 0) {
      let_pass(between(0, 300 * kMillisecond));
      first->cancel();
    }
    wait(*first, kForever);
    if (first->error() == nullptr) return;
    EXPECT_EQ(first->error()->status(), Status::kCancelled) << first->error()->message();
    began_again_.insert(name(rank));
    const auto second = group_.worker(rank).start(kPatience);
    wait(*second, kForever);
    second->value();
  }

  void expect_all_call_all() {
    if (is_open_) expect_all_known();
    for (int32_t from = 0; from < group_.size(); ++from) {
      for (int32_t to = 0; to < group_.size(); ++to) {
        if (is_away_.contains(from) || is_away_.contains(to)) continue;
        EXPECT_EQ(group_.call(from, to, "double", {Value(int64_t{7})}).as_int64(), 14);
      }
    }
  }

  void expect_all_known() {
    const auto living = group_.size() - static_cast<int32_t>(is_away_.size());
    EXPECT_TRUE(group_.scheduler().run_until(
        [this, living] {
          for (int32_t rank = 0; rank < group_.size(); ++rank) {
            if (!is_away_.contains(rank) && group_.worker(rank).world_size() != living) return false;
          }
          return true;
        },
        30 * kSecond));
  }

  // Ends a worker, by SIGKILL or by leaving.
  void end(int32_t rank) {
    gone_.insert(name(rank));
    if (is_open_ && below(2) == 0) {
      const auto report = group_.worker(rank).shutdown(kPatience);
      wait(*report, kForever);
      EXPECT_TRUE(report->value().clean);
    }
    group_.kill(rank);
  }

  void return_once() {
    const int32_t rank = any_guest();
    end(rank);
    group_.scheduler().run_for(between(0, below(2) == 0 ? 10 * kMillisecond : 10 * kSecond));
    group_.restart(rank);
    register_functions(rank);
    if (below(2) == 0) plan_trouble();
    start(rank);
    group_.scheduler().run_for(3 * kSecond);  // the trouble is over
  }

  // The connection of a guest to rank 0 drops, and its next dials find no descriptor: the guest keeps its place.
  void expect_no_place_for_a_rival() {
    const int32_t rank = any_guest();
    group_.network().set_short(name(rank), below(2) == 0);
    for (uint64_t cuts = 1 + below(3); cuts > 0; --cuts) {
      group_.network().cut(name(0), name(rank));
      group_.scheduler().run_for(between(0, 500 * kMillisecond));
    }
    group_.network().set_short(name(rank), false);
    const double drop = std::exchange(group_.network().faults.drop, 0);
    group_.scheduler().run_for(20 * kSecond);  // longer than it may pause before it dials again
    JoinRequest request;
    request.job = "default";
    request.world_size = is_open_ ? -1 : group_.size();
    request.self.rank = rank;
    request.self.name = name(rank);
    request.self.endpoint = "sim://rival";
    request.self.incarnation = 1 + rivals_++;
    request.deadline = deadline_after(group_.scheduler().now(), kPatience);
    distag::testing::FakeEtcd etcd(group_.scheduler());  // never asked
    distag::testing::Joiner rival(group_.scheduler(), group_.network(), etcd, {}, kUri, std::move(request));
    rival.join();
    EXPECT_EQ(rival.error().status(), Status::kInvalidState) << rival.error().message();
    group_.network().faults.drop = drop;
  }

  // Without rank 0 no worker joins any more, and its start fails at its deadline.
  void end_without_host() {
    end(0);
    is_away_.insert(0);
    group_.scheduler().run_for(between(0, 10 * kSecond));
    const int32_t rank = any_guest();
    end(rank);
    is_away_.insert(rank);
    group_.scheduler().run_for(10 * kSecond);
    expect_all_call_all();
    const auto started = group_.restart(rank).start(5 * kSecond);
    wait(*started, kForever);
    ASSERT_NE(started->error(), nullptr);
    EXPECT_EQ(started->error()->status(), Status::kDisconnected) << started->error()->message();
    expect_all_call_all();
  }

  void look_at_log() {
    const std::vector<std::string>& lines = group_.log_lines();
    for (; seen_ < lines.size(); ++seen_) {
      const std::string& line = lines[seen_];
      EXPECT_EQ(line.find("broke the protocol"), std::string::npos) << line;
      if (line.find(" is lost: ") == std::string::npos) continue;
      const size_t quote = line.find('"') + 1;
      const std::string lost = line.substr(quote, line.find('"', quote) - quote);
      // Others may know a worker from a start that it gave up, and lose that incarnation. The new one is not silent.
      if (began_again_.contains(lost) && line.find("acknowledged nothing") == std::string::npos) continue;
      EXPECT_TRUE(gone_.contains(line.substr(0, line.find(':'))) || gone_.contains(lost)) << line;
    }
  }

  SeededRandom random_;
  const bool is_open_;
  std::set<std::string> began_again_;
  std::set<std::string> gone_;  // once at least
  std::set<int32_t> is_away_;   // for good
  uint64_t rivals_ = 0;
  size_t seen_ = 0;
  SimWorkerGroup group_;
};

TEST(RendezvousTest, MembersComeAndGoAtAnyMoment) {
  for_each_seed(2000, [](uint64_t seed) { Meetings(seed).run(); });
}

}  // namespace
}  // namespace distag::sim
