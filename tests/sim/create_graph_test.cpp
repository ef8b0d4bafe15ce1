// Gradients of gradients across workers: passes through gradients of earlier passes equal those in one process.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "autograd/autograd.h"
#include "base/error.h"
#include "ops/attributes.h"
#include "ops/builtins.h"
#include "sim/graph_checks.h"
#include "sim/random_graph.h"
#include "support/expect.h"
#include "support/leaves.h"
#include "support/sim_group.h"
#include "wire/codec.h"

namespace distag::sim {
namespace {

using testing::apply;
using testing::error_of;

// The sum of squares of all gradients that have a history; none: no such gradient.
Tensor penalty_of(const Gradients& gradients) {
  Tensor result;
  for (const Gradients::Entry& entry : gradients.entries) {
    if (!autograd::requires_grad(entry.gradient)) continue;
    const Tensor bounded = apply(ops::kTanh, {entry.gradient});
    const Tensor sum = apply(ops::kSum, {apply(ops::kMul, {bounded, entry.gradient})});
    result = result ? apply(ops::kAdd, {result, sum}) : sum;
  }
  return result;
}

BackwardOptions creating(BackwardMode mode = BackwardMode::kSmart) {
  BackwardOptions options;
  options.mode = mode;
  options.create_graph = true;
  return options;
}

// A graph over several workers, each of which offers the penalty of its own gradients.
class Program {
 public:
  Program(uint64_t seed, GraphOptions of_graph, SimGroupOptions options = {}) : graph_(seed, of_graph) {
    options.size = graph_.options.workers;
    group_ = std::make_unique<SimWorkerGroup>(seed, options);
    register_blocks(*group_, graph_);
    for (int32_t rank = 0; rank < options.size; ++rank) {
      group_->worker(rank).rpc().register_function("penalty", [this, rank](Invocation& invocation) {
        const auto context = group_->worker(rank).dautograd().find_context(invocation.context());
        const Tensor penalty = penalty_of(*context->gradients());
        invocation.set_result(penalty ? Value(penalty) : Value());
      });
    }
    group_->start();
    context_ = group_->worker(0).dautograd().create_context();
  }

  SimWorkerGroup& group() { return *group_; }
  const RandomGraph& graph() const { return graph_; }
  Context& context() { return *context_; }

  Tensors forward() {
    outputs_ = run_distributed(*group_, graph_, context_->global_id());
    return first_roots();
  }
  Tensors first_roots() const { return make_roots(outputs_, graph_.roots[0]); }
  // The penalties of all workers, as roots.
  Tensors penalties() {
    Tensors roots;
    for (int32_t rank = 0; rank < group_->size(); ++rank) {
      const Value penalty = group_->call(0, rank, "penalty", {}, context_->global_id());
      if (!penalty.is_null()) roots.push_back(penalty.as_tensor());
    }
    return roots;
  }
  void expect_equal(Context& local) { expect_gradients(*group_, graph_, context_->global_id(), *local.gradients()); }
  void end() {
    outputs_.clear();
    context_.reset();
    expect_nothing_left(*group_);
  }

 private:
  const RandomGraph graph_;
  std::unique_ptr<SimWorkerGroup> group_;
  std::shared_ptr<Context> context_;
  Tensors outputs_;
};

// The same program in one process.
class LocalProgram {
 public:
  explicit LocalProgram(const RandomGraph& graph) : graph_(graph), outputs_(run_locally(graph)) {}
  Context& context() { return *context_; }
  Tensors first_roots() const { return make_roots(outputs_, graph_.roots[0]); }
  Tensors penalties() {
    const Tensor penalty = penalty_of(*context_->gradients());
    return penalty ? Tensors{penalty} : Tensors{};
  }

