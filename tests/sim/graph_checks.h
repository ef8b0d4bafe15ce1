#pragma once

#include <memory>
#include <vector>

#include "autograd/context.h"
#include "sim/random_graph.h"
#include "support/sim_group.h"

namespace distag::sim {

// A scalar of each chosen output.
Tensors make_roots(const Tensors& outputs, const std::vector<size_t>& chosen);

// Gradients of the graph in one process, over the first `passes` passes; or over `count` repeats of the first pass.
std::shared_ptr<const Gradients> local_gradients(const RandomGraph& graph, size_t passes);
std::shared_ptr<const Gradients> local_gradients_of_repeats(const RandomGraph& graph, size_t count);

// The gradients that each worker has in the context: every gradient of the reference, and no other.
void expect_gradients(SimWorkerGroup& group, const RandomGraph& graph, const Id& id, const Gradients& expected);

// Soon nothing of the released contexts is left on any worker.
void expect_nothing_left(SimWorkerGroup& group);

}  // namespace distag::sim
