#include "spmd/joint_pass.h"

#include <algorithm>
#include <map>
#include <queue>

#include "autograd/history.h"
#include "autograd/hooks.h"
#include "base/error.h"
#include "base/host_code.h"
#include "base/lead.h"
#include "ops/op.h"

namespace distag::spmd {
namespace {

using autograd::Edge;
using autograd::HookNode;
using autograd::LeafNode;
using autograd::Node;
using autograd::NodeIndex;

const Sharding* sharding_of_leaf(const Node& node) {
  return node.kind() == Node::Kind::kLeaf ? Sharding::of(static_cast<const LeafNode&>(node).tensor()) : nullptr;
}

const ShardedNode* as_sharded(const Node& node) { return dynamic_cast<const ShardedNode*>(&node); }

Tensor sum_of(const Tensors& arrivals) {
  Tensor sum;
  for (const Tensor& arrival : arrivals) sum = ops::accumulate(std::move(sum), arrival);
  return sum;
}

// Runs the code as host code, and waits on this thread, which is one of distag's.
template <typename Code>
Tensor await_host_code(const Code& code) {
  const auto result = Future<Tensor>::make();
  run_host_code([owed = Owed<Tensor>(result), &code]() mutable {
    const auto future = owed.take();
    try {
      future->complete(code());
    } catch (...) {
      future->fail(current_error());
    }
  });
  try {
    return await(*result);
  } catch (...) {
    // The code may have begun, and uses variables of this frame.
    if (!result->is_done()) lead_or_park(*result, kForever);
    throw;
  }
}

}  // namespace

// ---- the walk ----

void JointPass::walk(const std::vector<Edge>& roots) {
  for (const Edge& edge : roots) reach(edge);
  walk_on();
}

void JointPass::walk_from(const std::vector<std::shared_ptr<Node>>& entries) {
  for (const auto& entry : entries) visit(entry);
  walk_on();
}

void JointPass::walk_on() {
  while (!unexpanded_.empty()) {
    const std::shared_ptr<Node> node = visits_[unexpanded_.back()].node;
    unexpanded_.pop_back();
    for (const Edge& edge : node->next()) reach(edge);
  }
  plan();
}

std::vector<EntryName> JointPass::entries() const {
  std::vector<EntryName> names;
  for (const Visit& visit : visits_) {
    const ShardedNode* node = as_sharded(*visit.node);
    if (node != nullptr && node->is_entry()) names.push_back(node->entry_name());
  }
  std::sort(names.begin(), names.end());
  return names;
}

void JointPass::reach_entries(const std::vector<EntryName>& names) {
  for (const EntryName& name : names) {
    const std::shared_ptr<Node> node = call_.line().program->find_entry(name);
    if (node == nullptr) {
      fail(Status::kInvalidState,
           "backward: nothing is left here of call {}, to_local, through which other members reach the graph: keep the "
           "tensor that it gave, or what was computed from it",
           name.call);
    }
    visit(node);
  }
  walk_on();
}

JointPass::Key JointPass::key_of_leaf(const Sharding& leaf, int rank) {
  return {true, leaf.name().call, leaf.name().line, leaf.name().output, rank};
}

uint32_t JointPass::visit(const std::shared_ptr<Node>& node) {
  uint32_t number = index_.find(node.get());
  if (number != NodeIndex::kNone) return number;
  Visit fresh;
  fresh.node = node;
  reaches_others_ = reaches_others_ || node->kind() == Node::Kind::kRecv;
  if (node->kind() == Node::Kind::kFunction) {
    fresh.saved = outside_ == nullptr ? node->saved() : outside_->saved_of(*node);
    if (fresh.saved == nullptr) {
      fail(Status::kGraphFreed,
           "the graph at \"{}\" was freed by an earlier backward pass; use retain_graph there to run another",
           node->name());
    }
  }
  if (const ShardedNode* sharded = as_sharded(*node)) {
    if (sharded->line().program != call_.line().program) {
      fail(Status::kInvalidArgument, "backward: a root depends on a tensor of another mesh, \"{}\"",
           sharded->line().program->shape().name());
    }
    fresh.key = Key{false, sharded->call(), sharded->line().name, 0, 1};
  } else if (const Sharding* leaf = sharding_of_leaf(*node)) {
    fresh.key = key_of_leaf(*leaf, 0);
  } else if (dynamic_cast<const HookNode*>(node.get()) != nullptr) {
    const Edge& edge = node->next().at(0);
    const ShardedNode* made_by = as_sharded(*edge.node);
    if (made_by != nullptr && !made_by->is_entry()) {
      fresh.key = Key{false, made_by->call(), made_by->line().name, edge.slot, 2};
    }
    if (const Sharding* hooked = sharding_of_leaf(*edge.node)) fresh.key = key_of_leaf(*hooked, 2);
  }
  fresh.arrivals.resize(node->slots());
  fresh.places.resize(node->slots());
  number = static_cast<uint32_t>(visits_.size());
  visits_.push_back(std::move(fresh));
  index_.add(node.get(), number);
  unexpanded_.push_back(number);
  return number;
}

// Edges to nodes of this worker alone, and to entries, which such nodes lead to as well.
bool JointPass::leads_out(const Edge& edge) const {
  return edge.node == nullptr || (outside_ != nullptr && (!edge.node->is_joint() || edge.node->as_entry() != nullptr));
}

void JointPass::reach(const Edge& edge) {
  if (!leads_out(edge)) ++visits_[visit(edge.node)].waiting;
}

// An entry gets gradients from the graphs of this worker and of others.
bool JointPass::awaits_outside(const Visit& visit) const {
  return outside_ != nullptr && visit.node->as_entry() != nullptr;
}

// A node becomes ready once all nodes that lead gradients to it have run. Of the ready nodes, those of this worker
// alone run first, and those that wait for others last.
void JointPass::go_through(const Choose& choose, const std::function<void(uint32_t number)>& step) const {
  struct Ready {
    Key key;
    uint32_t turn;  // among all that became ready
    uint32_t number;
  };
  const auto is_later = [](const Ready& a, const Ready& b) {
    return a.key < b.key || (!(b.key < a.key) && a.turn > b.turn);
  };
  uint32_t turns = 0;
  std::priority_queue<Ready, std::vector<Ready>, decltype(is_later)> joint(is_later);
  std::vector<uint32_t> alone;
  std::map<std::string, std::map<uint64_t, uint32_t>> entries;  // by line and call
  std::vector<uint32_t> open(visits_.size(), 0);                // gradients from other nodes that have yet to come
  for (const Visit& visit : visits_) {
    for (const Edge& edge : visit.node->next()) {
      if (!leads_out(edge)) ++open[index_.find(edge.node.get())];
    }
  }
  auto add = [&](uint32_t number) {
    const Visit& visit = visits_[number];
    if (awaits_outside(visit)) {
      entries[visit.key->line][visit.key->call] = number;
    } else if (visit.key) {
      joint.push({*visit.key, turns++, number});
    } else {
      alone.push_back(number);
    }
  };
  for (uint32_t number = 0; number < visits_.size(); ++number) {
    if (open[number] == 0) add(number);
  }
  while (!alone.empty() || !joint.empty() || !entries.empty()) {
    uint32_t number = 0;
    if (!alone.empty()) {
      number = alone.back();
      alone.pop_back();
    } else if (!joint.empty()) {
      number = joint.top().number;
      joint.pop();
    } else {
      std::vector<uint32_t> last;  // one for each line
      for (const auto& [line, calls] : entries) last.push_back(calls.rbegin()->second);
      number = last[last.size() == 1 ? 0 : choose(last)];
      const auto line = entries.find(visits_[number].key->line);
      line->second.erase(visits_[number].key->call);
      if (line->second.empty()) entries.erase(line);
    }
    for (const Edge& edge : visits_[number].node->next()) {
      if (leads_out(edge)) continue;
      const uint32_t next = index_.find(edge.node.get());
      if (--open[next] == 0) add(next);
    }
    step(number);
  }
}

// The order if no line had to wait for another. Gradients are added up in this order.
void JointPass::plan() {
  Fingerprint fingerprint;
  uint32_t place = 0;
  joint_steps_ = 0;
  const auto note = [&](uint32_t number) {
    Visit& visit = visits_[number];
    visit.place = ++place;
    if (!visit.key) return;
    ++joint_steps_;
    const Key& key = *visit.key;
    fingerprint.add(key.call).add(key.line).add(key.output).add(static_cast<uint64_t>(key.rank));
    // Gradients that reach an entry come from the graph of this worker alone, so their number may differ.
    const ShardedNode* node = as_sharded(*visit.node);
    if (node == nullptr || !node->is_entry()) fingerprint.add(visit.waiting);
  };
  go_through([](const std::vector<uint32_t>&) { return size_t{0}; }, note);
  plan_hash_ = fingerprint.value();
}

size_t JointPass::choose_line(const std::vector<uint32_t>& entries) {
  std::vector<const Node*> nodes;
  for (const uint32_t number : entries) nodes.push_back(visits_[number].node.get());
  Tensor own = Tensor::empty(Dtype::kInt64, {1});
  own.mutable_data_as<int64_t>()[0] = static_cast<int64_t>(outside_->await_first(nodes));
  const int64_t first = call_.gather_words(own).data_as<int64_t>()[0];
  if (first < 0 || first >= static_cast<int64_t>(nodes.size())) {
    fail(Status::kProtocol, "the first member of the mesh goes on with line {} of {}", first, nodes.size());
  }
  return static_cast<size_t>(first);
}

// ---- gradients ----

void JointPass::run(const std::vector<Edge>& roots, const Tensors& seeds) {
  for (size_t i = 0; i < roots.size(); ++i) deliver(roots[i], seeds[i], 0);
  const auto step = [this](uint32_t number) {
    if (!failure_ && check_stop_) {
      try {
        check_stop_();
      } catch (const Error& error) {
        failure_ = error;
      }
    }
    if (outside_ != nullptr) outside_->check();
    run_step(number);
  };
  go_through([this](const std::vector<uint32_t>& entries) { return choose_line(entries); }, step);
  gradients_.finish();
  if (auto difference = claims_.compare(call_, failure_.has_value())) failure_ = std::move(difference);
}

void JointPass::deliver(const Edge& edge, Tensor gradient, uint32_t place) {
  if (edge.node == nullptr || !gradient) return;
  Visit& visit = visits_[index_.find(edge.node.get())];
  std::vector<uint32_t>& places = visit.places[edge.slot];
  const auto at = std::upper_bound(places.begin(), places.end(), place);
  Tensors& arrivals = visit.arrivals[edge.slot];
  arrivals.insert(arrivals.begin() + (at - places.begin()), std::move(gradient));
  places.insert(at, place);
}

void JointPass::pass_on(const Node& node, Tensors gradients) {
  std::vector<Edge> edges;
  Tensors leaving;
  for (size_t i = 0; i < gradients.size(); ++i) {
    const Edge& edge = node.next()[i];
    if (!leads_out(edge)) {
      deliver(edge, std::move(gradients[i]), place_);
    } else if (edge.node != nullptr) {
      edges.push_back(edge);
      leaving.push_back(std::move(gradients[i]));
    }
  }
  if (!edges.empty()) outside_->leave(std::move(edges), std::move(leaving));
}

void JointPass::run_step(uint32_t number) {
  Visit& step = visits_[number];
  place_ = step.place;
  if (auto* sharded = dynamic_cast<ShardedNode*>(step.node.get())) {
    run_sharded(step, *sharded);
  } else if (step.node->kind() == Node::Kind::kLeaf) {
    run_leaf(step);
  } else if (step.key) {
    run_hook(step);
  } else {
    run_alone(step);
  }
  step.arrivals.clear();
}

void JointPass::run_sharded(Visit& step, ShardedNode& node) {
  Tensors gradients(step.arrivals.size());
  bool is_reached = node.is_entry();
  for (size_t slot = 0; slot < gradients.size(); ++slot) {
    if (node.is_entry()) {
      gradients[slot] = outside_ != nullptr ? outside_->await_entry(node) : sum_of(step.arrivals[slot]);
    } else if (!step.arrivals[slot].empty()) {
      gradients[slot] = meet_at({step.node, static_cast<uint32_t>(slot)}, step.arrivals[slot]);
      is_reached = true;
    }
  }
  if (!is_reached) return pass_on(node, Tensors(node.next().size()));
  step.arrivals.clear();
  if (node.is_entry()) claims_.note(node, gradients[0]);
  try {
    pass_on(node, node.run(*step.saved, std::move(gradients), call_));
  } catch (...) {
    throw current_error().add_context(fmt::format("backward of \"{}\"", node.name()));
  }
  step.saved.reset();
}

// The sum of the gradients for the target of an edge, as they are wanted there.
Tensor JointPass::meet_at(const Edge& target, const Tensors& arrivals) {
  if (const ShardedNode* node = as_sharded(*target.node)) {
    const ShardedNode::Output& output = node->output(target.slot);
    return meet(call_, output.shape, output.wanted, output.wanted, arrivals, output.as_it_comes);
  }
  const Tensor& leaf = static_cast<const LeafNode&>(*target.node).tensor();
  const layout::Spec spec = Sharding::of(leaf)->lying().spec.dual();
  return meet(call_, leaf.shape(), spec, spec, arrivals, false);
}

void JointPass::run_alone(Visit& step) {
  Tensors gradients;
  bool is_reached = false;
  for (const Tensors& arrivals : step.arrivals) {
    gradients.push_back(sum_of(arrivals));
    is_reached = is_reached || gradients.back();
  }
  if (!is_reached || failure_) return;
  try {
    pass_on(*step.node, step.node->backward(*step.saved, std::move(gradients)));
  } catch (...) {
    failure_ = current_error().add_context(fmt::format("backward of \"{}\"", step.node->name()));
  }
  step.saved.reset();
}

// Hooks of a sharded tensor get the whole tensor's gradient, sharded; they may call ops of the line.
void JointPass::run_hook(Visit& step) {
  if (step.arrivals[0].empty()) return;
  const Edge& target = step.node->next()[0];
  Tensor gradient = meet_at(target, step.arrivals[0]);
  try {
    const auto call_hook = [this, &step, &gradient] {
      const CallOnLine::Pause pause(call_);
      return step.node->backward(*step.saved, {gradient}).at(0);
    };
    const Tensor replaced = outside_ == nullptr ? call_hook() : await_host_code(call_hook);
    const Sharding* sharding = Sharding::of(replaced);
    const bool fits =
        sharding != nullptr && &sharding->program() == call_.line().program.get() &&
        places_alike(sharding->program().shape(), sharding->lying().spec, Sharding::of(gradient)->lying().spec);
    if (!fits) {
      fail(Status::kInvalidArgument, "gave {} as the gradient of a sharded tensor, which is sharded alike",
           describe(replaced));
    }
    gradient = replaced;
  } catch (...) {
    // The hook runs also after a failure of this member alone: it calls ops on the line, and the others do too.
    if (!failure_) failure_ = current_error().add_context(fmt::format("backward of \"{}\"", step.node->name()));
  }
  deliver(target, std::move(gradient), place_);
}

void JointPass::run_leaf(Visit& step) {
  const Tensors& arrivals = step.arrivals[0];
  if (arrivals.empty()) return;
  const Tensor& leaf = static_cast<const LeafNode&>(*step.node).tensor();
  if (step.key) return gradients_.add_sharded(leaf, arrivals);
  gradients_.add(leaf, sum_of(arrivals));
}

void JointPass::free_saved() {
  for (Visit& visit : visits_) visit.node->free_saved();
}

}  // namespace distag::spmd
