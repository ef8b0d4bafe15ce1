// Forwards and passes while one worker gets no memory at some moment, on its pools: for one allocation, or for several
// that follow each other. The result is right or OUT_OF_MEMORY; no peer is given up, nothing hangs, and afterwards all
// goes well again. Tasks of the loop, and what is posted to them, have the reserve (base/reserve.h).
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <string>
#include <vector>

#include "base/error.h"
#include "ops/builtins.h"
#include "sim/graph_checks.h"
#include "sim/random_graph.h"
#include "support/leaves.h"
#include "support/sim_group.h"

namespace distag::sim {
namespace {

struct Tally {
  size_t runs = 0;
  size_t refused = 0;  // runs in which memory was refused
  size_t failures = 0;
  size_t ended = 0;  // workers
};

class Shortage {
 public:
  Shortage(uint64_t seed, Tally* tally, bool with_loop = false)
      : tally_(tally),
        with_loop_(with_loop),
        random_(seed),
        graph_(seed, graph_options(seed)),
        options_(options()),
        group_(seed, options_) {
    register_blocks(group_, graph_);
  }

  void run() {
    SCOPED_TRACE(graph_.describe());
    ++tally_->runs;
    group_.start();
    victim_ = static_cast<int32_t>(below(static_cast<uint64_t>(group_.size())));
    SimMemory& memory = group_.memory(victim_);
    if (with_loop_) group_.share_memory_with_loop(victim_);
    const uint64_t given = below(uint64_t{1} << (2 + below(11)));
    memory.refuse(given, below(4) == 0 ? 1 + below(8) : 1);
    while (try_program() && ++attempts_ < 20) {
    }
    EXPECT_LT(attempts_, 20);
    memory.refuse(0, 0);
    tally_->refused += memory.refused() != 0;
    group_.scheduler().run_for(10 * kSecond);
    expect_nothing_left(group_);
    if (has_ended()) {
      ++tally_->ended;
      group_.shutdown();
      return;
    }
    for (const std::string& line : group_.log_lines()) {
      EXPECT_EQ(line.find(" is lost: "), std::string::npos) << line;
      EXPECT_EQ(line.find("broke the protocol"), std::string::npos) << line;
    }
    for (const ShutdownReport& report : group_.shutdown()) EXPECT_TRUE(report.clean);
  }

 private:
  uint64_t below(uint64_t bound) { return bound < 2 ? 0 : random_.next() % bound; }

  GraphOptions graph_options(uint64_t seed) {
    GraphOptions options;
    options.workers = 2 + static_cast<int32_t>(below(3));
    options.use_everything = is_fast_ = seed % 3 == 0;
    return options;
  }
  SimGroupOptions options() {
    SimGroupOptions options;
    options.size = graph_.options.workers;
    options.call_timeout = 20 * kSecond;
    options.faults.drop = below(2) == 0 ? 0 : 0.01;
    return options;
  }

  // Whether to run the program again: memory was short.
  bool try_program() {
    try {
      run_program();
      return false;
    } catch (const Error& error) {
      ++tally_->failures;
      if (expect_end(error)) return false;
      EXPECT_EQ(error.status(), Status::kOutOfMemory) << error.message();
      EXPECT_NE(group_.memory(victim_).refused(), 0u) << error.message();
      return true;
    }
  }

  void run_program() {
    const auto context = group_.worker(0).dautograd().create_context();
    const Tensors roots = make_roots(run_distributed(group_, graph_, context->global_id()), graph_.roots[0]);
    BackwardOptions options;
    options.mode = is_fast_ ? BackwardMode::kFast : BackwardMode::kSmart;
    options.retain_graph = true;
    options.timeout = 20 * kSecond;
    size_t committed = 0;
    for (int pass = 0; pass < 4 && committed < 2; ++pass) committed += try_pass(*context, roots, options);
    // If the victim could not keep the committed gradients, a read says so.
    if (with_loop_) read_gradients_of_victim(context->global_id());
    expect_gradients(group_, graph_, context->global_id(), *local_gradients_of_repeats(graph_, committed));
  }

  void read_gradients_of_victim(const Id& context) {
    try {
      group_.worker(victim_).dautograd().find_context(context)->gradients();
    } catch (const Error& error) {
      if (error.status() == Status::kOutOfMemory) throw;
    }
  }

  bool try_pass(Context& context, const Tensors& roots, const BackwardOptions& options) {
    const auto pass = context.backward_async(roots, options);
    wait(*pass, kForever);
    const Error* error = pass->error();
    if (error == nullptr) return true;
    ++tally_->failures;
    if (expect_end(*error)) throw *error;
    EXPECT_EQ(error->status(), Status::kOutOfMemory) << error->message();
    return false;
  }

