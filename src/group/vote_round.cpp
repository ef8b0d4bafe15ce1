#include "group/vote_round.h"

#include <algorithm>
#include <utility>

namespace distag {
namespace {

// A peer that a sorted answer does not name has counts of 0.
wire::PeerCount count_of(const wire::ShutdownAnswer& answer, Incarnation peer) {
  const auto found =
      std::lower_bound(answer.counts.begin(), answer.counts.end(), peer,
                       [](const wire::PeerCount& count, Incarnation wanted) { return count.peer < wanted; });
  return found != answer.counts.end() && found->peer == peer ? *found : wire::PeerCount{peer, 0, 0};
}

bool has_lost(const wire::ShutdownAnswer& answer, Incarnation peer) {
  return std::binary_search(answer.lost.begin(), answer.lost.end(), peer);
}

}  // namespace

void sort_answer(wire::ShutdownAnswer& answer) {
  std::sort(answer.counts.begin(), answer.counts.end(),
            [](const wire::PeerCount& one, const wire::PeerCount& other) { return one.peer < other.peer; });
  std::sort(answer.lost.begin(), answer.lost.end());
}

void VoteRound::begin(Incarnation self, wire::ShutdownAnswer own) {
  ++number_;
  is_stale_ = true;
  others_ready_ = 0;
  answers_.clear();
  set_own(self, std::move(own));
}

void VoteRound::set_own(Incarnation self, wire::ShutdownAnswer own) {
  self_ = self;
  answers_[self] = std::move(own);
}

bool VoteRound::take(Incarnation from, const wire::ShutdownAnswer& given) {
  if (given.round != number_ || !answers_.contains(self_)) return false;
  wire::ShutdownAnswer answer = given;
  sort_answer(answer);  // a peer may send it in any order
  if (answer.stopping) stopping_.insert(from);
  wire::ShutdownAnswer& latest = answers_[from];
  if (is_ready(latest)) --others_ready_;
  if (is_ready(answer)) ++others_ready_;
  latest = std::move(answer);
  return true;
}

bool VoteRound::keep() {
  const bool is_first = previous_.empty();
  previous_ = answers_;
  return is_first;
}

// Whether the counts of each pair agree, and have not changed since the round before. A peer that is not named now was
// not named before, as counts only grow.
bool VoteRound::is_balanced() const {
  for (const auto& [one, answer] : answers_) {
    const auto before = previous_.find(one);
    if (before == previous_.end()) return false;
    for (const wire::PeerCount& count : answer.counts) {
      const auto other = answers_.find(count.peer);
      if (other == answers_.end()) continue;
      if (has_lost(answer, other->first) || has_lost(other->second, one)) continue;
      const wire::PeerCount there = count_of(other->second, one);
      if (count.requests_sent != there.requests_received || count.requests_received != there.requests_sent) {
        return false;
      }
      const wire::PeerCount earlier = count_of(before->second, count.peer);
      if (count.requests_sent != earlier.requests_sent || count.requests_received != earlier.requests_received) {
        return false;
      }
    }
  }
  return true;
}

}  // namespace distag
