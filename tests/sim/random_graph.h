#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "autograd/context.h"
#include "base/random.h"
#include "support/sim_group.h"
#include "tensor/tensor.h"

namespace distag::sim {

// A forward made at random: blocks of steps, each block run by some worker and called by steps of others. Values of a
// block are numbered: its arguments first, then what its steps give, in order.
struct Step {
  enum class Kind { kLeaf, kAdd, kMul, kTanh, kDetach, kCall };
  Kind kind = Kind::kLeaf;
  std::vector<size_t> inputs;  // values; of kLeaf: the number of a leaf of the worker
  int32_t rank = 0;            // kCall: of the callee
  size_t block = 0;            // kCall: which gives as many values as it has outputs
  bool awaited_late = false;   // kCall: its answer is awaited where it is needed first, at the end at the latest
};

struct Block {
  std::vector<Step> steps;
  std::vector<size_t> outputs;
};

struct GraphOptions {
  int32_t workers = 2;
  int32_t home = 0;             // the worker that runs the program
  bool use_everything = false;  // every value reaches the outputs, and nothing is detached
  size_t max_steps = 60;        // over all blocks
};

struct RandomGraph {
  RandomGraph(uint64_t seed, GraphOptions given);

  const GraphOptions options;
  std::vector<Block> blocks;                // the last one is the program of `home`
  std::vector<std::vector<Tensor>> leaves;  // by rank; some need no gradient
  std::vector<std::vector<size_t>> roots;   // outputs of the last block, for one pass or two; some twice

  // Whether each pair of messages that is recorded is reached from the roots of the first pass, one of its values
  // standing for all: what FAST expects.
  bool reaches_every_pair() const;
  // For people: each block with its steps.
  std::string describe() const;

 private:
  size_t make_block(int32_t rank, const std::vector<bool>& arguments, size_t depth, std::vector<bool>* outputs);
  Step make_step(int32_t rank, const std::vector<bool>& values, size_t depth, std::vector<bool>* given);
  uint64_t below(uint64_t bound) { return bound < 2 ? 0 : random_.next() % bound; }

  SeededRandom random_;
  size_t steps_left_ = 0;
};

// The outputs of the whole program, all in this process.
Tensors run_locally(const RandomGraph& graph);

// Offers the blocks of the graph on each worker of the group; before the start.
void register_blocks(SimWorkerGroup& group, const RandomGraph& graph);
// The same with calls between the workers, recorded in the context. On a thread of the host, or in a function of
// `home`.
Tensors run_distributed(SimWorkerGroup& group, const RandomGraph& graph, const Id& context);

}  // namespace distag::sim
