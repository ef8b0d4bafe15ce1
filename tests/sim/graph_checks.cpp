#include "sim/graph_checks.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "autograd/autograd.h"
#include "base/error.h"
#include "ops/builtins.h"

namespace distag::sim {
namespace {

std::shared_ptr<const Gradients> run_passes(const RandomGraph& graph, const std::vector<std::vector<size_t>>& roots) {
  const auto context = make_local_context();
  const Tensors outputs = run_locally(graph);
  BackwardOptions options;
  options.retain_graph = true;
  for (const auto& chosen : roots) context->backward(make_roots(outputs, chosen), options);
  return context->gradients();
}

void expect_equal(const Tensor& expected, const Tensor& actual, const std::string& what) {
  ASSERT_EQ(expected.count(), actual.count()) << what;
  const Tensor left = expected.contiguous();
  const Tensor right = actual.contiguous();
  for (int64_t i = 0; i < expected.count(); ++i) {
    const double a = left.data_as<double>()[i];
    const double b = right.data_as<double>()[i];
    if (!std::isfinite(a)) {  // a graph that overflows does so in any order of its sums, to an infinity or a NaN
      EXPECT_FALSE(std::isfinite(b)) << what << " element " << i << ": " << a << " and " << b;
      continue;
    }
    EXPECT_LE(std::abs(a - b), 1e-9 * (1 + std::abs(a))) << what << " element " << i << ": " << a << " and " << b;
  }
}

}  // namespace

Tensors make_roots(const Tensors& outputs, const std::vector<size_t>& chosen) {
  std::vector<Tensor> sums(outputs.size());
  Tensors roots;
  for (const size_t index : chosen) {
    // The same root twice is the same tensor twice.
    if (!sums[index]) sums[index] = autograd::apply(ops::kSum, std::vector<Tensor>{outputs[index]}, {})[0];
    roots.push_back(sums[index]);
  }
  return roots;
}

std::shared_ptr<const Gradients> local_gradients(const RandomGraph& graph, size_t passes) {
  return run_passes(graph, {graph.roots.begin(), graph.roots.begin() + static_cast<ptrdiff_t>(passes)});
}

std::shared_ptr<const Gradients> local_gradients_of_repeats(const RandomGraph& graph, size_t count) {
  return run_passes(graph, std::vector<std::vector<size_t>>(count, graph.roots[0]));
}

void expect_gradients(SimWorkerGroup& group, const RandomGraph& graph, const Id& id, const Gradients& expected) {
  for (int32_t rank = 0; rank < group.size(); ++rank) {
    if (group.is_killed(rank)) continue;
    std::shared_ptr<const Gradients> actual;
    try {
      actual = group.worker(rank).dautograd().find_context(id)->gradients();
    } catch (const Error& error) {
      if (group.is_killed(rank)) continue;  // while it was asked
      // A worker that the forward never reached knows nothing of the context.
      EXPECT_EQ(error.status(), Status::kInvalidState) << error.message();
    }
    const auto& leaves = graph.leaves[static_cast<size_t>(rank)];
    for (size_t i = 0; i < leaves.size(); ++i) {
      const std::string what = "leaf " + std::to_string(i) + " of w" + std::to_string(rank);
      const Tensor* wanted = expected.find(leaves[i]);
      const Tensor* there = actual ? actual->find(leaves[i]) : nullptr;
      ASSERT_EQ(wanted != nullptr, there != nullptr) << what;
      if (wanted != nullptr) expect_equal(*wanted, *there, what);
    }
  }
}

void expect_nothing_left(SimWorkerGroup& group) {
  auto left = [&group] {
    uint64_t count = 0;
    for (int32_t rank = 0; rank < group.size(); ++rank) {
      if (group.is_killed(rank)) continue;
      const WorkerStats stats = group.worker(rank).stats();
      count += stats.dautograd.contexts + stats.dautograd.passes_open + stats.rpc.calls_open;
    }
    return count;
  };
  group.scheduler().run_until([&left] { return left() == 0; }, 10 * kSecond);
  EXPECT_EQ(left(), 0u);
}

}  // namespace distag::sim
