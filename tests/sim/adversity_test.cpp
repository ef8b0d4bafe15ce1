// Forwards and passes in adversity: connections that drop, dials that fail, links that are parted (one way, too) or
// slow for large messages, hosts that pause, tasks that take their time, clocks that differ, jump and stand still, and
// too few descriptors; passes that are cancelled, run out of time and are repeated; and, in the kinds with a loss, a
// worker that dies, leaves or stops for longer than a lease, or two that lose each other. After every step: a worker
// has given up only peers that are gone, or that it could not hear for a lease.
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "sim/graph_checks.h"
#include "sim/hearing.h"
#include "sim/random_graph.h"
#include "support/sim_group.h"

namespace distag::sim {
namespace {

constexpr Nanos kLease = 5 * kSecond;
constexpr Nanos kLongestTrouble = 300 * kMillisecond;  // far below a lease
constexpr Nanos kLongestPause = 3200 * kMillisecond;   // with all other troubles, still below a lease
constexpr Nanos kLongestShortage = 2 * kSecond;
constexpr Nanos kBearableSilence = kLease * 9 / 10;  // clocks differ by a little
constexpr double kLargestDrift = 0.02;

struct Kind {
  bool has_loss = false;
  bool has_clocks = false;    // each host has a clock of its own, and may pause for long
  bool has_shortage = false;  // of descriptors, at every dial and of a host for a while
};

struct Tally {
  bool is_sweep = false;
  size_t runs = 0;
  size_t passes = 0;
  size_t ended_early = 0;
  size_t failures = 0;
};

class Adversity {
 public:
  Adversity(uint64_t seed, const Kind& kind, Tally* tally)
      : kind_(kind),
        tally_(tally),
        random_(seed),
        graph_(seed, graph_options(seed)),
        group_(seed, options()),
        hearing_(group_.scheduler(), group_.size()) {
    register_blocks(group_, graph_);
    group_.scheduler().set_observer([this] { look_at_log(); });
    if (below(4) == 0) group_.scheduler().set_longest_task(between(0, kMillisecond));
  }

  ~Adversity() { group_.scheduler().set_observer(nullptr); }
  Adversity(const Adversity&) = delete;
  Adversity& operator=(const Adversity&) = delete;

  void run() {
    SCOPED_TRACE(graph_.describe());
    ++tally_->runs;
    if (kind_.has_clocks) set_clocks();
    group_.start();
    for (uint64_t trouble = below(5); trouble > 0; --trouble) plan_trouble();
    if (kind_.has_clocks) plan_pause();
    if (kind_.has_shortage) plan_shortage();
    if (kind_.has_loss) plan_loss();
    for (int attempt = 0; try_program(); ++attempt) ASSERT_LT(attempt, 20);
    group_.scheduler().run_for(kind_.has_loss ? 30 * kSecond : kind_.has_clocks ? 2 * kLease : kSecond);
    expect_nothing_left(group_);
    const auto reports = group_.shutdown();
    for (const ShutdownReport& report : reports) EXPECT_TRUE(report.clean || kind_.has_loss);
  }

 private:
  uint64_t below(uint64_t bound) { return bound < 2 ? 0 : random_.next() % bound; }
  Nanos between(Nanos low, Nanos high) {
    return low + static_cast<Nanos>(below(static_cast<uint64_t>(high - low) + 1));
  }
  double up_to(double most) { return most * static_cast<double>(below(1001)) / 1000; }
  int32_t any_rank(int32_t first = 0) {
    return first + static_cast<int32_t>(below(static_cast<uint64_t>(graph_.options.workers - first)));
  }
  static std::string name(int32_t rank) { return SimWorkerGroup::name(rank); }

  GraphOptions graph_options(uint64_t seed) {
    GraphOptions options;
    options.workers = 2 + static_cast<int32_t>(below(4));
    options.use_everything = is_fast_ = seed % 3 == 0;
    return options;
  }
  SimGroupOptions options() {
    SimGroupOptions options;
    options.size = graph_.options.workers;
    options.is_open = kind_.has_loss;
    options.faults.max_delay = between(10 * kMicrosecond, 3 * kMillisecond);
    options.faults.delay_per_kib = between(0, 2 * kMillisecond);
    options.faults.drop = below(2) == 0 ? 0 : up_to(0.03);
    options.faults.would_block = below(2) == 0 ? 0 : up_to(0.05);
    options.faults.fail_dial = below(2) == 0 ? 0 : up_to(0.2);
    if (kind_.has_shortage) options.faults.no_descriptor = up_to(0.5);
    return options;
  }

  // At some moment of a forward and its passes.
  void soon(Task task) { later(between(0, 20 * kMillisecond), std::move(task)); }
  void later(Nanos delay, Task task) { group_.scheduler().at(group_.scheduler().now() + delay, std::move(task)); }

