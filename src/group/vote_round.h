#pragma once

#include <cstdint>
#include <map>
#include <set>

#include "session/session.h"
#include "wire/message.h"

namespace distag {

// Whether a member wants to stop and has nothing under way.
inline bool is_ready(const wire::ShutdownAnswer& answer) { return answer.stopping && answer.idle; }

// Counts and losses by incarnation, as they are compared.
void sort_answer(wire::ShutdownAnswer& answer);

// The answers that the leader of a vote gets, round by round, and what they show. Counts only grow, so two rounds with
// equal counts in which each pair has got what it sent prove that nothing was on its way between them. A round is stale
// from the moment at which members change, until all are asked anew. What owns it is on the loop.
class VoteRound {
 public:
  uint64_t number() const { return number_; }  // 0: none has begun
  bool is_stale() const { return is_stale_; }
  void mark_stale() { is_stale_ = true; }

  // All that live are to be asked now; the round is stale until mark_asked().
  void begin(Incarnation self, wire::ShutdownAnswer own);
  void mark_asked() { is_stale_ = false; }
  // False: it is of another round, or of none.
  bool take(Incarnation from, const wire::ShutdownAnswer& answer);
  void set_own(Incarnation self, wire::ShutdownAnswer own);
  bool is_own_ready() const {
    const auto own = answers_.find(self_);
    return own != answers_.end() && is_ready(own->second);
  }

  // All others that live have answered that they are ready: no dead one is among those, as a round is begun anew when
  // one goes.
  bool is_complete(size_t alive) const { return !is_stale_ && others_ready_ + 1 == alive; }
  // This round and the one before together show that nothing is on its way; no other member, nothing to be on its way.
  bool is_quiet() const { return others_ready_ == 0 || is_balanced(); }
  // A complete round becomes the one before. True: it is the first that does.
  bool keep();

  bool wants_to_stop(Incarnation member) const { return stopping_.contains(member); }  // said in any round
  size_t size() const { return answers_.size(); }
  // Those that wait for the end, but this worker.
  template <typename Tell>
  void each_that_waits(Tell&& tell) const {
    for (const auto& [incarnation, answer] : answers_) {
      if (incarnation != self_ && answer.stopping) tell(incarnation);
    }
  }

 private:
  bool is_balanced() const;

  uint64_t number_ = 0;
  bool is_stale_ = false;
  Incarnation self_ = 0;
  std::map<Incarnation, wire::ShutdownAnswer> answers_;   // of this round, the latest of each, its own included
  std::map<Incarnation, wire::ShutdownAnswer> previous_;  // of the round before, if all were stopping and idle in it
  size_t others_ready_ = 0;
  std::set<Incarnation> stopping_;
};

}  // namespace distag
