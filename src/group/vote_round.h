#pragma once

#include <cstdint>
#include <map>
#include <set>

#include "session/session.h"
#include "wire/message.h"

namespace distag {

// Whether a member wants to stop and has no work under way.
inline bool is_ready(const wire::ShutdownAnswer& answer) { return answer.stopping && answer.idle; }

// Sorts counts and losses by incarnation, so that answers can be compared.
void sort_answer(wire::ShutdownAnswer& answer);

// The answers that the leader of a vote gets in each round, and the conclusions from them. Counts only grow. So two
// rounds with equal counts, in which each pair has received what it sent, prove that no request was on its way between
// them. A round is stale from a change of members until all are asked anew. The owner is on the loop.
class VoteRound {
 public:
  uint64_t number() const { return number_; }  // 0: no round has begun
  bool is_stale() const { return is_stale_; }
  void mark_stale() { is_stale_ = true; }

  // All living members have to be asked now; the round is stale until mark_asked().
  void begin(Incarnation self, wire::ShutdownAnswer own);
  void mark_asked() { is_stale_ = false; }
  // Returns false for an answer to another round, or to none.
  bool take(Incarnation from, const wire::ShutdownAnswer& answer);
  void set_own(Incarnation self, wire::ShutdownAnswer own);
  bool is_own_ready() const {
    const auto own = answers_.find(self_);
    return own != answers_.end() && is_ready(own->second);
  }

  // All other living members have answered that they are ready. No dead member counts, as a round is begun anew when a
  // member goes.
  bool is_complete(size_t alive) const { return !is_stale_ && others_ready_ + 1 == alive; }
  // True if this round and the one before prove that no request is on its way; also if there is no other member.
  bool is_quiet() const { return others_ready_ == 0 || is_balanced(); }
  // Makes a complete round the previous one. Returns true if there was no previous round.
  bool keep();

  bool wants_to_stop(Incarnation member) const { return stopping_.contains(member); }  // in any round
  size_t size() const { return answers_.size(); }
  // Visits the members that wait for the end, except this worker.
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
  std::map<Incarnation, wire::ShutdownAnswer> answers_;   // latest answers in this round, including this worker's
  std::map<Incarnation, wire::ShutdownAnswer> previous_;  // the same of the round before, if all were stopping and idle
  size_t others_ready_ = 0;
  std::set<Incarnation> stopping_;
};

}  // namespace distag
