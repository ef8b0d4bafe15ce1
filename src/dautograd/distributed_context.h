#pragma once

#include <map>
#include <memory>
#include <set>
#include <unordered_map>

#include "base/ids.h"
#include "base/task_queue.h"
#include "dautograd/context_record.h"
#include "dautograd/joint_members.h"
#include "dautograd/lineage.h"
#include "dautograd/nodes.h"

namespace distag {

class PassInitiator;
class LocalPass;

// A context as the loop of one worker sees it. On the loop only.
struct DistributedContext {
  struct Pass {
    std::shared_ptr<LocalPass> part;
    std::shared_ptr<PassInitiator> initiator;  // only where the pass was begun
  };

  std::shared_ptr<ContextRecord> record;
  bool is_own = false;  // this worker made it

  std::unordered_map<Id, std::shared_ptr<SendNode>> sends;
  size_t recv_count = 0;
  std::map<Id, Pass> passes;
  Lineage lineage{sends};

  // The workers that hold the context, without this one: at the creator all that it knows of; elsewhere those that
  // joined below calls of this worker, which answers report upwards.
  std::set<Incarnation> holders;
  std::unordered_map<Incarnation, std::set<Incarnation>> told;  // by peer, elsewhere than at the creator

  // At the creator: the context is over when the handle is gone and both counts are 0.
  bool is_handle_gone = false;
  size_t open_calls = 0;
  size_t open_passes = 0;
  TaskPlace again;  // for the next attempt to tell the holders, where there was no memory
  bool waits_to_release = false;

  // For a joint context. At the creator: members that have yet to release it. Elsewhere: whether the release was
  // reported to the creator.
  JointMembers members;
  bool has_told_release = false;

  const Id& id() const { return record->id(); }
  void note_counts() { record->set_counts(sends.size(), recv_count); }
};

}  // namespace distag
