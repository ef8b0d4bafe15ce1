#include "sim/random_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "autograd/autograd.h"
#include "ops/builtins.h"

namespace distag::sim {
namespace {

constexpr size_t kMaxDepth = 4;
constexpr size_t kLeavesPerWorker = 3;

// Runs a block on values of any kind: `machine` gives leaves, results of ops, and answers of calls. An answer may have
// to be awaited: get() is called before a value is used.
template <typename Machine>
std::vector<typename Machine::Item> run_block(Machine& machine, const RandomGraph& graph, size_t index, int32_t rank,
                                              std::vector<typename Machine::Item> values) {
  const Block& block = graph.blocks[index];
  for (const Step& step : block.steps) {
    if (step.kind == Step::Kind::kLeaf) {
      values.push_back(machine.leaf(rank, step.inputs[0]));
      continue;
    }
    std::vector<typename Machine::Item> inputs;
    for (const size_t input : step.inputs) inputs.push_back(machine.get(values[input]));
    if (step.kind != Step::Kind::kCall) {
      values.push_back(machine.compute(step.kind, inputs));
      continue;
    }
    for (auto& item : machine.call(graph, step, rank, std::move(inputs))) values.push_back(std::move(item));
  }
  for (auto& value : values) value = machine.get(value);
  std::vector<typename Machine::Item> outputs;
  for (const size_t output : block.outputs) outputs.push_back(values[output]);
  return outputs;
}

Tensor compute_tensor(Step::Kind kind, const Tensors& inputs) {
  switch (kind) {
    case Step::Kind::kAdd:
      return autograd::apply(ops::kAdd, inputs, {})[0];
    case Step::Kind::kMul:
      return autograd::apply(ops::kMul, inputs, {})[0];
    case Step::Kind::kTanh:
      return autograd::apply(ops::kTanh, inputs, {})[0];
    case Step::Kind::kDetach:
      return autograd::detach(inputs[0]);
    case Step::Kind::kLeaf:
    case Step::Kind::kCall:
      break;
  }
  fail(Status::kInternal, "this step computes nothing");
}

struct LocalMachine {
  using Item = Tensor;
  const RandomGraph& graph;

  Tensor leaf(int32_t rank, size_t number) { return graph.leaves[static_cast<size_t>(rank)][number]; }
  const Tensor& get(const Tensor& item) { return item; }
  Tensor compute(Step::Kind kind, const Tensors& inputs) { return compute_tensor(kind, inputs); }
  Tensors call(const RandomGraph& whole, const Step& step, int32_t, Tensors inputs) {
    return run_block(*this, whole, step.block, step.rank, std::move(inputs));
  }
};

// The answer of a call, until it is looked at.
struct LateTensor {
  Tensor tensor;
  std::shared_ptr<Future<Value>> answer;
  size_t index = 0;
};

struct CallingMachine {
  using Item = LateTensor;
  SimWorkerGroup& group;
  const RandomGraph& graph;
  const Id context;
  const std::shared_ptr<Invocation> within;

  Item leaf(int32_t rank, size_t number) { return {graph.leaves[static_cast<size_t>(rank)][number], nullptr}; }
  Item get(const Item& item) {
    if (item.answer == nullptr) return item;
    wait(*item.answer, kForever);
    return {item.answer->value().as_list().at(item.index).as_tensor(), nullptr};
  }
  Item compute(Step::Kind kind, const std::vector<Item>& inputs) {
    Tensors tensors;
    for (const Item& input : inputs) tensors.push_back(input.tensor);
    return {compute_tensor(kind, tensors), nullptr};
  }
  std::vector<Item> call(const RandomGraph& whole, const Step& step, int32_t rank, std::vector<Item> inputs) {
    CallRequest request;
    request.context = context;
    request.to = SimWorkerGroup::name(step.rank);
    request.function = "block";
    request.within = within;
    request.args = {Value(static_cast<int64_t>(step.block))};
    for (const Item& input : inputs) request.args.emplace_back(input.tensor);
    auto answer = group.worker(rank).rpc().call(std::move(request));
    std::vector<Item> items;
    for (size_t i = 0; i < whole.blocks[step.block].outputs.size(); ++i) {
      const Item late{Tensor(), answer, i};
      items.push_back(step.awaited_late ? late : get(late));
    }
    return items;
  }
};

// Follows which values lead to which, and which travel together in one message.
struct TracingMachine {
  using Item = size_t;
  static constexpr size_t kNoPair = SIZE_MAX;
  struct Node {
    std::vector<size_t> inputs;
    bool needs_gradient = false;
    size_t pair = kNoPair;  // the message that it arrived with
  };
  const RandomGraph& graph;
  std::vector<Node> nodes;
  std::vector<std::vector<size_t>> pairs;  // the values of a recorded message, where they arrive

