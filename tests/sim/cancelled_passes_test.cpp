// Passes that are cancelled or run out of time at any moment, and repeated: no late message counts as a violation.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "sim/graph_checks.h"
#include "sim/random_graph.h"
#include "support/sim_group.h"

namespace distag::sim {
namespace {

// All workers here can be reached all the time, so no peer may be given up.
void expect_nobody_lost(SimWorkerGroup& group) {
  for (const std::string& line : group.log_lines()) EXPECT_EQ(line.find("is lost"), std::string::npos) << line;
}

// A pass that has ended is over on all workers that took part, though the context goes on.
void expect_no_pass_open(SimWorkerGroup& group) {
  const auto open = [&group] {
    uint64_t count = 0;
    for (int32_t rank = 0; rank < group.size(); ++rank) count += group.worker(rank).stats().dautograd.passes_open;
    return count;
  };
  EXPECT_TRUE(group.scheduler().run_until([&open] { return open() == 0; }, kSecond)) << open();
}

struct Tally {
  size_t ended_early = 0;
  size_t committed = 0;
};

// Begins a pass and ends it soon, by a cancel or its deadline, unless it is done by then.
void begin_and_end_soon(SimWorkerGroup& group, Context& context, const Tensors& roots, BackwardOptions options,
                        Tally* tally) {
  SimScheduler& scheduler = group.scheduler();
  const Nanos moment = scheduler.between(0, 2 * kMillisecond);
  const bool is_cancelled = scheduler.below(2) == 0;
  if (!is_cancelled) options.timeout = moment + 1;
  const auto pass = context.backward_async(roots, options);
  if (is_cancelled) {
    scheduler.run_for(moment);
    pass->cancel();
  }
  wait(*pass, kForever);
  const Error* error = pass->error();
  if (error == nullptr) {
    ++tally->committed;
    return;
  }
  ++tally->ended_early;
  EXPECT_TRUE(error->status() == Status::kCancelled || error->status() == Status::kDeadline) << error->message();
}

void run_with_cancels(uint64_t seed, BackwardMode mode, const SimFaults& faults, Tally* tally) {
  GraphOptions graph_options;
  graph_options.workers = 2 + static_cast<int32_t>(seed % 4);
  graph_options.use_everything = mode == BackwardMode::kFast;
  const RandomGraph graph(seed, graph_options);
  SCOPED_TRACE(graph.describe());
  SimGroupOptions options;
  options.size = graph.options.workers;
  options.faults = faults;
  SimWorkerGroup group(seed, options);
  register_blocks(group, graph);
  group.start();
  {
    const auto context = group.worker(0).dautograd().create_context();
    const Tensors outputs = run_distributed(group, graph, context->global_id());
    const Tensors roots = make_roots(outputs, graph.roots[0]);
    BackwardOptions backward;
    backward.mode = mode;
    backward.retain_graph = true;
    Tally here;
    for (size_t attempt = 0; attempt < 4; ++attempt) {
      begin_and_end_soon(group, *context, roots, backward, &here);
      // Otherwise the next pass follows at once.
      if (attempt % 2 == 1) expect_no_pass_open(group);
    }
    context->backward(roots, backward);
    expect_gradients(group, graph, context->global_id(), *local_gradients_of_repeats(graph, here.committed + 1));
    tally->ended_early += here.ended_early;
    tally->committed += here.committed;
  }
  expect_nothing_left(group);
  expect_nobody_lost(group);
  for (const ShutdownReport& report : group.shutdown()) EXPECT_TRUE(report.clean);
}

void run_seeds(BackwardMode mode, const SimFaults& faults = {}) {
  Tally tally;
  const bool is_sweep =
      for_each_seed(2000, [mode, &faults, &tally](uint64_t seed) { run_with_cancels(seed, mode, faults, &tally); });
  if (!is_sweep) return;
  EXPECT_GT(tally.ended_early, tally.committed / 10);
  EXPECT_GT(tally.committed, tally.ended_early / 10);
}

TEST(CancelledPassesTest, SmartCanBeRepeated) { run_seeds(BackwardMode::kSmart); }

TEST(CancelledPassesTest, FastCanBeRepeated) { run_seeds(BackwardMode::kFast); }

TEST(CancelledPassesTest, TheyCanOverConnectionsThatDrop) {
  SimFaults faults;
  faults.drop = 0.03;
  faults.would_block = 0.03;
  for (const BackwardMode mode : {BackwardMode::kSmart, BackwardMode::kFast}) run_seeds(mode, faults);
}

}  // namespace
}  // namespace distag::sim