  void part(int32_t a, int32_t b, bool is_one_way) {
    is_one_way ? group_.network().part_one_way(name(a), name(b)) : group_.network().part(name(a), name(b));
    hearing_.note_part(a, b, true);
  }
  void join(int32_t a, int32_t b) {
    group_.network().join(name(a), name(b));
    hearing_.note_part(a, b, false);
  }
  void pause(int32_t rank, Nanos duration, bool clock_stands = false) {
    if (group_.is_killed(rank)) return;
    clock_stands ? group_.suspend(rank) : group_.freeze(rank);
    hearing_.note_stop(rank, true);
    later(duration, [this, rank] {
      group_.thaw(rank);
      hearing_.note_stop(rank, false);
    });
  }
  void jump_clock(int32_t rank, Nanos ahead) {
    group_.jump_clock(rank, ahead);
    hearing_.note_jump(rank, ahead);
  }

  void plan_trouble() {
    const int32_t a = any_rank();
    const int32_t b = any_rank();
    const Nanos duration = between(0, kLongestTrouble);
    switch (below(4)) {
      case 0:
        soon([this, a, b] { group_.network().cut(name(a), name(b)); });
        break;
      case 1:
      case 2:
        soon([this, a, b, duration, is_one_way = below(2) == 0] {
          if (given_up_.contains(std::minmax(a, b))) return;
          part(a, b, is_one_way);
          later(duration, [this, a, b] {
            if (!given_up_.contains(std::minmax(a, b))) join(a, b);
          });
        });
        break;
      default:
        soon([this, a, duration] { pause(a, duration); });
    }
  }

  void set_clocks() {
    for (int32_t rank = 0; rank < group_.size(); ++rank) {
      group_.run_clock_at(rank, 1 - kLargestDrift + up_to(2 * kLargestDrift));
      if (below(2) == 0) group_.jump_clock(rank, between(0, 1000 * kSecond));
    }
  }

  // A pause as by SIGSTOP, or as by the suspension of a machine; or the clock alone jumps ahead.
  void plan_pause() {
    const int32_t rank = any_rank();
    switch (below(3)) {
      case 0:
        soon([this, rank, ahead = between(0, 2 * kLease)] { jump_clock(rank, ahead); });
        break;
      default:
        soon([this, rank, duration = between(0, kLongestPause), clock_stands = below(2) == 0] {
          pause(rank, duration, clock_stands);
        });
    }
  }

  // The host has to dial again, and is dialled, in the middle of the shortage.
  void plan_shortage() {
    const int32_t rank = any_rank();
    soon([this, rank, cut_at = between(0, kMillisecond), duration = between(0, kLongestShortage)] {
      group_.network().set_short(name(rank), true);
      hearing_.note_shortage(rank, true);
      later(cut_at, [this, rank] {
        for (int32_t other = 0; other < group_.size(); ++other) group_.network().cut(name(rank), name(other));
      });
      later(duration, [this, rank] {
        group_.network().set_short(name(rank), false);
        hearing_.note_shortage(rank, false);
      });
    });
  }

  // A worker that does not run the program dies, leaves or stops for long; or it and another lose each other.
  void plan_loss() {
    const int32_t victim = any_rank(1);
    const int32_t other =
        (victim + 1 + static_cast<int32_t>(below(static_cast<uint64_t>(group_.size() - 1)))) % group_.size();
    switch (below(kind_.has_clocks ? 5 : 3)) {
      case 0:
        soon([this, victim] {
          gone_.insert(name(victim));
          group_.kill(victim);
        });
        break;
      case 1:
        soon([this, victim, patience = between(0, kSecond)] {
          gone_.insert(name(victim));
          group_.worker(victim).shutdown(patience);
        });
        break;
      case 2:
        soon([this, victim, other, is_one_way = below(2) == 0] {
          given_up_.insert(std::minmax(victim, other));
          part(victim, other, is_one_way);
          later(12 * kSecond, [this, victim, other] { join(victim, other); });
        });
        break;
      default:
        soon([this, victim, duration = between(kLease, 3 * kLease), clock_stands = below(2) == 0] {
          pause(victim, duration, clock_stands);
        });
    }
  }

  // Whether to run the program again: descriptors were short for so long that a call failed with it.
  bool try_program() {
    try {
      run_program();
      return false;
    } catch (const Error& error) {
      const bool is_short = kind_.has_shortage && !kind_.has_loss && error.status() == Status::kOutOfMemory;
      if (is_short) return true;
      ++tally_->failures;
      EXPECT_TRUE(kind_.has_loss) << error.message();
      return false;
    }
  }

