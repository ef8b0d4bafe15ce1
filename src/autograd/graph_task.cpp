#include "autograd/graph_task.h"

#include <algorithm>
#include <array>

#include "autograd/autograd.h"
#include "autograd/history.h"
#include "autograd/recordable.h"
#include "base/error.h"
#include "ops/builtins.h"

namespace distag::autograd {
namespace {

// `run` calls one of the backward functions of the node.
template <typename Run>
Tensors run_backward(const Node& node, const Run& run) {
  try {
    return run();
  } catch (...) {
    throw current_error().add_context(fmt::format("backward of \"{}\"", node.name()));
  }
}

bool is_any_defined(const Tensors& gradients) {
  return std::any_of(gradients.begin(), gradients.end(), [](const Tensor& gradient) { return bool(gradient); });
}

// A leaf owns the gradient it gets: no later write shows in it.
Tensor make_own(Tensor gradient) {
  if (!gradient.is_contiguous()) return gradient.contiguous();
  return gradient.is_exclusive() ? gradient : gradient.snapshot();
}

// The same for a gradient with a history, which the result keeps.
Tensor make_own_recorded(const Tensor& gradient) {
  if (!requires_grad(gradient)) return make_own(gradient);
  return with_history_of(gradient, gradient.is_contiguous() ? gradient.snapshot() : gradient.contiguous());
}

Tensor make_contiguous(const Tensor& gradient, bool keeps_history) {
  return keeps_history ? with_history_of(gradient, gradient.contiguous()) : gradient.contiguous();
}

Tensor recorded_sum(const Tensor& a, const Tensor& b) { return apply(ops::kAdd, std::array{a, b}, {})[0]; }

// The node has to be recordable.
Tensors run_recorded_backward(Node& node, const Edge& output, Node::SavedData& saved, Tensors gradients) {
  return dynamic_cast<RecordableNode&>(node).recorded_backward(output, saved, std::move(gradients));
}

}  // namespace

GraphTask::GraphTask(GraphWalk::CheckRecv check_recv, bool hands_out_entries, bool records)
    : walk_({std::move(check_recv), hands_out_entries, records}) {}
GraphTask::~GraphTask() = default;

void GraphTask::deliver(const Edge& edge, Tensor gradient) {
  if (edge.node != nullptr) arrive(walk_.find(*edge.node), edge.slot, std::move(gradient));
}

void GraphTask::deliver_source(const Node& send, Tensors gradients) {
  const uint32_t number = walk_.find(send);
  if (number == NodeIndex::kNone || walk_.visits()[number].waiting == 0) {
    fail(Status::kProtocol, "gradients for {} came twice, or were not asked for", send.name());
  }
  Visit& source = walk_.visits()[number];
  source.waiting = 0;
  source.gradients = std::move(gradients);
  ready_.push_back(number);
}

void GraphTask::arrive(uint32_t number, uint32_t slot, Tensor gradient) {
  Visit& target = walk_.visits()[number];
  if (gradient) {
    if (target.gradients.empty()) target.gradients.resize(target.node->slots());
    Tensor& sum = target.gradients[slot];
    if (sum && walk_.options().records) {
      sum = recorded_sum(sum, gradient);
    } else {
      sum = sum ? ops::accumulate(std::move(sum), std::move(gradient)) : std::move(gradient);
    }
  }
  if (--target.waiting == 0) ready_.push_back(number);
}

bool GraphTask::run(const RunOptions& options) {
  size_t nodes = 0;
  size_t bytes = 0;
  while (!ready_.empty() || (has_put_off() && leaving_.empty())) {
    if (ready_.empty()) take_up();
    if (options.check_stop) options.check_stop();
    const uint32_t number = ready_.back();
    if (options.max_nodes != 0) {
      const size_t cost_of_one = cost(walk_.visits()[number]);
      if (++nodes > options.max_nodes || cost_of_one > options.max_bytes - bytes) return false;
      bytes += cost_of_one;
    }
    ready_.pop_back();
    run_one(number, options.runs_host_code);
  }
  return true;
}

void GraphTask::take_up() {
  ready_.insert(ready_.end(), put_off_.rbegin(), put_off_.rend());
  put_off_.clear();
}

// Nodes other than ops may copy their gradients.
size_t GraphTask::cost(const Visit& visit) const {
  if (visit.node->kind() == Node::Kind::kFunction) return visit.node->cost();
  size_t bytes = 0;
  for (const Tensor& gradient : visit.gradients) {
    if (gradient && gradient.byte_size() > kSmallTensor) bytes += gradient.byte_size();
  }
  return bytes;
}

void GraphTask::run_one(uint32_t number, bool runs_host_code) {
  Visit& ready = walk_.visits()[number];
  switch (ready.node->kind()) {
    case Node::Kind::kFunction:
      if (walk_.options().hands_out_entries && ready.node->as_entry() != nullptr) {
        run_entry(ready);
        break;
      }
      run_function(number, runs_host_code);
      return;
    case Node::Kind::kLeaf:
      run_leaf(ready);
      break;
    case Node::Kind::kSend:
      run_source(ready);
      break;
    case Node::Kind::kRecv:
      run_recv(ready);
      break;
  }
  ++finished_;
}

void GraphTask::run_function(uint32_t number, bool runs_host_code) {
  Visit& ready = walk_.visits()[number];
  if (ready.put_off != 0) return run_put_off(number);
  Tensors gradients = std::move(ready.gradients);
  if (!is_any_defined(gradients)) {
    pass_on(*ready.node, Tensors(ready.node->next().size()));
    ++finished_;
    return;
  }
  if (ready.node->is_host_code() && !runs_host_code) {
    host_steps_.push_back({number, ready.node, std::move(ready.saved), std::move(gradients), walk_.options().records});
    return;
  }
  if (walk_.options().records) return run_recorded(number, std::move(gradients));
  Node& node = *ready.node;
  if (const uint64_t later = inputs_to_put_off(node); later != 0) {
    ready.put_off = later;
    ready.gradients = gradients;
    put_off_.push_back(number);
    Tensors first = run_backward(node, [&] { return node.backward_of(*ready.saved, std::move(gradients), ~later); });
    pass_on(node, std::move(first), ~later);
    return;
  }
  Tensors sums = node.adds() ? take_sums(node) : Tensors();
  Tensors results = run_backward(node, [&] {
    if (!sums.empty()) return node.backward_onto(*ready.saved, std::move(gradients), std::move(sums));
    return node.backward(*ready.saved, std::move(gradients));
  });
  ready.saved.reset();
  pass_on(node, std::move(results));
  ++finished_;
}

void GraphTask::run_recorded(uint32_t number, Tensors gradients) {
  Visit& ready = walk_.visits()[number];
  Node& node = *ready.node;
  const Edge output{ready.hook == NodeIndex::kNone ? ready.node : walk_.visits()[ready.hook].node, 0};
  Tensors results =
      run_backward(node, [&] { return run_recorded_backward(node, output, *ready.saved, std::move(gradients)); });
  ready.saved.reset();
  pass_on(node, std::move(results));
  ++finished_;
}

void GraphTask::run_put_off(uint32_t number) {
  Visit& ready = walk_.visits()[number];
  Node& node = *ready.node;
  Tensors results =
      run_backward(node, [&] { return node.backward_of(*ready.saved, std::move(ready.gradients), ready.put_off); });
  ready.saved.reset();
  pass_on(node, std::move(results), ready.put_off);
  ++finished_;
}

// The inputs that lead to leaves, if the node has others, through which the pass may go on to other workers. The choice
// depends on the graph alone, so that the order of sums is the same from run to run.
uint64_t GraphTask::inputs_to_put_off(const Node& node) const {
  if (!walk_.has_recvs() || !node.is_separable()) return 0;
  uint64_t leaves = 0;
  bool has_others = false;
  for (size_t i = 0; i < node.next().size(); ++i) {
    const Node* next = node.next()[i].node.get();
    if (next == nullptr) continue;
    if (next->kind() == Node::Kind::kLeaf) {
      leaves |= uint64_t{1} << i;
    } else {
      has_others = true;
    }
  }
  return has_others ? leaves : 0;
}

// Takes the sums so far from the nodes to which the gradients of this one go. Empty if both go to one place, which adds
// them one after the other.
Tensors GraphTask::take_sums(const Node& node) {
  const std::vector<Edge>& edges = node.next();
  const auto is_one = [](const Edge& a, const Edge& b) { return a.node == b.node && a.slot == b.slot; };
  if (edges.size() != 2 || is_one(edges[0], edges[1])) return {};
  Tensors sums(edges.size());
  for (size_t i = 0; i < edges.size(); ++i) {
    if (edges[i].node == nullptr) continue;
    Tensors& arrived = walk_.visits()[walk_.find(*edges[i].node)].gradients;
    if (!arrived.empty()) sums[i] = std::move(arrived[edges[i].slot]);
  }
  return sums;
}

void GraphTask::pass_on(const Node& node, Tensors gradients, uint64_t inputs) {
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (i >= 64 || ((inputs >> i) & 1) != 0) deliver(node.next()[i], std::move(gradients[i]));
  }
}

