#include "autograd/graph_walk.h"

#include <algorithm>

#include "autograd/history.h"
#include "autograd/hooks.h"
#include "autograd/recordable.h"
#include "base/error.h"

namespace distag::autograd {
namespace {

void check_recordable(const Node& node) {
  const auto* recordable = dynamic_cast<const RecordableNode*>(&node);
  if (recordable != nullptr && recordable->is_recordable()) return;
  fail(Status::kUnsupported,
       "create_graph: \"{}\" has no gradient of its gradient; run the pass without create_graph, or detach what \"{}\" "
       "takes",
       node.name(), node.name());
}

}  // namespace

void GraphWalk::expand(std::span<const Edge> edges) {
  for (const Edge& edge : edges) reach(edge, false);
}

void GraphWalk::add_source(const std::shared_ptr<Node>& send, const Bits& slots) {
  const uint32_t number = add(send);
  if (visits_[number].slots.empty()) {
    visits_[number].slots.resize(send->slots());
    visits_[number].waiting = 1;
  }
  const size_t count = std::min<size_t>(send->slots(), slots.size());
  for (size_t i = 0; i < count; ++i) {
    // Indexed each time: visits_ grows when reach() adds nodes.
    if (!slots[i] || visits_[number].slots[i]) continue;
    visits_[number].slots[i] = true;
    reach(send->next()[i], false);
  }
}

uint32_t GraphWalk::add(const std::shared_ptr<Node>& node) {
  uint32_t number = index_.find(node.get());
  if (number != NodeIndex::kNone) return number;
  Visit fresh;
  switch (node->kind()) {
    case Node::Kind::kFunction:
      fresh.saved = node->saved();
      if (fresh.saved == nullptr) {
        fail(Status::kGraphFreed,
             "the graph at \"{}\" was freed by an earlier backward pass; use retain_graph there to run another",
             node->name());
      }
      if (options_.records) check_recordable(*node);
      break;
    case Node::Kind::kRecv:
      options_.check_recv(*node);
      fresh.slots.resize(node->slots());
      break;
    case Node::Kind::kLeaf:
    case Node::Kind::kSend:
      break;
  }
  number = static_cast<uint32_t>(visits_.size());
  fresh.node = node;
  fresh.is_joint = options_.hands_out_entries && node->is_joint() && node->as_entry() == nullptr;
  if (!fresh.is_joint) ++steps_;
  visits_.push_back(std::move(fresh));
  index_.add(node.get(), number);
  if (node->kind() == Node::Kind::kFunction) unexpanded_.push_back(number);
  return number;
}

void GraphWalk::reach(const Edge& edge, bool is_from_joint) {
  if (edge.node == nullptr) return;
  const uint32_t number = add(edge.node);
  Visit& target = visits_[number];
  if (target.is_joint && !is_from_joint) {
    fail(Status::kInvalidState,
         "a plain gradient reached \"{}\" of a sharded tensor: run a sharded root in a joint context of its mesh "
         "(context_create_joint), and shard a leaf before an op uses it",
         edge.node->name());
  }
  ++target.waiting;
  if (edge.node->as_entry() != nullptr && !target.is_reached) reached_entries_.push_back(edge.node);
  target.is_reached = true;
  if (edge.node->kind() != Node::Kind::kRecv) return;
  has_recvs_ = true;
  if (target.slots[edge.slot]) return;
  target.slots[edge.slot] = true;
  if (target.fresh.empty()) {
    target.fresh.resize(edge.node->slots());
    reached_.push_back(number);
  }
  target.fresh[edge.slot] = true;
}

bool GraphWalk::run(size_t max_nodes) {
  for (; !unexpanded_.empty() && max_nodes > 0; --max_nodes) {
    const uint32_t number = unexpanded_.back();
    // The node stays where it is while visits_ grows.
    const Visit& visit = visits_[number];
    const Node& node = *visit.node;
    const bool is_joint = visit.is_joint || node.as_entry() != nullptr;
    unexpanded_.pop_back();
    for (const Edge& edge : node.next()) reach(edge, is_joint);
    if (options_.records) note_hook(number);
  }
  return unexpanded_.empty();
}

// An op may save its output. In a pass that records, the gradient of that saved tensor runs through the hooks of the
// output first, as the gradient of the output itself does.
void GraphWalk::note_hook(uint32_t number) {
  const Node& node = *visits_[number].node;
  if (dynamic_cast<const HookNode*>(&node) == nullptr) return;
  const Edge& target = node.next()[0];
  if (target.slot == 0 && target.node->kind() == Node::Kind::kFunction) {
    visits_[index_.find(target.node.get())].hook = number;
  }
}

std::vector<GraphWalk::Reached> GraphWalk::take_reached() {
  std::vector<Reached> result;
  result.reserve(reached_.size());
  for (uint32_t number : reached_) result.push_back({visits_[number].node, std::exchange(visits_[number].fresh, {})});
  reached_.clear();
  return result;
}

void GraphWalk::free_saved() {
  for (Visit& visit : visits_) visit.node->free_saved();
}

}  // namespace distag::autograd
