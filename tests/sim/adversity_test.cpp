// Forwards and passes in adversity: connections that drop, dials that fail, links that are parted (one way, too) or
// slow for what is large, hosts that pause, tasks that take their time; passes that are cancelled, run out of time and
// are repeated; and, in the second kind, a worker that dies or leaves, or two that lose each other. After every step:
// nobody has given up anybody but those.
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "sim/graph_checks.h"
#include "sim/random_graph.h"
#include "support/sim_group.h"

namespace distag::sim {
namespace {

constexpr Nanos kLongestTrouble = 300 * kMillisecond;  // far below a lease

struct Tally {
  size_t runs = 0;
  size_t passes = 0;
  size_t ended_early = 0;
  size_t failures = 0;
};

class Adversity {
 public:
  Adversity(uint64_t seed, bool has_loss, Tally* tally)
      : has_loss_(has_loss), tally_(tally), random_(seed), graph_(seed, graph_options(seed)), group_(seed, options()) {
    register_blocks(group_, graph_);
    group_.scheduler().set_observer([this] { look_at_log(); });
    if (below(4) == 0) group_.scheduler().set_longest_task(between(0, kMillisecond));
  }

  void run() {
    SCOPED_TRACE(graph_.describe());
    ++tally_->runs;
    group_.start();
    for (uint64_t trouble = below(5); trouble > 0; --trouble) plan_trouble();
    if (has_loss_) plan_loss();
    try {
      run_program();
    } catch (const Error& error) {
      ++tally_->failures;
      EXPECT_TRUE(has_loss_) << error.message();
    }
    group_.scheduler().run_for(has_loss_ ? 30 * kSecond : kSecond);
    expect_nothing_left(group_);
    const auto reports = group_.shutdown();
    for (const ShutdownReport& report : reports) EXPECT_TRUE(report.clean || has_loss_);
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
    options.is_open = has_loss_;
    options.faults.max_delay = between(10 * kMicrosecond, 3 * kMillisecond);
    options.faults.delay_per_kib = between(0, 2 * kMillisecond);
    options.faults.drop = below(2) == 0 ? 0 : up_to(0.03);
    options.faults.would_block = below(2) == 0 ? 0 : up_to(0.05);
    options.faults.fail_dial = below(2) == 0 ? 0 : up_to(0.2);
    return options;
  }

  // At some moment of what a forward and its passes take.
  void soon(Task task) { later(between(0, 20 * kMillisecond), std::move(task)); }
  void later(Nanos delay, Task task) { group_.scheduler().at(group_.scheduler().now() + delay, std::move(task)); }

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
          is_one_way ? group_.network().part_one_way(name(a), name(b)) : group_.network().part(name(a), name(b));
          later(duration, [this, a, b] {
            if (!given_up_.contains(std::minmax(a, b))) group_.network().join(name(a), name(b));
          });
        });
        break;
      default:
        soon([this, a, duration] {
          if (group_.is_killed(a)) return;
          group_.freeze(a);
          later(duration, [this, a] { group_.thaw(a); });
        });
    }
  }

  // Of a worker other than the one that runs the program, or between any two.
  void plan_loss() {
    const int32_t victim = any_rank(1);
    const int32_t other =
        (victim + 1 + static_cast<int32_t>(below(static_cast<uint64_t>(group_.size() - 1)))) % group_.size();
    switch (below(3)) {
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
      default:
        soon([this, victim, other, is_one_way = below(2) == 0] {
          given_up_.insert(std::minmax(victim, other));
          is_one_way ? group_.network().part_one_way(name(victim), name(other))
                     : group_.network().part(name(victim), name(other));
          later(12 * kSecond, [this, victim, other] { group_.network().join(name(victim), name(other)); });
        });
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
    if (has_loss_) return;  // whose gradients are gone with it
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
    EXPECT_TRUE(is_ours || has_loss_) << error->message();
    return false;
  }

  // A line of the log names the one who gives up and the one who is given up.
  void look_at_log() {
    const std::vector<std::string>& lines = group_.log_lines();
    for (; seen_ < lines.size(); ++seen_) {
      const std::string& line = lines[seen_];
      EXPECT_EQ(line.find("broke the protocol"), std::string::npos) << line;
      if (line.find(" is lost: ") == std::string::npos) continue;
      const std::string by = line.substr(0, line.find(':'));
      const size_t quote = line.find('"') + 1;
      const std::string lost = line.substr(quote, line.find('"', quote) - quote);
      EXPECT_TRUE(gone_.contains(by) || gone_.contains(lost) ||
                  given_up_.contains(std::minmax(std::stoi(by.substr(1)), std::stoi(lost.substr(1)))))
          << line;
    }
  }

  const bool has_loss_;
  Tally* const tally_;
  SeededRandom random_;
  bool is_fast_ = false;
  std::set<std::string> gone_;
  std::set<std::pair<int32_t, int32_t>> given_up_;
  size_t seen_ = 0;
  const RandomGraph graph_;
  SimWorkerGroup group_;
};

Tally run_seeds(uint64_t count, bool has_loss) {
  Tally tally;
  for_each_seed(count, [has_loss, &tally](uint64_t seed) { Adversity(seed, has_loss, &tally).run(); });
  return tally;
}

TEST(AdversityTest, WithoutALossNobodyIsGivenUpAndAPassCanBeRepeated) {
  const Tally tally = run_seeds(2000, false);
  EXPECT_EQ(tally.passes, tally.runs);
  if (std::getenv("DISTAG_SIM_SEED") == nullptr) {
    EXPECT_GT(tally.ended_early, tally.runs / 4);
  }
}

TEST(AdversityTest, WithALossNobodyElseIsGivenUpAndNothingIsLeft) {
  const Tally tally = run_seeds(2000, true);
  if (std::getenv("DISTAG_SIM_SEED") == nullptr) {
    EXPECT_GT(tally.passes, tally.runs / 10);
    EXPECT_GT(tally.failures, tally.runs / 10);
  }
}

}  // namespace
}  // namespace distag::sim
