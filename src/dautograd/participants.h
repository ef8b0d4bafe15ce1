#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.h"

namespace distag {

// The workers of one pass as its initiator knows them, and the state that each has reported. Touched by the initiator
// alone.
//
// Each worker that may wait for the verdict is in here: it takes part, or has only joined. The numbers of one that is
// done are final, so the pass is complete when all are done and as many GRADs were received as sent: each DONE names
// the receivers of its GRADs, and no participant is left out.
class Participants {
 public:
  struct State {
    bool is_done = false;
    bool is_idle = false;  // in the latest answer
    uint64_t round = 0;    // round of the latest answer
    uint64_t grads_sent = 0;
    uint64_t grads_received = 0;
    std::vector<std::string> unreached;
  };
  struct Sums {
    bool are_done = true;
    uint64_t sent = 0;
    uint64_t received = 0;
  };

  void add(Incarnation worker) { states_.try_emplace(worker); }
  bool contains(Incarnation worker) const { return states_.contains(worker); }
  State& of(Incarnation worker) { return states_[worker]; }
  const std::map<Incarnation, State>& all() const { return states_; }
  std::map<Incarnation, State>& all() { return states_; }
  // Notes the report of a participant that is done.
  void note_done(Incarnation worker, uint64_t sent, uint64_t received);
  Sums sums() const;

  // Adds a worker that needs the verdict if the pass is aborted, and need not take part.
  void join(Incarnation worker) { joined_.insert(worker); }
  void join(std::set<Incarnation> workers) { joined_.merge(workers); }
  const std::set<Incarnation>& joined() const { return joined_; }
  bool has_joined(Incarnation worker) const { return joined_.contains(worker); }
  // Forgets a worker that has its verdict.
  void forget(Incarnation worker);

 private:
  std::map<Incarnation, State> states_;
  std::set<Incarnation> joined_;
};

}  // namespace distag