void GraphTask::run_source(Visit& visit) {
  Tensors gradients = std::move(visit.gradients);
  gradients.resize(visit.slots.size());
  for (size_t i = 0; i < visit.slots.size(); ++i) {
    if (visit.slots[i]) deliver(visit.node->next()[i], std::move(gradients[i]));
  }
}

void GraphTask::run_leaf(Visit& visit) {
  if (visit.gradients.empty()) return;
  Tensor gradient = std::move(visit.gradients[0]);
  visit.gradients.clear();
  gradient = walk_.options().records ? make_own_recorded(gradient) : make_own(std::move(gradient));
  gradients_.push_back({static_cast<const LeafNode&>(*visit.node).tensor(), std::move(gradient)});
}

void GraphTask::run_entry(Visit& visit) {
  Tensor gradient = visit.gradients.empty() ? Tensor() : std::move(visit.gradients[0]);
  visit.gradients.clear();
  entering_.push_back({visit.node, std::move(gradient)});
}

void GraphTask::run_recv(Visit& visit) {
  Leaving leaving{visit.node, visit.slots, {}};
  for (size_t i = 0; i < visit.slots.size(); ++i) {
    if (!visit.slots[i]) continue;
    Tensor gradient = visit.gradients.empty() ? Tensor() : std::move(visit.gradients[i]);
    leaving.gradients.push_back(gradient ? make_contiguous(gradient, walk_.options().records) : Tensor());
  }
  visit.gradients.clear();
  leaving_.push_back(std::move(leaving));
}

