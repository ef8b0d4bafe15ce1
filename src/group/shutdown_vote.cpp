#include "group/shutdown_vote.h"

#include <algorithm>
#include <utility>

namespace distag {
namespace {

constexpr Nanos kFirstPace = kMillisecond;
// The leader reports missing members to at most one waiting member per such time.
constexpr Nanos kTellPace = kMillisecond;

}  // namespace

ShutdownVote::ShutdownVote(GroupShared& shared, Callbacks callbacks)
    : shared_(shared), callbacks_(std::move(callbacks)), ticks_(shared.loop, [this] { tick(); }) {}

void ShutdownVote::begin() {
  assert_on_loop(shared_.loop);
  if (is_stopping_ || is_over_) return;
  is_stopping_ = true;
  on_members_changed();
}

void ShutdownVote::stop() {
  assert_on_loop(shared_.loop);
  is_over_ = true;
  ticks_.stop();
  if (tell_timer_ != 0) shared_.loop.cancel_timer(std::exchange(tell_timer_, 0));
}

void ShutdownVote::on_members_changed() {
  assert_on_loop(shared_.loop);
  if (!is_over_) ticks_.attempt([this] { answer_early_ask(); });
  if (!is_stopping_ || is_over_) return;
  round_.mark_stale();  // until the next round begins
  ticks_.attempt([this] {
    if (shared_.is_open_world) {
      look_whether_idle();
    } else if (!is_leader()) {
      greet_leader();
      answer_leader();
    } else if (round_.number() == 0) {
      start_round();
    } else {
      ticks_.pace(kFirstPace);  // others may go at the same moment
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
  sort_answer(answer);
  return answer;
}

// ---- the leader ----

void ShutdownVote::start_round() {
  round_.mark_stale();  // until all are asked
  round_.begin(shared_.self.incarnation, own_answer());
  told_missing_ = missing_to_leader();
  for (const Incarnation peer : others()) send(peer, wire::ShutdownPoll{round_.number(), told_missing_});
  round_.mark_asked();
  examine_round();
}

// If there is no memory, the answer comes again.
void ShutdownVote::on_answer(const Peer& from, const wire::ShutdownAnswer& answer) {
  assert_on_loop(shared_.loop);
  if (is_over_ || !is_leader() || !round_.take(from.incarnation, answer)) return;
  ticks_.attempt([this] {
    tell_missing_soon();
    examine_round();
  });
}

std::vector<Incarnation> ShutdownVote::missing_to_leader() const {
  std::vector<Incarnation> missing = shared_.membership.those(Standing::kLost);
  for (const Incarnation peer : others()) {
    if (!round_.wants_to_stop(peer)) missing.push_back(peer);
  }
  return missing;
}

void ShutdownVote::tell_missing_soon() {
  if (tell_timer_ != 0) return;
  Loop& loop = shared_.loop;
  const Nanos pause = kTellPace * static_cast<Nanos>(round_.size());
  tell_timer_ = loop.start_timer(deadline_after(loop.now(), pause), [this] {
    tell_timer_ = 0;
    ticks_.attempt([this] {
      if (is_leader()) tell_missing();
    });
  });
}

// Waiting members name the missing ones in their reports.
void ShutdownVote::tell_missing() {
  std::vector<Incarnation> missing = missing_to_leader();
  if (missing == told_missing_) return;
  round_.each_that_waits([this, &missing](Incarnation waiting) {
    send(waiting, wire::ShutdownPoll{round_.number(), missing});
  });
  told_missing_ = std::move(missing);
}

// If the round is incomplete, the next answer continues it.
void ShutdownVote::examine_round() {
  if (!round_.is_own_ready()) {
    round_.set_own(shared_.self.incarnation, own_answer());
    if (!round_.is_own_ready()) {
      ticks_.pace(kFirstPace);
      return;
    }
  }
  if (!round_.is_complete(shared_.membership.alive_count())) return;
  if (round_.is_quiet()) {
    finish();
  } else if (round_.keep()) {
    start_round();
  } else {
    ticks_.pace(kFirstPace);
  }
}

void ShutdownVote::finish() {
  for (const Incarnation peer : others()) send(peer, wire::ShutdownVerdict{round_.number()});
  be_quiet();
}

// A task of its own: if it finds no memory half way, the worker ends with that failure.
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

// The sender learned of the end of a lower rank before this worker did.
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
  // After the send: if there was no memory for the answer, the leader asks again.
  leader_ = from;
  asked_round_ = ask.round;
  is_answer_final_ = is_final;
  told_stopping_ = is_stopping;
  ticks_.begin_anew();
  ticks_.attempt([this] {
    if (is_stopping_ && !is_answer_final_) ticks_.pace(kFirstPace);
  });
}

// Makes a stream to the leader, which reports its end even if it never begins a round.
void ShutdownVote::greet_leader() {
  const Incarnation now = leader();
  if (now == greeted_) return;
  wire::ShutdownAnswer greeting;
  greeting.stopping = true;
  send(now, std::move(greeting));
  greeted_ = now;
}

// Sends another answer only if it helps the leader: when this worker wants to stop, and when it is idle as well.
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
  if (!is_answer_final_) ticks_.pace(kFirstPace);
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
    missing = {leader()};  // the leader has not begun
  }
  std::vector<std::string> names;
  for (const MemberRecord& member : shared_.membership.all()) {
    const bool is_missing = std::find(missing.begin(), missing.end(), member.peer.incarnation) != missing.end();
    if (is_missing || member.state == Standing::kLost) names.push_back(member.peer.name);
  }
  return names;
}

// ---- an open group ----

// Waits for no other member.
void ShutdownVote::look_whether_idle() {
  if (!callbacks_.is_idle()) return ticks_.pace(kFirstPace);
  be_quiet();
}

// ---- all members ----

void ShutdownVote::tick() {
  assert_on_loop(shared_.loop);
  if (!is_over_) ticks_.attempt([this] { go_on(); });
}

void ShutdownVote::go_on() {
  if (shared_.is_open_world) return look_whether_idle();
  answer_early_ask();
  if (!is_leader()) {
    greet_leader();
    answer_leader();
    return;
  }
  if (round_.is_stale() || round_.is_own_ready()) {
    start_round();  // members have changed, or the counts of the last round did not match
  } else {
    examine_round();
  }
}

void ShutdownVote::send(Incarnation to, wire::Body body) {
  try {
    shared_.session->send(to, std::move(body));
  } catch (const Error&) {
    // The member is lost; on_members_changed() follows.
  }
}

}  // namespace distag