 private:
  const RandomGraph& graph_;
  const Tensors outputs_;
  const std::shared_ptr<Context> context_ = make_local_context();
};

GraphOptions graph_options(uint64_t seed, bool use_everything = false) {
  GraphOptions options;
  options.workers = 1 + static_cast<int32_t>(seed % 5);
  options.use_everything = use_everything;
  options.max_steps = 30;
  return options;
}

// Passes through the graph, through its gradients, and through theirs.
void run_passes(uint64_t seed, const SimGroupOptions& options = {}) {
  Program program(seed, graph_options(seed), options);
  SCOPED_TRACE(program.graph().describe());
  LocalProgram local(program.graph());
  program.context().backward(program.forward(), creating());
  local.context().backward(local.first_roots(), creating());
  program.expect_equal(local.context());
  for (size_t order = 2; order <= 2 + seed % 2; ++order) {
    const Tensors roots = program.penalties();
    const Tensors local_roots = local.penalties();
    ASSERT_EQ(roots.empty(), local_roots.empty());
    if (roots.empty()) break;
    BackwardOptions backward = creating();
    backward.create_graph = order == 2;
    program.context().backward(roots, backward);
    local.context().backward(local_roots, backward);
    program.expect_equal(local.context());
  }
  program.end();
  for (const ShutdownReport& report : program.group().shutdown()) EXPECT_TRUE(report.clean);
}

TEST(CreateGraphTest, PassesOverGradientsEqualThoseInOneProcess) {
  for_each_seed(500, [](uint64_t seed) { run_passes(seed); });
}

TEST(CreateGraphTest, TheyDoOverConnectionsThatDrop) {
  SimGroupOptions options;
  options.faults.drop = 0.03;
  options.faults.would_block = 0.03;
  for_each_seed(200, [&options](uint64_t seed) { run_passes(seed, options); });
}

TEST(CreateGraphTest, TheyDoOverSlowConnections) {
  SimGroupOptions options;
  options.faults.max_delay = 400 * kMillisecond;
  for_each_seed(200, [&options](uint64_t seed) { run_passes(seed, options); });
}

// FAST uses everything that was recorded: roots are those of the first pass, and the penalties of all workers.
TEST(CreateGraphTest, FastPassesDoWhereEverythingIsUsed) {
  for_each_seed(300, [](uint64_t seed) {
    Program program(seed, graph_options(seed, true));
    SCOPED_TRACE(program.graph().describe());
    LocalProgram local(program.graph());
    program.context().backward(program.forward(), creating(BackwardMode::kFast));
    local.context().backward(local.first_roots(), creating());
    program.expect_equal(local.context());
    const auto add_first = [](Tensors roots, const Tensors& first) {
      roots.insert(roots.end(), first.begin(), first.end());
      return roots;
    };
    BackwardOptions backward;
    backward.mode = seed % 2 == 0 ? BackwardMode::kFast : BackwardMode::kSmart;
    program.context().backward(add_first(program.penalties(), program.first_roots()), backward);
    local.context().backward(add_first(local.penalties(), local.first_roots()), {});
    program.expect_equal(local.context());
    program.end();
  });
}

// ---- passes that end early ----

using Counts = std::vector<std::pair<uint32_t, uint32_t>>;

// Sends and recvs of the context, by rank.
Counts counts_of(SimWorkerGroup& group, const Id& context) {
  Counts counts;
  for (int32_t rank = 0; rank < group.size(); ++rank) {
    counts.emplace_back();
    try {
      const ContextInfo info = group.worker(rank).dautograd().find_context(context)->info();
      counts.back() = {info.send_count, info.recv_count};
    } catch (const Error&) {
      // The forward never reached this worker.
    }
  }
  return counts;
}

void expect_no_pass_open(SimWorkerGroup& group) {
  const auto open = [&group] {
    uint64_t count = 0;
    for (int32_t rank = 0; rank < group.size(); ++rank) {
      if (!group.is_killed(rank)) count += group.worker(rank).stats().dautograd.passes_open;
    }
    return count;
  };
  EXPECT_TRUE(group.scheduler().run_until([&open] { return open() == 0; }, kSecond)) << open();
}

struct Attempts {
  size_t aborted = 0;
  size_t committed = 0;
};

// Begins passes and cancels them soon, until one is committed: cancelled passes leave no pair.
void cancel_until_committed(Program& program, const Tensors& roots, const BackwardOptions& options,
                            Attempts* attempts) {
  SimScheduler& scheduler = program.group().scheduler();
  for (Nanos longest = 2 * kMillisecond;; longest *= 2) {
    const Counts before = counts_of(program.group(), program.context().global_id());
    const auto pass = program.context().backward_async(roots, options);
    scheduler.run_for(scheduler.between(0, longest));
    pass->cancel();
    wait(*pass, kForever);
    const Error* error = pass->error();
    expect_no_pass_open(program.group());
    if (error == nullptr) {
      ++attempts->committed;
      return;
    }
    ++attempts->aborted;
    EXPECT_EQ(error->status(), Status::kCancelled) << error->message();
    EXPECT_EQ(counts_of(program.group(), program.context().global_id()), before);
  }
}

TEST(CreateGraphTest, CancelledPassesLeaveNoPair) {
  Attempts attempts;
  const bool is_sweep = for_each_seed(500, [&attempts](uint64_t seed) {
    Program program(seed, graph_options(seed, seed % 2 == 0));
    SCOPED_TRACE(program.graph().describe());
    LocalProgram local(program.graph());
    const BackwardMode mode = seed % 4 == 0 ? BackwardMode::kFast : BackwardMode::kSmart;
    cancel_until_committed(program, program.forward(), creating(mode), &attempts);
    local.context().backward(local.first_roots(), creating());
    program.expect_equal(local.context());
    const Tensors roots = program.penalties();
    if (!roots.empty()) {
      cancel_until_committed(program, roots, creating(), &attempts);
      local.context().backward(local.penalties(), creating());
      program.expect_equal(local.context());
    }
    program.end();
  });
  if (!is_sweep) return;
  EXPECT_GT(attempts.aborted, attempts.committed / 10);
}

// A worker dies in the first pass, between both, or in the second: each pass gives all gradients, or an error and none,
// and the survivors keep nothing.
TEST(CreateGraphTest, ADeathEndsPassesWithAnError) {
  size_t failures = 0;
  size_t between = 0;
  const bool is_sweep = for_each_seed(500, [&failures, &between](uint64_t seed) {
    GraphOptions options = graph_options(seed);
    options.workers = 2 + static_cast<int32_t>(seed % 4);
    SimGroupOptions group_of;
    if (seed % 3 == 0) group_of.lineage = kNoLineage;
    Program program(seed, options, group_of);
    SCOPED_TRACE(program.graph().describe());
    SimWorkerGroup& group = program.group();
    SimScheduler& scheduler = group.scheduler();
    LocalProgram local(program.graph());
    const auto victim = 1 + static_cast<int32_t>(scheduler.below(static_cast<uint64_t>(options.workers - 1)));
    bool has_first = false;
    bool is_whole = true;
    try {
      const Tensors first = program.forward();
      if (seed % 2 == 0)
        scheduler.at(scheduler.now() + scheduler.between(0, 6 * kMillisecond), [&] { group.kill(victim); });
      program.context().backward(first, creating());
      has_first = true;
      local.context().backward(local.first_roots(), creating());
      program.expect_equal(local.context());
      if (seed % 2 != 0)
        scheduler.at(scheduler.now() + scheduler.between(0, 6 * kMillisecond), [&] { group.kill(victim); });
      const Tensors roots = program.penalties();
      if (!roots.empty()) {
        program.context().backward(roots, creating());
        local.context().backward(local.penalties(), creating());
      }
    } catch (const Error& error) {
      is_whole = false;
      EXPECT_NE(error.message().find(SimWorkerGroup::name(victim)), std::string::npos) << error.message();
    }
    ++(is_whole ? between : failures);
    if (has_first || is_whole) {
      program.expect_equal(local.context());
    } else {
      expect_gradients(group, program.graph(), program.context().global_id(), Gradients());
    }
    scheduler.run_until([&group, victim] { return group.is_killed(victim); });
    scheduler.run_for(10 * kSecond);
    program.end();
  });
  if (!is_sweep) return;
  EXPECT_GT(failures, 10u);
  EXPECT_GT(between, 10u);
}

// ---- a product with the Hessian ----

// A chain of layers, one on each worker but the first, each with a weight of its worker.
class HessianTest : public ::testing::Test {
 protected:
  void make(int32_t workers, const SimGroupOptions& given = {}) {
    SimGroupOptions options = given;
    options.size = workers;
    context_.reset();
    weights_.clear();
    group_.reset();  // a scheduler before the next
    group_ = std::make_unique<SimWorkerGroup>(1, options);
    for (int32_t rank = 0; rank < workers; ++rank) {
      weights_.push_back(testing::leaf({0.3 + 0.1 * rank, -0.7, 1.1 - 0.2 * rank}));
      Rpc& rpc = group_->worker(rank).rpc();
      rpc.register_function("layer", [this, rank](Invocation& invocation) {
        const Tensor y = layer(rank, invocation.args()[0].as_tensor());
        if (rank + 1 == group_->size()) return invocation.set_result(Value(y));
        invocation.set_result(group_->call(rank, rank + 1, "layer", {Value(y)}, invocation.context()));
      });
      rpc.register_function("gradient", [this, rank](Invocation& invocation) {
        const auto context = group_->worker(rank).dautograd().find_context(invocation.context());
        invocation.set_result(Value(*context->gradients()->find(weights_[static_cast<size_t>(rank)])));
      });
    }
    group_->start();
    context_ = group_->worker(0).dautograd().create_context();
  }
  Tensor layer(int32_t rank, const Tensor& x) {
    return apply(ops::kTanh, {apply(ops::kMul, {x, weights_[static_cast<size_t>(rank)]})});
  }
  static Tensor sum_of(const Tensor& a, const Tensor& b) { return apply(ops::kSum, {apply(ops::kMul, {a, b})}); }
  // The loss of a forward over the workers, or here.
  Tensor far_loss() {
    const Tensor y = group_->call(0, 1, "layer", {Value(x_)}, context_->global_id()).as_tensor();
    return sum_of(apply(ops::kMul, {y, x_}), y);
  }
  Tensor near_loss() {
    Tensor y = x_;
    for (int32_t rank = 1; rank < group_->size(); ++rank) y = layer(rank, y);
    return sum_of(apply(ops::kMul, {y, x_}), y);
  }
  void settle() { group_->scheduler().run_for(kSecond); }
  DautogradStats stats(int32_t rank) { return group_->worker(rank).stats().dautograd; }
  static Tensor difference(const Tensor& after, const Tensor& before) {
    return apply(ops::kSub, {autograd::detach(after), autograd::detach(before)});
  }
  static void expect_near(const Tensor& actual, const Tensor& expected) {
    for (size_t i = 0; i < 3; ++i) {
      const double wanted = expected.contiguous().data_as<double>()[i];
      EXPECT_NEAR(actual.contiguous().data_as<double>()[i], wanted, 1e-12 * (1 + std::abs(wanted))) << i;
    }
  }

