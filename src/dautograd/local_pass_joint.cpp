// The part of a pass that has steps which all members of a mesh make together.
#include <utility>

#include "base/each_step.h"
#include "base/violation.h"
#include "dautograd/local_pass.h"

namespace distag {

using autograd::GraphTask;

Heard LocalPass::on_go() {
  assert_on_loop(shared_.environment.loop);
  if (reported_ == Report::kFailed || may_begin_joint_) return Heard::kStale;
  if (!end_discovery()) {
    fail_part(shared_.sign(Error(Status::kProtocol, "the pass was run before its discovery had ended here")));
    return Heard::kHandled;
  }
  may_begin_joint_ = true;
  graph_->work(std::nullopt, [](GraphTask& task) { task.begin_joint(); });
  return Heard::kHandled;
}

// It may arrive before GO: the member that sent it may have received its own GO earlier.
Heard LocalPass::on_entered(const Peer& from, const wire::EntryName& entry) {
  assert_on_loop(shared_.environment.loop);
  if (reported_ == Report::kFailed || is_searching()) return Heard::kStale;
  const auto node = find_entry(from, entry);
  if (!entries_.contains(node)) {
    violation("worker \"{}\" sent ENTERED for call {}, to_local, which the pass has not reached", from.name,
              entry.call);
  }
  if (has_begun_joint_) {
    joint_runs_.at(entry.mesh)->enter_elsewhere(*node, from.incarnation);
  } else {
    entered_elsewhere_.emplace(node, from.incarnation);
  }
  return Heard::kHandled;
}

void LocalPass::begin_joint(const std::shared_ptr<const autograd::JointSaved>& saved) {
  has_begun_joint_ = true;
  std::map<Id, std::vector<std::shared_ptr<autograd::Node>>> by_mesh;
  for (const auto& entry : entries_) by_mesh[entry->as_entry()->entry().mesh].push_back(entry);
  for (auto& [mesh, entries] : by_mesh) {
    const autograd::EntryNode& first = *entries.front()->as_entry();
    const auto run = first.begin(info_.pass, info_.retain_graph, std::move(entries), saved);
    joint_runs_.emplace(mesh, run);
    graph_->run_joint(run);
  }
  enter(std::exchange(entered_, {}));
  for (const auto& [entry, member] : std::exchange(entered_elsewhere_, {})) {
    joint_runs_.at(entry->as_entry()->entry().mesh)->enter_elsewhere(*entry, member);
  }
}

void LocalPass::enter(std::vector<GraphTask::Entering> entering) {
  for (GraphTask::Entering& item : entering) {
    if (!has_begun_joint_) {
      entered_.push_back(std::move(item));
      continue;
    }
    const autograd::EntryName name = item.entry->as_entry()->entry();
    const auto told = joint_runs_.at(name.mesh)->enter(*item.entry, std::move(item.gradient));
    if (told) shared_.tell(*told, wire::Entered{context_->id(), info_.pass, {name.mesh, name.call, name.line}});
  }
}

void LocalPass::end_joint() noexcept {
  for (const auto& [mesh, run] : joint_runs_) run->cancel();
  EachStep each;
  for (const auto& entry : entries_) {
    if (!joint_runs_.contains(entry->as_entry()->entry().mesh)) {
      each([&] { entry->as_entry()->forget(info_.pass); });
    }
  }
}

}  // namespace distag
