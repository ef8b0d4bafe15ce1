// Random graphs over one to five workers give the gradients of the same graph in one process.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "sim/graph_checks.h"
#include "sim/random_graph.h"
#include "support/sim_group.h"

namespace distag::sim {
namespace {

GraphOptions graph_options(uint64_t seed) {
  GraphOptions options;
  options.workers = 1 + static_cast<int32_t>(seed % 5);
  return options;
}

SimGroupOptions group_options(const RandomGraph& graph) {
  SimGroupOptions options;
  options.size = graph.options.workers;
  return options;
}

void run_passes_in_turn(uint64_t seed, const SimFaults& faults) {
  const RandomGraph graph(seed, graph_options(seed));
  SCOPED_TRACE(graph.describe());
  SimGroupOptions options = group_options(graph);
  options.faults = faults;
  SimWorkerGroup group(seed, options);
  register_blocks(group, graph);
  group.start();
  {
    const auto context = group.worker(0).dautograd().create_context();
    {
      const Tensors outputs = run_distributed(group, graph, context->global_id());
      for (size_t pass = 0; pass < 2; ++pass) {
        BackwardOptions backward;
        backward.retain_graph = pass == 0;
        context->backward(make_roots(outputs, graph.roots[pass]), backward);
        expect_gradients(group, graph, context->global_id(), *local_gradients(graph, pass + 1));
      }
    }
  }
  expect_nothing_left(group);
  for (const ShutdownReport& report : group.shutdown()) EXPECT_TRUE(report.clean);
}

TEST(GraphsTest, SmartEqualsTheGraphInOneProcess) {
  for_each_seed(1000, [](uint64_t seed) { run_passes_in_turn(seed, SimFaults()); });
}

TEST(GraphsTest, SmartEqualsItOverConnectionsThatDrop) {
  SimFaults faults;
  faults.drop = 0.03;
  faults.would_block = 0.03;
  for_each_seed(300, [&faults](uint64_t seed) { run_passes_in_turn(seed, faults); });
}

TEST(GraphsTest, PassesSideBySideAddUp) {
  for_each_seed(300, [](uint64_t seed) {
    const RandomGraph graph(seed, graph_options(seed));
    SCOPED_TRACE(graph.describe());
    SimWorkerGroup group(seed, group_options(graph));
    register_blocks(group, graph);
    group.start();
    {
      const auto context = group.worker(0).dautograd().create_context();
      const Tensors outputs = run_distributed(group, graph, context->global_id());
      std::vector<std::shared_ptr<Future<Unit>>> ended;
      for (size_t pass = 0; pass < 2; ++pass) {
        ended.push_back(group.scheduler().spawn([&graph, &context, &outputs, pass] {
          BackwardOptions backward;
          backward.retain_graph = true;
          context->backward(make_roots(outputs, graph.roots[pass]), backward);
        }));
      }
      for (const auto& future : ended) {
        wait(*future, kForever);
        future->value();
      }
      expect_gradients(group, graph, context->global_id(), *local_gradients(graph, 2));
    }
    expect_nothing_left(group);
  });
}

TEST(GraphsTest, ASecondPassWithoutRetainAnswersGraphFreed) {
  for_each_seed(100, [](uint64_t seed) {
    GraphOptions options = graph_options(seed);
    options.use_everything = true;  // so that the second pass meets what the first one freed
    const RandomGraph graph(seed, options);
    SCOPED_TRACE(graph.describe());
    for (const LineageLimits& lineage : {kNoLineage, LineageLimits()}) {
      SimGroupOptions group_of = group_options(graph);
      group_of.lineage = lineage;
      SimWorkerGroup group(seed, group_of);
      register_blocks(group, graph);
      group.start();
      const auto context = group.worker(0).dautograd().create_context();
      const Tensors roots = make_roots(run_distributed(group, graph, context->global_id()), graph.roots[0]);
      context->backward(roots, BackwardOptions());
      try {
        context->backward(roots, BackwardOptions());
        ADD_FAILURE() << "the graph was still there";
      } catch (const Error& error) {
        EXPECT_EQ(error.status(), Status::kGraphFreed) << error.message();
      }
      expect_gradients(group, graph, context->global_id(), *local_gradients(graph, 1));
    }
  });
}

TEST(GraphsTest, FastEqualsItWhereEverythingIsUsed) {
  for_each_seed(300, [](uint64_t seed) {
    GraphOptions options = graph_options(seed);
    options.use_everything = true;
    const RandomGraph graph(seed, options);
    SCOPED_TRACE(graph.describe());
    ASSERT_TRUE(graph.reaches_every_pair());
    SimWorkerGroup group(seed, group_options(graph));
    register_blocks(group, graph);
    group.start();
    {
      const auto context = group.worker(0).dautograd().create_context();
      BackwardOptions backward;
      backward.mode = BackwardMode::kFast;
      context->backward(make_roots(run_distributed(group, graph, context->global_id()), graph.roots[0]), backward);
      expect_gradients(group, graph, context->global_id(), *local_gradients(graph, 1));
    }
    expect_nothing_left(group);
  });
}

// Messages that come late, or long after each other, are no sign that nothing can move.
TEST(GraphsTest, FastEqualsItOverSlowConnections) {
  for_each_seed(1000, [](uint64_t seed) {
    GraphOptions options = graph_options(seed);
    options.use_everything = true;
    const RandomGraph graph(seed, options);
    SCOPED_TRACE(graph.describe());
    SimGroupOptions group_of = group_options(graph);
    group_of.faults.max_delay = 400 * kMillisecond;
    SimWorkerGroup group(seed, group_of);
    register_blocks(group, graph);
    group.start();
    {
      const auto context = group.worker(0).dautograd().create_context();
      BackwardOptions backward;
      backward.mode = BackwardMode::kFast;
      backward.timeout = 300 * kSecond;
      context->backward(make_roots(run_distributed(group, graph, context->global_id()), graph.roots[0]), backward);
      expect_gradients(group, graph, context->global_id(), *local_gradients(graph, 1));
    }
    expect_nothing_left(group);
  });
}

TEST(GraphsTest, FastEqualsItOrNamesTheResultsThatWereNotUsed) {
  size_t equal = 0;
  size_t unreached = 0;
  const bool is_sweep = for_each_seed(400, [&equal, &unreached](uint64_t seed) {
    const RandomGraph graph(seed, graph_options(seed));
    SCOPED_TRACE(graph.describe());
    SimWorkerGroup group(seed, group_options(graph));
    register_blocks(group, graph);
    group.start();
    {
      const auto context = group.worker(0).dautograd().create_context();
      const Tensors outputs = run_distributed(group, graph, context->global_id());
      BackwardOptions backward;
      backward.mode = BackwardMode::kFast;
      backward.retain_graph = true;
      try {
        context->backward(make_roots(outputs, graph.roots[0]), backward);
        EXPECT_TRUE(graph.reaches_every_pair());
        expect_gradients(group, graph, context->global_id(), *local_gradients(graph, 1));
        ++equal;
      } catch (const Error& error) {
        EXPECT_EQ(error.status(), Status::kUnreachedSend) << error.message();
        EXPECT_FALSE(graph.reaches_every_pair());
        EXPECT_NE(error.message().find("block"), std::string::npos) << error.message();
        ++unreached;
        // All gradients or none; and SMART can still run the pass.
        expect_gradients(group, graph, context->global_id(), Gradients());
        backward.mode = BackwardMode::kSmart;
        context->backward(make_roots(outputs, graph.roots[0]), backward);
        expect_gradients(group, graph, context->global_id(), *local_gradients(graph, 1));
      }
    }
    expect_nothing_left(group);
  });
  if (is_sweep) {
    EXPECT_GT(equal, 20u);
    EXPECT_GT(unreached, 20u);
  }
}

// Another worker than the context's creator runs the program and its passes, inside a function.
TEST(GraphsTest, ThePassesOfAFunctionGiveTheSame) {
  for_each_seed(400, [](uint64_t seed) {
    GraphOptions options = graph_options(seed);
    options.home = options.workers - 1;
    options.use_everything = seed % 2 == 0;
    const RandomGraph graph(seed, options);
    SCOPED_TRACE(graph.describe());
    SimWorkerGroup group(seed, group_options(graph));
    register_blocks(group, graph);
    BackwardOptions backward;
    backward.mode = options.use_everything ? BackwardMode::kFast : BackwardMode::kSmart;
    group.worker(options.home).rpc().register_function("program", [&group, &graph, backward](Invocation& invocation) {
      const auto context = group.worker(graph.options.home).dautograd().find_context(invocation.context());
      const Tensors outputs = run_distributed(group, graph, invocation.context());
      context->backward(make_roots(outputs, graph.roots[0]), backward);
    });
    group.start();
    {
      const auto context = group.worker(0).dautograd().create_context();
      group.call(0, options.home, "program", {}, context->global_id());
      expect_gradients(group, graph, context->global_id(), *local_gradients(graph, 1));
    }
    expect_nothing_left(group);
    for (const ShutdownReport& report : group.shutdown()) EXPECT_TRUE(report.clean);
  });
}

// Kills a worker at some moment of the next 10 ms, which is as long as a small forward and its pass take.
int32_t kill_soon(SimWorkerGroup& group, int32_t victim) {
  SimScheduler& scheduler = group.scheduler();
  scheduler.at(scheduler.now() + scheduler.between(0, 10 * kMillisecond), [&group, victim] { group.kill(victim); });
  return victim;
}

// A worker dies while a forward or a pass is under way: all gradients, or an error and none of them; nothing hangs and
// nothing is left with the survivors.
TEST(GraphsTest, ADeathGivesAllGradientsOrAnError) {
  size_t failures = 0;
  const bool is_sweep = for_each_seed(500, [&failures](uint64_t seed) {
    GraphOptions options;
    options.workers = 2 + static_cast<int32_t>(seed % 4);
    options.use_everything = seed % 3 == 0;
    const RandomGraph graph(seed, options);
    SCOPED_TRACE(graph.describe());
    SimGroupOptions group_of = group_options(graph);
    if (seed % 4 != 0) group_of.lineage = kNoLineage;  // a search has more that may be lost
    SimWorkerGroup group(seed, group_of);
    register_blocks(group, graph);
    group.start();
    const auto others = static_cast<uint64_t>(options.workers - 1);
    const int32_t victim = kill_soon(group, 1 + static_cast<int32_t>(group.scheduler().below(others)));
    {
      const auto context = group.worker(0).dautograd().create_context();
      BackwardOptions backward;
      if (options.use_everything) backward.mode = BackwardMode::kFast;
      try {
        const Tensors outputs = run_distributed(group, graph, context->global_id());
        context->backward(make_roots(outputs, graph.roots[0]), backward);
        expect_gradients(group, graph, context->global_id(), *local_gradients(graph, 1));
      } catch (const Error& error) {
        ++failures;
        EXPECT_NE(error.message().find(SimWorkerGroup::name(victim)), std::string::npos) << error.message();
        expect_gradients(group, graph, context->global_id(), Gradients());
      }
    }
    group.scheduler().run_until([&group, victim] { return group.is_killed(victim); });
    group.scheduler().run_for(10 * kSecond);
    expect_nothing_left(group);
  });
  if (is_sweep) {
    EXPECT_GT(failures, 10u);
  }
}

TEST(GraphsTest, TheDeathOfTheInitiatorLeavesNothingBehind) {
  for_each_seed(300, [](uint64_t seed) {
    GraphOptions options;
    options.workers = 2 + static_cast<int32_t>(seed % 4);
    const RandomGraph graph(seed, options);
    SCOPED_TRACE(graph.describe());
    SimWorkerGroup group(seed, group_options(graph));
    register_blocks(group, graph);
    group.start();
    auto program = group.scheduler().spawn([&group, &graph] {
      const auto context = group.worker(0).dautograd().create_context();
      const Tensors outputs = run_distributed(group, graph, context->global_id());
      context->backward(make_roots(outputs, graph.roots[0]), BackwardOptions());
    });
    kill_soon(group, 0);
    group.scheduler().run_for(20 * kSecond);
    expect_nothing_left(group);
    EXPECT_EQ(group.shutdown().size(), static_cast<size_t>(options.workers - 1));
  });
}

}  // namespace
}  // namespace distag::sim
