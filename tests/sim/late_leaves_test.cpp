// Passes through large products: gradients of leaves wait until gradients for other workers have left.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "autograd/autograd.h"
#include "base/error.h"
#include "ops/builtins.h"
#include "sim/graph_checks.h"
#include "support/leaves.h"
#include "support/sim_group.h"

namespace distag::sim {
namespace {

using testing::apply;

constexpr int64_t kSize = 96;  // 72 KiB of float64: no small tensor
constexpr int32_t kStages = 3;

// Small whole numbers, so that every sum is exact.
Tensor whole_numbers(uint64_t seed) {
  SeededRandom random(seed);
  Tensor tensor = Tensor::empty(Dtype::kFloat64, {kSize, kSize});
  double* at = tensor.mutable_data_as<double>();
  for (int64_t i = 0; i < tensor.count(); ++i) at[i] = static_cast<double>(random.next() % 5) - 2;
  return tensor;
}

Tensor leaf_of(int32_t rank) {
  Tensor leaf = whole_numbers(100 + static_cast<uint64_t>(rank));
  autograd::set_requires_grad(leaf, true);
  return leaf;
}

// A stage uses its leaf twice, in two products.
Tensor stage(const Tensor& x, const Tensor& leaf) {
  return apply(ops::kAdd, {apply(ops::kMatmul, {x, leaf}), apply(ops::kLinear, {x, leaf})});
}

// Calls through w1, w2 and back to w1, from a leaf of w0.
class LateLeaves {
 public:
  explicit LateLeaves(uint64_t seed) : group_(seed, make_options(seed)) {
    for (int32_t rank = 0; rank < kStages; ++rank) {
      leaves_.push_back(leaf_of(rank));
      group_.worker(rank).rpc().register_function("stage", [leaf = leaves_.back()](Invocation& invocation) {
        invocation.set_result(Value(stage(invocation.args()[0].as_tensor(), leaf)));
      });
    }
    group_.start();
  }

  Tensor forward(const Context& context) {
    Tensor y = apply(ops::kMul, {leaves_[0], leaves_[0]});
    for (const int32_t to : {1, 2, 1}) y = group_.call(0, to, "stage", {Value(y)}, context.global_id()).as_tensor();
    return apply(ops::kSum, {y});
  }

  void expect_gradients(const Context& context, double passes) {
    const auto local = make_local_context();
    Tensor y = apply(ops::kMul, {leaves_[0], leaves_[0]});
    for (const size_t rank : {size_t{1}, size_t{2}, size_t{1}}) y = stage(y, leaves_[rank]);
    local->backward({apply(ops::kSum, {y})}, {});
    for (int32_t rank = 0; rank < kStages; ++rank) {
      const Tensor& leaf = leaves_[static_cast<size_t>(rank)];
      const auto there = group_.worker(rank).dautograd().find_context(context.global_id())->gradients();
      const Tensor* found = there->find(leaf);
      ASSERT_NE(found, nullptr) << rank;
      const Tensor expected = *local->gradients()->find(leaf);
      for (int64_t i = 0; i < expected.count(); ++i) {
        ASSERT_EQ(found->data_as<double>()[i], passes * expected.data_as<double>()[i]) << rank << ", " << i;
      }
    }
  }

  SimWorkerGroup& group() { return group_; }

 private:
  static SimGroupOptions make_options(uint64_t seed) {
    SimGroupOptions options;
    options.size = kStages;
    if (seed % 3 == 0) options.faults.drop = 0.02;
    return options;
  }

