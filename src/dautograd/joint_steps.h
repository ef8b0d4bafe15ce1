#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "dautograd/dautograd_shared.h"
#include "dautograd/pass_graph.h"
#include "dautograd/pass_info.h"
#include "dautograd/pass_reach.h"

namespace distag {

// The steps of one pass on one worker that all members of a mesh make together, behind entries that are the same on all
// of them. On the loop.
//
//   searching -> searched   note_searched(): all workers have searched, so no entry follows
//   searched  -> begun      begin(), once the graph has gone that far
//
// A gradient of an entry that arrives before the steps have begun, here or on another member, waits in this object;
// later ones go to the run of their mesh at once. An entry ends exactly once: by the run of its mesh, or forgotten by
// end().
class JointSteps {
 public:
  JointSteps(DautogradShared& shared, PassGraph& graph, PassReach& reach, const Id& context, const PassInfo& info)
      : shared_(shared), graph_(graph), reach_(reach), context_(context), info_(info) {}

  // The entry of that name that this worker has; nullptr: it is gone. Throws Violation.
  std::shared_ptr<autograd::Node> find(const Peer& from, const wire::EntryName& name) const;
  // Adds entries that were reached, or named by other members. Returns the new ones: the other members have yet to
  // hear of them.
  std::vector<std::shared_ptr<autograd::Node>> add(std::vector<std::shared_ptr<autograd::Node>> entries);
  bool is_empty() const { return entries_.empty(); }
  // The part is not done before they have begun.
  bool waits_to_begin() const { return !entries_.empty() && stage_ != Stage::kBegun; }
  bool waits_for_others() const { return !entries_.empty() && stage_ == Stage::kSearching; }
  bool are_running() const { return !runs_.empty(); }

  bool is_searched() const { return stage_ != Stage::kSearching; }
  void note_searched() {
    if (stage_ == Stage::kSearching) stage_ = Stage::kSearched;
  }
  void begin(const std::shared_ptr<const autograd::JointSaved>& saved);
  // Gradients of entries have arrived, here or on the member that sent this. Throws Violation.
  void enter(std::vector<autograd::GraphTask::Entering> entering);
  void enter_elsewhere(const Peer& from, const wire::EntryName& name);
  void end() noexcept;

 private:
  enum class Stage { kSearching, kSearched, kBegun };

  DautogradShared& shared_;
  PassGraph& graph_;
  PassReach& reach_;
  const Id context_;
  const PassInfo info_;
  Stage stage_ = Stage::kSearching;
  std::set<std::shared_ptr<autograd::Node>> entries_;
  std::map<Id, std::shared_ptr<autograd::JointRun>> runs_;  // by mesh
  // Entered before the steps have begun.
  std::vector<autograd::GraphTask::Entering> entered_;
  std::set<std::pair<std::shared_ptr<autograd::Node>, Incarnation>> entered_elsewhere_;
};

}  // namespace distag