  void run_program() {
    const auto context = group_.worker(0).dautograd().create_context();
    const Tensors outputs = run_distributed(group_, graph_, context->global_id());
    const Tensors roots = make_roots(outputs, graph_.roots[0]);
    BackwardOptions options;
    options.mode = is_fast_ ? BackwardMode::kFast : BackwardMode::kSmart;
    options.retain_graph = true;
    size_t committed = 0;
    for (uint64_t attempt = below(4); attempt > 0; --attempt) committed += end_soon(*context, roots, options);
    context->backward(roots, options);
    ++tally_->passes;
    if (kind_.has_loss) return;  // gradients of a lost worker are gone with it
    expect_gradients(group_, graph_, context->global_id(), *local_gradients_of_repeats(graph_, committed + 1));
  }

  // A pass that is cancelled or has little time. True: it was committed all the same.
  bool end_soon(Context& context, const Tensors& roots, BackwardOptions options) {
    const Nanos moment = between(0, 8 * kMillisecond);
    const bool is_cancelled = below(2) == 0;
    if (!is_cancelled) options.timeout = moment + 1;
    const auto pass = context.backward_async(roots, options);
    if (is_cancelled) {
      group_.scheduler().run_for(moment);
      pass->cancel();
    }
    wait(*pass, kForever);
    const Error* error = pass->error();
    if (error == nullptr) return true;
    ++tally_->ended_early;
    const bool is_ours = error->status() == Status::kCancelled || error->status() == Status::kDeadline;
    const bool is_short = kind_.has_shortage && error->status() == Status::kOutOfMemory;
    EXPECT_TRUE(is_ours || is_short || kind_.has_loss) << error->message();
    return false;
  }

  // A line of the log names the worker that gives up, and the peer that is given up.
  void look_at_log() {
    const std::vector<std::string>& lines = group_.log_lines();
    for (; seen_ < lines.size(); ++seen_) {
      const std::string& line = lines[seen_];
      EXPECT_EQ(line.find("broke the protocol"), std::string::npos) << line;
      if (line.find(" is lost: ") == std::string::npos) continue;
      const std::string by = line.substr(0, line.find(':'));
      const size_t quote = line.find('"') + 1;
      const std::string lost = line.substr(quote, line.find('"', quote) - quote);
      const Nanos silence = hearing_.longest_silence(std::stoi(by.substr(1)), std::stoi(lost.substr(1)));
      EXPECT_TRUE(gone_.contains(by) || gone_.contains(lost) || silence >= kBearableSilence)
          << line << "\nafter a silence of " << static_cast<double>(silence) / kSecond << " s";
      EXPECT_TRUE(kind_.has_loss) << line;
    }
  }

  const Kind kind_;
  Tally* const tally_;
  SeededRandom random_;
  bool is_fast_ = false;
  std::set<std::string> gone_;
  std::set<std::pair<int32_t, int32_t>> given_up_;
  size_t seen_ = 0;
  const RandomGraph graph_;
  SimWorkerGroup group_;
  Hearing hearing_;
};

Tally run_seeds(const Kind& kind) {
  Tally tally;
  tally.is_sweep = for_each_seed(2000, [&kind, &tally](uint64_t seed) { Adversity(seed, kind, &tally).run(); });
  return tally;
}

void expect_no_loss(const Tally& tally) {
  EXPECT_EQ(tally.passes, tally.runs);
  if (tally.is_sweep) {
    EXPECT_GT(tally.ended_early, tally.runs / 4);
  }
}

void expect_losses(const Tally& tally) {
  if (!tally.is_sweep) return;
  EXPECT_GT(tally.passes, tally.runs / 10);
  EXPECT_GT(tally.failures, tally.runs / 10);
}

TEST(AdversityTest, WithoutALossNobodyIsGivenUpAndAPassCanBeRepeated) { expect_no_loss(run_seeds({})); }

TEST(AdversityTest, WithALossNobodyElseIsGivenUpAndNothingIsLeft) { expect_losses(run_seeds({.has_loss = true})); }

TEST(AdversityTest, ClocksThatDifferAndHostsThatPauseLoseNobody) { expect_no_loss(run_seeds({.has_clocks = true})); }

TEST(AdversityTest, WithSuchClocksALossTakesNobodyElse) {
  expect_losses(run_seeds({.has_loss = true, .has_clocks = true}));
}

TEST(AdversityTest, ForWantOfDescriptorsNobodyIsLost) { expect_no_loss(run_seeds({.has_shortage = true})); }

TEST(AdversityTest, AmongAllOfThatALossTakesNobodyElse) {
  expect_losses(run_seeds({.has_loss = true, .has_clocks = true, .has_shortage = true}));
}

}  // namespace
}  // namespace distag::sim