  size_t add(std::vector<size_t> inputs, bool needs_gradient) {
    nodes.push_back({std::move(inputs), needs_gradient, kNoPair});
    return nodes.size() - 1;
  }
  size_t leaf(int32_t rank, size_t number) {
    return add({}, autograd::requires_grad(graph.leaves[static_cast<size_t>(rank)][number]));
  }
  size_t get(size_t item) { return item; }
  size_t compute(Step::Kind kind, const std::vector<size_t>& inputs) {
    bool needs = false;
    for (const size_t input : inputs) needs = needs || nodes[input].needs_gradient;
    return kind == Step::Kind::kDetach ? add({}, false) : add(inputs, needs);
  }
  std::vector<size_t> travel(const std::vector<size_t>& items) {
    std::vector<size_t> arrived, recorded;
    for (const size_t item : items) {
      arrived.push_back(add({item}, nodes[item].needs_gradient));
      if (nodes[item].needs_gradient) recorded.push_back(arrived.back());
    }
    for (const size_t item : recorded) nodes[item].pair = pairs.size();
    if (!recorded.empty()) pairs.push_back(std::move(recorded));
    return arrived;
  }
  std::vector<size_t> call(const RandomGraph& whole, const Step& step, int32_t, std::vector<size_t> inputs) {
    return travel(run_block(*this, whole, step.block, step.rank, travel(inputs)));
  }
};

}  // namespace

RandomGraph::RandomGraph(uint64_t seed, GraphOptions given) : options(given), random_(seed) {
  steps_left_ = 4 + below(options.max_steps);
  for (int32_t rank = 0; rank < options.workers; ++rank) {
    auto& own = leaves.emplace_back();
    for (size_t i = 0; i < kLeavesPerWorker; ++i) {
      Tensor leaf = Tensor::empty(Dtype::kFloat64, {2});
      for (size_t k = 0; k < 2; ++k) leaf.mutable_data_as<double>()[k] = static_cast<double>(below(2000)) / 1000 - 1;
      autograd::set_requires_grad(leaf, i == 0 || options.use_everything || below(3) != 0);
      own.push_back(std::move(leaf));
    }
  }
  std::vector<bool> outputs;
  const size_t last = make_block(options.home, {}, 0, &outputs);
  std::vector<size_t> candidates;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i]) candidates.push_back(i);
  }
  if (candidates.empty()) {
    // Every output is detached: a leaf is added, so that there is a root.
    blocks[last].steps.push_back({Step::Kind::kLeaf, {0}, 0, 0, false});
    size_t count = 0;
    for (const Step& step : blocks[last].steps) {
      count += step.kind == Step::Kind::kCall ? blocks[step.block].outputs.size() : 1;
    }
    candidates.push_back(blocks[last].outputs.size());
    blocks[last].outputs.push_back(count - 1);
  }
  for (size_t pass = 0; pass < 2; ++pass) {
    auto& chosen = roots.emplace_back();
    if (options.use_everything) chosen = candidates;
    for (size_t i = 0; i < 1 + below(2); ++i) chosen.push_back(candidates[below(candidates.size())]);
  }
}

Step RandomGraph::make_step(int32_t rank, const std::vector<bool>& values, size_t depth, std::vector<bool>* given) {
  Step step;
  const uint64_t choice = values.empty() ? 0 : below(10);
  auto pick = [this, &values] { return values.size() - 1 - below(std::min<size_t>(values.size(), 6)); };
  if (choice >= 6 && depth < kMaxDepth && steps_left_ > 0) {
    step.kind = Step::Kind::kCall;
    step.rank = static_cast<int32_t>(below(static_cast<uint64_t>(options.workers)));
    step.awaited_late = below(2) == 0;
    std::vector<bool> arguments;
    for (size_t i = 0; i < below(4); ++i) {
      step.inputs.push_back(pick());
      arguments.push_back(values[step.inputs.back()]);
    }
    step.block = make_block(step.rank, arguments, depth + 1, given);
    return step;
  }
  if (choice < 2) {
    step.inputs = {below(kLeavesPerWorker)};
    *given = {autograd::requires_grad(leaves[static_cast<size_t>(rank)][step.inputs[0]])};
    return step;
  }
  if (choice == 2) {
    step.kind = below(3) == 0 && !options.use_everything ? Step::Kind::kDetach : Step::Kind::kTanh;
    step.inputs = {pick()};
    *given = {step.kind == Step::Kind::kTanh && values[step.inputs[0]]};
    return step;
  }
  step.kind = below(2) == 0 ? Step::Kind::kAdd : Step::Kind::kMul;
  step.inputs = {pick(), pick()};
  *given = {values[step.inputs[0]] || values[step.inputs[1]]};
  return step;
}