  std::unique_ptr<SimWorkerGroup> group_;
  std::shared_ptr<Context> context_;
  Tensors weights_;
  const Tensor x_ = testing::leaf({0.5, -1.5, 0.25});
  const Tensor v_ = testing::leaf({1.25, 0.5, -2});
};

TEST_F(HessianTest, TimesAVectorIsThatOfOneProcess) {
  for (const int32_t workers : {2, 4}) {
    make(workers);
    const auto local = make_local_context();
    local->backward({near_loss()}, creating());
    const auto near = local->gradients();
    local->backward({sum_of(*near->find(x_), v_)}, {});

    context_->backward({far_loss()}, creating());
    const auto far = context_->gradients();
    EXPECT_TRUE(autograd::requires_grad(*far->find(x_)));
    expect_near(*far->find(x_), *near->find(x_));
    context_->backward({sum_of(*far->find(x_), v_)}, {});
    expect_near(difference(*context_->gradients()->find(x_), *far->find(x_)),
                difference(*local->gradients()->find(x_), *near->find(x_)));
    for (int32_t rank = 1; rank < workers; ++rank) {
      const auto there = group_->worker(rank).dautograd().find_context(context_->global_id())->gradients();
      const Tensor& weight = weights_[static_cast<size_t>(rank)];
      expect_near(autograd::detach(*there->find(weight)), autograd::detach(*local->gradients()->find(weight)));
    }
    // The pairs that the last pass went through are freed.
    EXPECT_EQ(context_->info().send_count, 0u);
    EXPECT_EQ(context_->info().recv_count, 0u);
    context_.reset();
    expect_nothing_left(*group_);
  }
}

// A gradient that is a view is copied on its way.
TEST_F(HessianTest, GradientsOfAnotherLayoutKeepTheirHistory) {
  make(2);
  Tensor x = Tensor::empty(Dtype::kFloat64, {2, 3});
  for (size_t i = 0; i < 6; ++i) x.mutable_data_as<double>()[i] = 0.25 * static_cast<double>(i) - 0.5;
  autograd::set_requires_grad(x, true);
  const auto loss_of = [](const Tensor& y) {
    const Tensor turned = autograd::apply(ops::kTranspose, std::vector<Tensor>{y},
                                          ops::make_attributes({{"dim0", int64_t{0}}, {"dim1", int64_t{1}}}))[0];
    return sum_of(apply(ops::kMul, {turned, turned}), turned);
  };
  const auto local = make_local_context();
  local->backward({loss_of(layer(1, x))}, creating());
  const Tensor near = *local->gradients()->find(x);
  local->backward({sum_of(near, near)}, {});
  context_->backward({loss_of(group_->call(0, 1, "layer", {Value(x)}, context_->global_id()).as_tensor())}, creating());
  const Tensor far = *context_->gradients()->find(x);
  context_->backward({sum_of(far, far)}, {});
  const Tensor expected = local->gradients()->find(x)->contiguous();
  const Tensor actual = context_->gradients()->find(x)->contiguous();
  for (size_t i = 0; i < 6; ++i) EXPECT_NEAR(actual.data_as<double>()[i], expected.data_as<double>()[i], 1e-12) << i;
}

// w2 hears the verdict of the first pass after it is asked to take part in the second.
class OvertakingTest : public HessianTest {
 protected:
  void hold_verdict() {
    group_->network().set_tap([this](const std::string& from, const std::string& to, const Frames& frames) {
      if (from != "w0" || to != "w2") return;
      const wire::Message message = wire::decode(frames.front(), {frames.begin() + 1, frames.end()}, {});
      if (std::holds_alternative<wire::Verdict>(message.body)) group_->network().part_one_way("w0", "w2");
    });
  }
  void let_it_come() {
    group_->network().set_tap({});
    group_->network().join("w0", "w2");
    settle();
  }
  Tensor gradient_there(int32_t rank) {
    const auto there = group_->worker(rank).dautograd().find_context(context_->global_id())->gradients();
    return autograd::detach(*there->find(weights_[static_cast<size_t>(rank)]));
  }
};

TEST_F(OvertakingTest, APassFindsThePairsThatAwaitTheirVerdict) {
  for (const BackwardMode mode : {BackwardMode::kSmart, BackwardMode::kFast}) {
    SimGroupOptions options;
    options.lineage = kNoLineage;
    make(3, options);
    const auto local = make_local_context();
    local->backward({near_loss()}, creating());
    local->backward({sum_of(*local->gradients()->find(x_), v_)}, {});
    hold_verdict();
    context_->backward({far_loss()}, creating(mode));
    BackwardOptions second;
    second.mode = mode;
    context_->backward({sum_of(*context_->gradients()->find(x_), v_)}, second);
    EXPECT_EQ(stats(2).passes_open, 2u);
    let_it_come();
    expect_near(autograd::detach(*context_->gradients()->find(x_)), *local->gradients()->find(x_));
    expect_near(gradient_there(2), autograd::detach(*local->gradients()->find(weights_[2])));
    EXPECT_EQ(group_->worker(2).dautograd().find_context(context_->global_id())->info().send_count, 0u);
  }
}

// The second pass is begun by w1, so that its verdict comes first: the pairs that it frees do not come back.
TEST_F(OvertakingTest, APassFreesThePairsThatAwaitTheirVerdict) {
  SimGroupOptions options;
  options.lineage = kNoLineage;
  make(3, options);
  group_->worker(1).rpc().register_function("second", [this](Invocation& invocation) {
    const auto context = group_->worker(1).dautograd().find_context(invocation.context());
    context->backward({sum_of(*context->gradients()->find(weights_[1]), v_)}, {});
  });
  const auto local = make_local_context();
  local->backward({near_loss()}, creating());
  local->backward({sum_of(*local->gradients()->find(weights_[1]), v_)}, {});
  hold_verdict();
  context_->backward({far_loss()}, creating());
  group_->call(0, 1, "second", {}, context_->global_id());
  group_->scheduler().run_for(10 * kMillisecond);
  EXPECT_EQ(stats(2).passes_open, 1u);
  let_it_come();
  expect_near(gradient_there(2), autograd::detach(*local->gradients()->find(weights_[2])));
  EXPECT_EQ(group_->worker(2).dautograd().find_context(context_->global_id())->info().send_count, 0u);
}

}  // namespace
}  // namespace distag::sim
