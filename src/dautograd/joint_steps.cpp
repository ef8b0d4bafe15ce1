#include "dautograd/joint_steps.h"

#include "base/each_step.h"
#include "base/violation.h"

namespace distag {

using autograd::GraphTask;

std::shared_ptr<autograd::Node> JointSteps::find(const Peer& from, const wire::EntryName& name) const {
  assert_on_loop(shared_.environment.loop);
  const auto& find_entry = shared_.environment.find_entry;
  return find_entry ? find_entry(from, {name.mesh, name.call, name.line}) : nullptr;
}

std::vector<std::shared_ptr<autograd::Node>> JointSteps::add(std::vector<std::shared_ptr<autograd::Node>> entries) {
  assert_on_loop(shared_.environment.loop);
  std::erase_if(entries, [this](const auto& entry) { return !entries_.insert(entry).second; });
  for (const auto& entry : entries) {
    for (const Incarnation other : entry->as_entry()->others()) reach_.need(other);
  }
  return entries;
}

void JointSteps::begin(const std::shared_ptr<const autograd::JointSaved>& saved) {
  assert_on_loop(shared_.environment.loop);
  stage_ = Stage::kBegun;
  std::map<Id, std::vector<std::shared_ptr<autograd::Node>>> by_mesh;
  for (const auto& entry : entries_) by_mesh[entry->as_entry()->entry().mesh].push_back(entry);
  for (auto& [mesh, entries] : by_mesh) {
    const autograd::EntryNode& first = *entries.front()->as_entry();
    const auto run = first.begin(info_.pass, info_.retain_graph, std::move(entries), saved);
    runs_.emplace(mesh, run);
    graph_.run_joint(run);
  }
  enter(std::exchange(entered_, {}));
  for (const auto& [entry, member] : std::exchange(entered_elsewhere_, {})) {
    runs_.at(entry->as_entry()->entry().mesh)->enter_elsewhere(*entry, member);
  }
}

void JointSteps::enter(std::vector<GraphTask::Entering> entering) {
  assert_on_loop(shared_.environment.loop);
  for (GraphTask::Entering& item : entering) {
    if (stage_ != Stage::kBegun) {
      entered_.push_back(std::move(item));
      continue;
    }
    const autograd::EntryName name = item.entry->as_entry()->entry();
    const auto told = runs_.at(name.mesh)->enter(*item.entry, std::move(item.gradient));
    if (told) shared_.tell(*told, wire::Entered{context_, info_.pass, {name.mesh, name.call, name.line}});
  }
}

// ENTERED may arrive before GO: the member that sent it may have received its own GO earlier.
void JointSteps::enter_elsewhere(const Peer& from, const wire::EntryName& name) {
  assert_on_loop(shared_.environment.loop);
  const auto node = find(from, name);
  if (!entries_.contains(node)) {
    violation("worker \"{}\" sent ENTERED for call {}, to_local, which the pass has not reached", from.name, name.call);
  }
  if (stage_ == Stage::kBegun) {
    runs_.at(name.mesh)->enter_elsewhere(*node, from.incarnation);
  } else {
    entered_elsewhere_.emplace(node, from.incarnation);
  }
}

void JointSteps::end() noexcept {
  assert_on_loop(shared_.environment.loop);
  for (const auto& [mesh, run] : runs_) run->cancel();
  EachStep each;
  for (const auto& entry : entries_) {
    if (!runs_.contains(entry->as_entry()->entry().mesh)) {
      each([&] { entry->as_entry()->forget(info_.pass); });
    }
  }
}

}  // namespace distag
