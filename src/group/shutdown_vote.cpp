#include "group/shutdown_vote.h"

#include <algorithm>
#include <new>
#include <utility>

namespace distag {
namespace {

constexpr Nanos kFirstPace = kMillisecond;
constexpr Nanos kLastPace = 20 * kMillisecond;
constexpr Nanos kAgain = 100 * kMillisecond;  // after a shortage of memory
// For each member that is to be told who is missing: so the leader says that to one of them each millisecond at most.
constexpr Nanos kTellPace = kMillisecond;

bool is_ready(const wire::ShutdownAnswer& answer) { return answer.stopping && answer.idle; }

// As they come from a peer they may be in any order.
void sort(wire::ShutdownAnswer& answer) {
  std::sort(answer.counts.begin(), answer.counts.end(),
            [](const wire::PeerCount& one, const wire::PeerCount& other) { return one.peer < other.peer; });
  std::sort(answer.lost.begin(), answer.lost.end());
}

// Of a sorted answer; it has neither sent to nor heard from a peer that it does not name.
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

ShutdownVote::ShutdownVote(GroupShared& shared, Callbacks callbacks)
    : shared_(shared), callbacks_(std::move(callbacks)) {}

void ShutdownVote::begin() {
  assert_on_loop(shared_.loop);
  if (is_stopping_ || is_over_) return;
  is_stopping_ = true;
  on_members_changed();
}

void ShutdownVote::stop() {
  assert_on_loop(shared_.loop);
  is_over_ = true;
  if (timer_ != 0) shared_.loop.cancel_timer(std::exchange(timer_, 0));
  if (tell_timer_ != 0) shared_.loop.cancel_timer(std::exchange(tell_timer_, 0));
}

void ShutdownVote::on_members_changed() {
  assert_on_loop(shared_.loop);
  if (!is_over_) try_or_tick([this] { answer_early_ask(); });
  if (!is_stopping_ || is_over_) return;
  is_round_stale_ = true;  // until the next one begins
  try_or_tick([this] {
    if (shared_.is_open_world) {
      look_whether_idle();
    } else if (!is_leader()) {
      greet_leader();
      answer_leader();
    } else if (round_ == 0) {
      start_round();
    } else {
      pace(kFirstPace);  // others may go in the same moment
    }
  });
}

Incarnation ShutdownVote::leader() const {
  const Incarnation lowest = shared_.membership.lowest_alive();
  return lowest == 0 ? shared_.self.incarnation : lowest;
}

std::vector<Incarnation> ShutdownVote::others() const {
  std::vector<Incarnation> others = shared_.membership.those(Standing::kMember);
  std::erase(others, shared_.self.incarnation);
  return others;
}

wire::ShutdownAnswer ShutdownVote::own_answer() const {
  wire::ShutdownAnswer answer;
  answer.stopping = is_stopping_;
  answer.idle = callbacks_.is_idle();
  for (const auto& [incarnation, peer] : shared_.peers) {
    if (peer.requests_sent == 0 && peer.requests_received == 0) continue;
    answer.counts.push_back({incarnation, peer.requests_sent, peer.requests_received});
  }
  answer.lost = shared_.membership.those(Standing::kLost);
  sort(answer);
  return answer;
}

// ---- the leader ----

void ShutdownVote::start_round() {
  ++round_;
  is_round_stale_ = true;  // until all are asked
  ready_ = 0;
  answers_.clear();
  answers_[shared_.self.incarnation] = own_answer();
  told_missing_ = missing_to_leader();
  for (const Incarnation peer : others()) send(peer, wire::ShutdownPoll{round_, told_missing_});
  is_round_stale_ = false;
  examine_round();
}

// Without memory for it, it comes again.
void ShutdownVote::on_answer(const Peer& from, const wire::ShutdownAnswer& given) {
  assert_on_loop(shared_.loop);
  if (is_over_ || !is_leader() || given.round != round_ || !answers_.contains(shared_.self.incarnation)) return;
  wire::ShutdownAnswer answer = given;
  sort(answer);
  if (answer.stopping) known_stopping_.insert(from.incarnation);
  wire::ShutdownAnswer& latest = answers_[from.incarnation];
  if (is_ready(latest)) --ready_;
  if (is_ready(answer)) ++ready_;
  latest = std::move(answer);
  try_or_tick([this] {
    tell_missing_soon();
    examine_round();
  });
}

std::vector<Incarnation> ShutdownVote::missing_to_leader() const {
  std::vector<Incarnation> missing = shared_.membership.those(Standing::kLost);
  for (const Incarnation peer : others()) {
    if (!known_stopping_.contains(peer)) missing.push_back(peer);
  }
  return missing;
}

void ShutdownVote::tell_missing_soon() {
  if (tell_timer_ != 0) return;
  Loop& loop = shared_.loop;
  const Nanos pause = kTellPace * static_cast<Nanos>(answers_.size());
  tell_timer_ = loop.start_timer(deadline_after(loop.now(), pause), [this] {
    tell_timer_ = 0;
    try_or_tick([this] {
      if (is_leader()) tell_missing();
    });
  });
}

// Those that wait want to name the missing ones in their report.
void ShutdownVote::tell_missing() {
  std::vector<Incarnation> missing = missing_to_leader();
  if (missing == told_missing_) return;
  for (const auto& [incarnation, answer] : answers_) {
    if (incarnation != shared_.self.incarnation && answer.stopping) {
      send(incarnation, wire::ShutdownPoll{round_, missing});
    }
  }
  told_missing_ = std::move(missing);
}

// All others that live have answered that they are ready: no dead one is among those, as a round is begun anew when one
// goes. The next answer wakes us.
bool ShutdownVote::is_round_complete() const {
  return !is_round_stale_ && ready_ + 1 == shared_.membership.alive_count();
}

void ShutdownVote::examine_round() {
  wire::ShutdownAnswer& own = answers_[shared_.self.incarnation];
  if (!is_ready(own)) {
    own = own_answer();
    if (!is_ready(own)) {
      pace(kFirstPace);
      return;
    }
  }
  if (!is_round_complete()) return;
  if (ready_ == 0 || is_balanced()) {
    finish();
    return;
  }
  const bool is_first = previous_.empty();
  previous_ = answers_;
  if (is_first) {
    start_round();
  } else {
    pace(kFirstPace);
  }
}

// Whether this round and the one before it together show that nothing is on its way. Counts only grow: what is not
// named now was not named before.
bool ShutdownVote::is_balanced() const {
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

void ShutdownVote::finish() {
  for (const Incarnation peer : others()) send(peer, wire::ShutdownVerdict{round_});
  be_quiet();
}

// As a task of its own: should it find no memory half way, the worker ends by that failure.
void ShutdownVote::be_quiet() {
  stop();
  shared_.loop.post_or_drop(quiet_place_, [this] { callbacks_.on_quiet(); });
}

// ---- a member ----

bool ShutdownVote::on_ask(const Peer& from, const wire::ShutdownPoll& ask) {
  assert_on_loop(shared_.loop);
  if (is_over_) return true;
  if (from.incarnation != leader()) {
    early_asks_[from.incarnation] = ask;
    return false;
  }
  early_asks_.erase(from.incarnation);
  answer(from.incarnation, ask);
  return true;
}

// It has heard of the end of a lower rank before this worker did.
void ShutdownVote::answer_early_ask() {
  std::erase_if(early_asks_, [this](const auto& ask) { return shared_.session->gone(ask.first) != nullptr; });
  const auto early = early_asks_.find(leader());
  if (early == early_asks_.end()) return;
  answer(early->first, early->second);
  early_asks_.erase(early);
}

void ShutdownVote::answer(Incarnation from, const wire::ShutdownPoll& ask) {
  missing_ = ask.missing;
  if (from == leader_ && ask.round == asked_round_) return;
  wire::ShutdownAnswer given = own_answer();
  given.round = ask.round;
  const bool is_final = is_ready(given);
  const bool is_stopping = given.stopping;
  send(from, std::move(given));
  // It is asked again when there was no memory for the answer.
  leader_ = from;
  asked_round_ = ask.round;
  is_answer_final_ = is_final;
  told_stopping_ = is_stopping;
  pace_ = 0;
  try_or_tick([this] {
    if (is_stopping_ && !is_answer_final_) pace(kFirstPace);
  });
}

// Makes a stream to the leader, by which we hear of its end even if it never begins a round.
void ShutdownVote::greet_leader() {
  const Incarnation now = leader();
  if (now == greeted_) return;
  wire::ShutdownAnswer greeting;
  greeting.stopping = true;
  send(now, std::move(greeting));
  greeted_ = now;
}

// Another answer only where it helps the leader: when we want to stop, and when we are idle as well.
void ShutdownVote::answer_leader() {
  if (leader_ == 0 || is_answer_final_ || !is_stopping_) return;
  wire::ShutdownAnswer answer = own_answer();
  if (is_ready(answer) || !told_stopping_) {
    answer.round = asked_round_;
    const bool is_final = is_ready(answer);
    send(leader_, std::move(answer));
    is_answer_final_ = is_final;
    told_stopping_ = true;
  }
  if (!is_answer_final_) pace(kFirstPace);
}

void ShutdownVote::on_verdict(const Peer& from, const wire::ShutdownVerdict& verdict) {
  assert_on_loop(shared_.loop);
  if (is_over_ || !is_stopping_ || from.incarnation != leader_ || verdict.round != asked_round_) return;
  be_quiet();
}

std::vector<std::string> ShutdownVote::missing() const {
  assert_on_loop(shared_.loop);
  if (shared_.is_open_world) return {};
  std::vector<Incarnation> missing = missing_;
  if (is_leader()) {
    missing = missing_to_leader();
  } else if (leader_ == 0) {
    missing = {leader()};  // it has not begun
  }
  std::vector<std::string> names;
  for (const MemberRecord& member : shared_.membership.all()) {
    const bool is_missing = std::find(missing.begin(), missing.end(), member.peer.incarnation) != missing.end();
    if (is_missing || member.state == Standing::kLost) names.push_back(member.peer.name);
  }
  return names;
}

// ---- of an open group ----

// It waits for no other member.
void ShutdownVote::look_whether_idle() {
  if (!callbacks_.is_idle()) return pace(kFirstPace);
  be_quiet();
}

// ---- all ----

template <typename Step>
void ShutdownVote::try_or_tick(Step&& step) {
  try {
    step();
  } catch (const std::bad_alloc&) {
    tick_again();
  }
}

void ShutdownVote::tick_again() noexcept {
  if (std::exchange(again_->is_set, true)) return;
  Loop& loop = shared_.loop;
  loop.start_timer(again_->place, deadline_after(loop.now(), kAgain),
                   [this, again = again_, alive = std::weak_ptr<char>(alive_)] {
                     again->is_set = false;
                     if (!alive.expired()) tick();
                   });
}

void ShutdownVote::pace(Nanos first) {
  if (timer_ != 0) return;
  pace_ = pace_ == 0 ? first : std::min(2 * pace_, kLastPace);
  Loop& loop = shared_.loop;
  timer_ = loop.start_timer(deadline_after(loop.now(), pace_), [this] {
    timer_ = 0;
    tick();
  });
}

void ShutdownVote::tick() {
  assert_on_loop(shared_.loop);
  if (!is_over_) try_or_tick([this] { go_on(); });
}

void ShutdownVote::go_on() {
  if (shared_.is_open_world) return look_whether_idle();
  answer_early_ask();
  if (!is_leader()) {
    greet_leader();
    answer_leader();
    return;
  }
  if (is_round_stale_ || is_ready(answers_[shared_.self.incarnation])) {
    start_round();  // members have changed, or the counts of the last one did not match
  } else {
    examine_round();
  }
}

void ShutdownVote::send(Incarnation to, wire::Body body) {
  try {
    shared_.session->send(to, std::move(body));
  } catch (const Error&) {
    // It is lost, of which we are told otherwise.
  }
}

}  // namespace distag