// ---- joint steps ----

void GraphTask::begin_joint() {
  auto saved = std::make_shared<JointSaved>();
  for (uint32_t number = 0; number < walk_.visits().size(); ++number) {
    const Visit& visit = walk_.visits()[number];
    const bool is_entry = visit.node->as_entry() != nullptr;
    if (visit.is_joint || is_entry) saved->emplace(visit.node.get(), visit.saved);
    if (is_entry && !visit.is_reached) ready_.push_back(number);
  }
  joint_ = std::move(saved);
}

// ---- host code ----

Tensors GraphTask::HostStep::run() {
  return run_backward(*node, [this] {
    if (is_recorded) return run_recorded_backward(*node, Edge{node, 0}, *saved, std::move(gradients));
    return node->backward(*saved, std::move(gradients));
  });
}

std::vector<GraphTask::HostStep> GraphTask::take_host_steps() { return std::exchange(host_steps_, {}); }

void GraphTask::finish_host_step(const HostStep& step, Tensors gradients) {
  pass_on(*step.node, std::move(gradients));
  ++finished_;
}

// ---- the end ----

std::vector<GraphTask::Leaving> GraphTask::take_leaving() { return std::exchange(leaving_, {}); }

std::vector<std::shared_ptr<Node>> GraphTask::waiting_sources() const {
  std::vector<std::shared_ptr<Node>> result;
  for (const Visit& visit : walk_.visits()) {
    if (visit.node->kind() == Node::Kind::kSend && visit.waiting != 0) result.push_back(visit.node);
  }
  return result;
}

void GraphTask::add_gradients(std::vector<Gradients::Entry> gradients) {
  gradients_.insert(gradients_.end(), gradients.begin(), gradients.end());
}

std::vector<Gradients::Entry> GraphTask::take_gradients() { return std::exchange(gradients_, {}); }

}  // namespace distag::autograd