size_t RandomGraph::make_block(int32_t rank, const std::vector<bool>& arguments, size_t depth,
                               std::vector<bool>* outputs) {
  Block block;
  std::vector<bool> values = arguments;  // whether each needs a gradient
  std::vector<bool> used(values.size(), false);
  for (size_t count = 1 + below(depth == 0 ? 12 : 6); count > 0 || values.empty(); --count) {
    if (steps_left_ > 0) --steps_left_;
    std::vector<bool> given;
    Step step = make_step(rank, values, depth, &given);
    if (step.kind != Step::Kind::kLeaf) {
      for (const size_t input : step.inputs) used[input] = true;
    }
    values.insert(values.end(), given.begin(), given.end());
    used.resize(values.size(), false);
    block.steps.push_back(std::move(step));
    if (steps_left_ == 0) break;
  }
  if (options.use_everything) {
    // Values that were not used go into one last sum, which is the output.
    size_t sum = values.size() - 1;
    for (size_t i = 0, end = values.size(); i < end; ++i) {
      if (used[i] || i == sum) continue;
      block.steps.push_back({Step::Kind::kAdd, {sum, i}, 0, 0, false});
      values.push_back(values[sum] || values[i]);
      sum = values.size() - 1;
    }
    block.outputs.push_back(sum);
  } else {
    for (size_t i = 0; i < 1 + below(3); ++i) block.outputs.push_back(below(values.size()));
  }
  for (const size_t output : block.outputs) outputs->push_back(values[output]);
  blocks.push_back(std::move(block));
  return blocks.size() - 1;
}

// The gradients of a message come together, zeros among them: if one of its values is reached, so is everything that
// leads to any of them.
bool RandomGraph::reaches_every_pair() const {
  TracingMachine machine{*this, {}, {}};
  const std::vector<size_t> outputs = run_block(machine, *this, blocks.size() - 1, options.home, {});
  std::map<size_t, const std::vector<size_t>*> beside;
  for (const auto& pair : machine.pairs) {
    for (const size_t value : pair) beside[value] = &pair;
  }
  std::vector<bool> reached(machine.nodes.size(), false);
  std::vector<size_t> work;
  for (const size_t root : roots[0]) work.push_back(outputs[root]);
  while (!work.empty()) {
    const size_t node = work.back();
    work.pop_back();
    if (reached[node] || !machine.nodes[node].needs_gradient) continue;
    reached[node] = true;
    work.insert(work.end(), machine.nodes[node].inputs.begin(), machine.nodes[node].inputs.end());
    // A single gradient message answers for all values of a pair, including values without a gradient.
    const size_t pair = machine.nodes[node].pair;
    if (pair == TracingMachine::kNoPair) continue;
    work.insert(work.end(), machine.pairs[pair].begin(), machine.pairs[pair].end());
    const auto found = beside.find(node);
    if (found != beside.end()) work.insert(work.end(), found->second->begin(), found->second->end());
  }
  for (const auto& pair : machine.pairs) {
    if (!reached[pair[0]]) return false;
  }
  return true;
}

std::string RandomGraph::describe() const {
  static constexpr const char* kNames[] = {"leaf", "add", "mul", "tanh", "detach", "call"};
  std::string text;
  for (size_t index = 0; index < blocks.size(); ++index) {
    text += fmt::format("block {}:", index);
    for (const Step& step : blocks[index].steps) {
      text += fmt::format(" {}", kNames[static_cast<size_t>(step.kind)]);
      if (step.kind == Step::Kind::kCall) text += fmt::format(" w{} block {}", step.rank, step.block);
      text += fmt::format("({})", fmt::join(step.inputs, ","));
    }
    text += fmt::format(" -> ({})\n", fmt::join(blocks[index].outputs, ","));
  }
  for (const auto& chosen : roots) text += fmt::format("roots ({})\n", fmt::join(chosen, ","));
  return text;
}

Tensors run_locally(const RandomGraph& graph) {
  LocalMachine machine{graph};
  return run_block(machine, graph, graph.blocks.size() - 1, graph.options.home, {});
}

void register_blocks(SimWorkerGroup& group, const RandomGraph& graph) {
  for (int32_t rank = 0; rank < group.size(); ++rank) {
    group.worker(rank).rpc().register_function("block", [&group, &graph, rank](Invocation& invocation) {
      CallingMachine machine{group, graph, invocation.context(), invocation.shared_from_this()};
      std::vector<LateTensor> arguments;
      for (size_t i = 1; i < invocation.args().size(); ++i) {
        arguments.push_back({invocation.args()[i].as_tensor(), nullptr});
      }
      const auto index = static_cast<size_t>(invocation.args().at(0).as_int64());
      Value::List answer;
      for (const auto& output : run_block(machine, graph, index, rank, std::move(arguments))) {
        answer.emplace_back(output.tensor);
      }
      invocation.set_result(Value::list(std::move(answer)));
    });
  }
}

Tensors run_distributed(SimWorkerGroup& group, const RandomGraph& graph, const Id& context) {
  CallingMachine machine{group, graph, context, nullptr};
  Tensors outputs;
  for (const auto& output : run_block(machine, graph, graph.blocks.size() - 1, graph.options.home, {}))
    outputs.push_back(output.tensor);
  return outputs;
}

}  // namespace distag::sim