  // Whether the victim has left: its loop had no memory, and nothing smaller than the worker could be failed for that.
  // Leaving takes at most a lease.
  bool has_ended() { return with_loop_ && !group_.worker(victim_).is_started(); }
  bool expect_end(const Error& error) {
    const Status status = error.status();
    if (with_loop_ && status != Status::kOutOfMemory) {
      group_.scheduler().run_until([this] { return has_ended(); }, options_.lease);
    }
    if (!has_ended()) return false;
    EXPECT_TRUE(status == Status::kOutOfMemory || status == Status::kDisconnected || status == Status::kCancelled ||
                status == Status::kInvalidState)
        << error.message();
    return true;
  }

  Tally* const tally_;
  const bool with_loop_;
  SeededRandom random_;
  bool is_fast_ = false;
  int32_t victim_ = 0;
  int attempts_ = 0;
  const RandomGraph graph_;
  const SimGroupOptions options_;
  SimWorkerGroup group_;
};

TEST(ShortageTest, ACallWhoseFunctionCannotBeginIsAnswered) {
  SimWorkerGroup group(1, SimGroupOptions());
  bool has_run = false;
  group.worker(1).rpc().register_function("run", [&has_run](Invocation&) { has_run = true; });
  group.start();
  group.memory(1).refuse(0, 1);
  try {
    group.call(0, 1, "run", {});
    ADD_FAILURE() << "it was answered";
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Status::kOutOfMemory) << error.message();
    EXPECT_FALSE(error.may_have_run());
  }
  EXPECT_FALSE(has_run);
  group.call(0, 1, "run", {});
  EXPECT_TRUE(has_run);
}

TEST(ShortageTest, OfOneWorkersMemoryFailsWhatNeedsItAndNothingElse) {
  Tally tally;
  const bool is_sweep = for_each_seed(2000, [&tally](uint64_t seed) { Shortage(seed, &tally).run(); });
  if (!is_sweep) return;
  EXPECT_GT(tally.refused, tally.runs / 4);
  EXPECT_GT(tally.failures, tally.runs / 10);
}

void sum_up(Invocation& invocation) {
  invocation.set_result(Value(distag::testing::apply(ops::kSum, {invocation.args()[0].as_tensor()})));
}

// A call with a tensor in a context, and a pass over it, while one allocation is refused. False: none was left.
bool refuse_one_of_the_loop(int32_t victim, uint64_t moment) {
  SimWorkerGroup group(1, SimGroupOptions());
  group.worker(1).rpc().register_function("sum", sum_up);
  group.start();
  group.share_memory_with_loop(victim);
  group.memory(victim).refuse(moment, 1);
  {
    const auto context = group.worker(0).dautograd().create_context();
    try {
      const Value result = group.call(0, 1, "sum", {Value(distag::testing::leaf({1, 2}))}, context->global_id());
      const auto pass = context->backward_async({result.as_tensor()}, {});
      wait(*pass, kForever);
      pass->value();
      EXPECT_EQ(context->gradients()->entries.size(), 1u);
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), Status::kOutOfMemory) << "at " << moment << ": " << error.message();
    }
  }
  const bool was_refused = group.memory(victim).refused() != 0;
  group.memory(victim).refuse(0, 0);
  expect_nothing_left(group);
  EXPECT_TRUE(group.worker(victim).is_started()) << "at " << moment;
  for (const ShutdownReport& report : group.shutdown()) EXPECT_TRUE(report.clean) << "at " << moment;
  return was_refused;
}

TEST(ShortageTest, OfTheCallersLoopAtEachMomentFailsTheCallOrThePassAlone) {
  for (uint64_t moment = 0; refuse_one_of_the_loop(0, moment) && !HasFailure(); ++moment) {
  }
}

TEST(ShortageTest, OfTheCalleesLoopAtEachMomentFailsTheCallOrThePassAlone) {
  for (uint64_t moment = 0; refuse_one_of_the_loop(1, moment) && !HasFailure(); ++moment) {
  }
}

TEST(ShortageTest, OfALoopFailsWhatNeedsItAndNothingElse) {
  Tally tally;
  const bool is_sweep = for_each_seed(2000, [&tally](uint64_t seed) { Shortage(seed, &tally, true).run(); });
  std::cout << tally.runs << " runs, " << tally.refused << " with refusals, " << tally.ended << " workers ended\n";
  if (!is_sweep) return;
  EXPECT_GT(tally.refused, tally.runs / 4);
  EXPECT_GT(tally.failures, tally.runs / 10);
}

}  // namespace
}  // namespace distag::sim
