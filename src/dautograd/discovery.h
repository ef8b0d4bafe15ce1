#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "autograd/graph_task.h"
#include "dautograd/dautograd_shared.h"
#include "dautograd/distributed_context.h"

namespace distag {

// The first half of a SMART pass on one worker: which workers the walks ask, and which wait for them. Over for good
// before the pass runs; a later message for it has no effect. On the loop.
//
// A request is a walk that a worker waits for: the initiator itself (its root, the id {0,0}) or the sender of a
// DISCOVER. It is open until all DISCOVERs that it caused are answered, and ends with one answer.
class Discovery {
 public:
  class Owner {
   public:
    virtual ~Owner() = default;
    // The root has ended: the participants that the walks have met; or why the pass must abort.
    virtual void on_planned(const std::set<Incarnation>& participants, bool has_entries) = 0;
    virtual void on_failed_search(const Error& error) = 0;
  };

  // How the pass runs, as DISCOVERs carry it.
  struct PassKind {
    bool retains_graph = false;
    bool creates_graph = false;
  };
  Discovery(DautogradShared& shared, Owner& owner, const Id& context, const Id& pass, PassKind kind)
      : shared_(shared), owner_(owner), context_(context), pass_(pass), kind_(kind) {}

  void open_root() { requests_[Id()]; }
  // Throws Violation for an id that is open.
  void open(const wire::Discover& discover);

  // The walk of a request has reached these: asks the workers that hold their sends, and the other members of the
  // meshes of entries; answers if there are no such workers.
  void ask(const Id& request, const std::vector<autograd::GraphWalk::Reached>& reached,
           const std::vector<std::shared_ptr<autograd::Node>>& entries);
  // Throws Violation for an answer from a worker that was not asked.
  Heard on_discovered(const Peer& from, const wire::Discovered& discovered);
  // Fails the request, if it is open.
  void fail(const Id& request, const Error& error);
  // Fails all open requests. Not called at the initiator, so none is the root.
  void fail_all(const Error& error);

  bool is_open() const { return !requests_.empty(); }
  std::vector<Incarnation> asked() const;  // workers that have not answered

 private:
  struct Request {
    Incarnation asker = 0;  // 0: the root
    size_t open = 0;        // DISCOVERs it caused that are not answered
    std::set<Incarnation> participants;
    bool has_entries = false;
  };
  struct Question {
    Id request;  // for which it is asked
    Incarnation to = 0;
  };

  void end(const Id& request);

  DautogradShared& shared_;
  Owner& owner_;
  const Id context_;
  const Id pass_;
  const PassKind kind_;
  std::unordered_map<Id, Request> requests_;
  std::unordered_map<Id, Question> questions_;  // by the id of the DISCOVER
};

}  // namespace distag