  SimWorkerGroup group_;
  std::vector<Tensor> leaves_;  // by rank
};

TEST(LateLeavesTest, GetTheGradientsOfOneProcess) {
  for_each_seed(60, [](uint64_t seed) {
    LateLeaves stages(seed);
    {
      const auto context = stages.group().worker(0).dautograd().create_context();
      BackwardOptions options;
      options.mode = seed % 2 == 0 ? BackwardMode::kFast : BackwardMode::kSmart;
      options.retain_graph = true;
      const Tensor root = stages.forward(*context);
      context->backward({root}, options);
      context->backward({root}, options);
      stages.expect_gradients(*context, 2);
    }
    expect_nothing_left(stages.group());
  });
}

// A pass that ends while gradients of leaves wait gives none of them, and the next pass is whole.
TEST(LateLeavesTest, LeaveNothingOfAPassThatIsCancelled) {
  size_t runs = 0, cancelled = 0;
  const bool is_sweep = for_each_seed(200, [&runs, &cancelled](uint64_t seed) {
    ++runs;
    LateLeaves stages(seed);
    SimScheduler& scheduler = stages.group().scheduler();
    {
      const auto context = stages.group().worker(0).dautograd().create_context();
      BackwardOptions options;
      options.retain_graph = true;
      const Tensor root = stages.forward(*context);
      const auto pass = context->backward_async({root}, options);
      scheduler.run_for(scheduler.between(0, 4 * kMillisecond));
      pass->cancel();
      wait(*pass, kForever);
      const bool is_cancelled = pass->error() != nullptr;
      cancelled += is_cancelled;
      context->backward({root}, options);
      stages.expect_gradients(*context, is_cancelled ? 1 : 2);
    }
    expect_nothing_left(stages.group());
  });
  if (is_sweep) {
    EXPECT_GT(cancelled, runs / 10);
    EXPECT_LT(cancelled, runs);
  }
}

// A worker that is killed while gradients of leaves wait ends the pass with its name, and the others go on.
TEST(LateLeavesTest, EndWithAPassThatLosesAWorker) {
  size_t runs = 0, failed = 0;
  const bool is_sweep = for_each_seed(200, [&runs, &failed](uint64_t seed) {
    ++runs;
    LateLeaves stages(seed);
    SimScheduler& scheduler = stages.group().scheduler();
    const auto context = stages.group().worker(0).dautograd().create_context();
    const Tensor root = stages.forward(*context);
    const auto pass = context->backward_async({root}, {});
    scheduler.run_for(scheduler.between(0, 4 * kMillisecond));
    stages.group().kill(2);
    wait(*pass, kForever);
    if (pass->error() != nullptr) {
      ++failed;
      EXPECT_NE(pass->error()->message().find("\"w2\""), std::string::npos) << pass->error()->message();
      EXPECT_TRUE(context->gradients()->entries.empty());
    }
    scheduler.run_for(30 * kSecond);
    for (const int32_t rank : {0, 1}) {
      EXPECT_EQ(stages.group().worker(rank).stats().dautograd.passes_open, 0u) << rank;
      EXPECT_EQ(stages.group().tasks_running(rank), 0u) << rank;
    }
  });
  if (is_sweep) {
    EXPECT_GT(failed, runs / 10);
    EXPECT_LT(failed, runs);
  }
}

// Begins the passes at once, and returns how many tasks of pools ran until they were over.
size_t count_tasks_of(SimWorkerGroup& group, const std::vector<std::shared_ptr<Context>>& contexts,
                      const Tensors& roots) {
  const auto begun = [&group] { return group.tasks_begun(0) + group.tasks_begun(1); };
  const size_t before = begun();
  std::vector<std::shared_ptr<Future<Value>>> passes;
  for (size_t i = 0; i < contexts.size(); ++i) passes.push_back(contexts[i]->backward_async({roots[i]}, {}));
  for (const auto& pass : passes) {
    wait(*pass, kForever);
    EXPECT_EQ(pass->error(), nullptr);
  }
  return begun() - before;
}

// The pass only goes over memory; several open passes are for several threads.
TEST(FewBytesTest, APassOverThemRunsOnTheLoopUnlessAnotherIsOpen) {
  for (const size_t count : {size_t{1}, size_t{3}}) {
    SimWorkerGroup group(1, SimGroupOptions());
    group.start();
    std::vector<std::shared_ptr<Context>> contexts;
    Tensors leaves, roots;
    for (size_t i = 0; i < count; ++i) {
      contexts.push_back(group.worker(0).dautograd().create_context());
      leaves.push_back(leaf_of(0));
      const Value sum = group.call(0, 1, "add", {Value(leaves[i]), Value(leaves[i])}, contexts[i]->global_id());
      roots.push_back(apply(ops::kSum, {apply(ops::kMul, {sum.as_tensor(), leaves[i]})}));
    }
    const size_t tasks = count_tasks_of(group, contexts, roots);
    EXPECT_EQ(tasks > 0, count > 1) << tasks;
    for (size_t i = 0; i < count; ++i) {
      const Tensor gradient = *contexts[i]->gradients()->find(leaves[i]);
      EXPECT_EQ(gradient.data_as<double>()[7], 4 * leaves[i].data_as<double>()[7]) << "of 2 x^2";
    }
  }
}

}  // namespace
}  // namespace distag::sim
