// Passes that know from records what their roots reach give what a search gives; where records are missing, or lie,
// they search.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "sim/graph_checks.h"
#include "sim/random_graph.h"
#include "sim/square_test.h"
#include "support/sim_group.h"
#include "wire/codec.h"

namespace distag::sim {
namespace {

struct Totals {
  uint64_t runs = 0;
  uint64_t planned = 0;
  uint64_t searched = 0;

  void add(SimWorkerGroup& group) {
    ++runs;
    for (int32_t rank = 0; rank < group.size(); ++rank) {
      const DautogradStats stats = group.worker(rank).stats().dautograd;
      planned += stats.passes_planned;
      searched += stats.passes_searched;
    }
  }
};

GraphOptions graph_options(uint64_t seed) {
  GraphOptions options;
  options.workers = 1 + static_cast<int32_t>(seed % 5);
  options.use_everything = seed % 7 == 0;
  return options;
}

using Prepare = std::function<void(SimWorkerGroup& group, const Id& context)>;

// Two passes, of which the second one frees the graph, give the gradients of the graph in one process.
void run_graph(uint64_t seed, SimGroupOptions options, Totals* totals, const Prepare& prepare = {}) {
  const RandomGraph graph(seed, graph_options(seed));
  SCOPED_TRACE(graph.describe());
  options.size = graph.options.workers;
  SimWorkerGroup group(seed, options);
  register_blocks(group, graph);
  group.start();
  {
    const auto context = group.worker(0).dautograd().create_context();
    if (prepare) prepare(group, context->global_id());
    const Tensors outputs = run_distributed(group, graph, context->global_id());
    for (size_t pass = 0; pass < 2; ++pass) {
      BackwardOptions backward;
      backward.retain_graph = pass == 0;
      context->backward(make_roots(outputs, graph.roots[pass]), backward);
      expect_gradients(group, graph, context->global_id(), *local_gradients(graph, pass + 1));
    }
  }
  expect_nothing_left(group);
  for (const std::string& line : group.log_lines()) EXPECT_EQ(line.find("is lost"), std::string::npos) << line;
  totals->add(group);
}

TEST(PlannedPassesTest, WithAllRecordsNoPassSearches) {
  Totals totals;
  const bool is_sweep = for_each_seed(1000, [&totals](uint64_t seed) {
    SimGroupOptions options;
    options.lineage = LineageLimits();
    run_graph(seed, options, &totals);
    EXPECT_EQ(totals.searched, 0u);
  });
  if (!is_sweep) return;
  EXPECT_GT(totals.planned, totals.runs / 4);
}

TEST(PlannedPassesTest, NorOverConnectionsThatDrop) {
  Totals totals;
  for_each_seed(300, [&totals](uint64_t seed) {
    SimGroupOptions options;
    options.lineage = LineageLimits();
    options.faults.drop = 0.03;
    options.faults.would_block = 0.03;
    run_graph(seed, options, &totals);
    EXPECT_EQ(totals.searched, 0u);
  });
}

TEST(PlannedPassesTest, WithSmallBoundsTheySearchOrPlan) {
  Totals totals;
  const bool is_sweep = for_each_seed(600, [&totals](uint64_t seed) {
    SimGroupOptions options;
    options.lineage = {1 + seed % 3, 1 + seed % 5, 1 + seed % 11, 1 + seed % 13};
    run_graph(seed, options, &totals);
  });
  if (!is_sweep) return;
  EXPECT_GT(totals.planned, totals.runs / 4);
  EXPECT_GT(totals.searched, totals.runs / 4);
}

// A peer tells false records of all first pairs, before the true ones come.
void tell_lies(SimWorkerGroup& group, const Id& context, uint64_t seed) {
  SeededRandom random(seed);
  std::vector<Peer> peers;
  for (int32_t rank = 0; rank < group.size(); ++rank) {
    peers.push_back(group.worker(0).group().membership().find_by_rank(rank)->peer);
  }
  const auto any = [&] { return Id{peers[random.next() % peers.size()].incarnation, 1 + random.next() % 6}; };
  wire::AutogradMetadata metadata;
  metadata.context = context;
  metadata.creator_rank = 0;
  for (size_t lie = random.next() % 12; lie > 0; --lie) {
    const Id pair = any();
    for (size_t link = 1 + random.next() % 3; link > 0; --link) {
      const bool is_none = random.next() % 4 == 0;
      const auto slot = static_cast<uint32_t>(random.next() % 3);
      metadata.lineage.push_back({pair, is_none ? Id() : any(), slot, is_none ? 0 : slot});
    }
  }
  group.loop(0).run([&] { group.worker(0).dautograd().on_thrown_away(metadata, peers.back()); });
}

TEST(PlannedPassesTest, FalseRecordsCostTimeAndNoGradient) {
  Totals totals;
  const bool is_sweep = for_each_seed(1000, [&totals](uint64_t seed) {
    SimGroupOptions options;
    options.lineage = LineageLimits();
    run_graph(seed, options, &totals,
              [seed](SimWorkerGroup& group, const Id& context) { tell_lies(group, context, seed); });
  });
  if (!is_sweep) return;
  EXPECT_GT(totals.planned, totals.runs / 4);
  EXPECT_GT(totals.searched, totals.runs / 10);
}

// ---- what one pass costs ----

class PlannedPassTest : public SquareTest {
 protected:
  PlannedPassTest() {
    SimGroupOptions options;
    options.lineage = LineageLimits();
    make(options);
  }
  // The messages of a pass, each with its direction.
  std::vector<std::string> messages_of(const BackwardOptions& backward) {
    std::vector<std::string> seen;
    group_->network().set_tap([&seen](const std::string& from, const std::string& to, const Frames& frames) {
      const wire::Message message = wire::decode(frames.front(), {frames.begin() + 1, frames.end()}, {});
      if (message.number != 0) seen.push_back(from + to + " " + wire::body_name(message.body));
    });
    context_->backward({y_}, backward);
    group_->scheduler().run_for(10 * kMillisecond);
    group_->network().set_tap({});
    return seen;
  }
};

TEST_F(PlannedPassTest, OfOneCallIsFourMessages) {
  EXPECT_EQ(messages_of({}), (std::vector<std::string>{"w0w1 EXPECT", "w0w1 GRAD", "w1w0 GRAD", "w0w1 VERDICT"}));
  EXPECT_EQ(context_->gradients()->find(x_)->item(), 6);
  EXPECT_EQ(stats(0).passes_planned, 1u);
  EXPECT_EQ(stats(0).passes_searched, 0u);
}

// Two messages for each hop, and two more for each worker that takes part.
TEST_F(PlannedPassTest, OfAChainIsItsGradientsAndTwoMore) {
  y_ = group_->call(0, 1, "square", {Value(y_)}, id()).as_tensor();
  y_ = group_->call(0, 1, "square", {Value(y_)}, id()).as_tensor();
  const std::string there = "w0w1 GRAD", back = "w1w0 GRAD";
  EXPECT_EQ(messages_of({}),
            (std::vector<std::string>{"w0w1 EXPECT", there, back, there, back, there, back, "w0w1 VERDICT"}));
  EXPECT_EQ(context_->gradients()->find(x_)->item(), 8 * std::pow(3.0, 7));
}

// In a chain of workers, each is told its part, and the far end reports itself that it is done.
TEST_F(PlannedPassTest, ThroughAnotherWorkerIsOneMessageForEachHop) {
  group_->worker(1).rpc().register_function("via", [this](Invocation& invocation) {
    invocation.set_result(group_->call(1, 2, "square", invocation.args(), invocation.context()));
  });
  y_ = group_->call(0, 1, "via", {Value(x_)}, id()).as_tensor();
  std::vector<std::string> seen = messages_of({});
  std::sort(seen.begin(), seen.end());
  EXPECT_EQ(seen, (std::vector<std::string>{"w0w1 EXPECT", "w0w1 GRAD", "w0w1 VERDICT", "w0w2 EXPECT", "w0w2 VERDICT",
                                            "w1w0 GRAD", "w1w2 GRAD", "w2w0 DONE", "w2w1 GRAD"}));
  EXPECT_EQ(context_->gradients()->find(x_)->item(), 6);
}

TEST_F(PlannedPassTest, OverAGraphThatIsFreedSaysSo) {
  context_->backward({y_}, {});
  try {
    context_->backward({y_}, {});
    ADD_FAILURE() << "the graph was still there";
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Status::kGraphFreed) << error.message();
    EXPECT_EQ(error.message().find("plan"), std::string::npos) << error.message();
  }
  EXPECT_EQ(context_->gradients()->find(x_)->item(), 6);
}

// The records have gone with the graph: another pass need not discover that its plan does not hold.
TEST_F(PlannedPassTest, ForgetsWhatItFreed) {
  context_->backward({y_}, {});
  EXPECT_THROW(context_->backward({y_}, {}), Error);
  EXPECT_EQ(stats(0).passes_planned, 1u);
  EXPECT_EQ(stats(0).passes_searched, 1u);
}

// Records of an answer that no caller waits for any more are kept: its sender does not send them again.
TEST_F(PlannedPassTest, KnowsWhatALateAnswerHasTold) {
  Tensor kept;
  group_->worker(1).rpc().register_function("keep", [&](Invocation& invocation) {
    const Tensor x = invocation.args()[0].as_tensor();
    kept = group_->call(1, 2, "square", {Value(x)}, invocation.context()).as_tensor();
    invocation.set_result(Value(kept));
  });
  group_->worker(1).rpc().register_function("kept",
                                            [&](Invocation& invocation) { invocation.set_result(Value(kept)); });
  CallRequest request;
  request.context = id();
  request.to = "w1";
  request.function = "keep";
  request.args = {Value(x_)};
  const auto late = group_->worker(0).rpc().call(std::move(request));
  group_->network().set_tap([&late](const std::string&, const std::string& to, const Frames& frames) {
    const wire::Message message = wire::decode(frames.front(), {frames.begin() + 1, frames.end()}, {});
    if (to == "w0" && std::holds_alternative<wire::Reply>(message.body)) late->cancel();
  });
  wait(*late, kForever);
  ASSERT_NE(late->error(), nullptr);
  group_->scheduler().run_for(kSecond);
  group_->network().set_tap({});
  const Tensor y = group_->call(0, 1, "kept", {}, id()).as_tensor();
  context_->backward({y}, {});
  EXPECT_EQ(context_->gradients()->find(x_)->item(), 6);
  EXPECT_EQ(stats(0).passes_planned, 1u);
  EXPECT_EQ(stats(0).passes_searched, 0u);
}

}  // namespace
}  // namespace distag::sim
