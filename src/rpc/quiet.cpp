#include "rpc/quiet.h"

#include <algorithm>
#include <utility>

namespace distag {
namespace {

constexpr Nanos kFirstPace = kMillisecond;
constexpr Nanos kLastPace = 20 * kMillisecond;

bool is_ready(const wire::QuietAnswer& answer) { return answer.stopping && answer.idle; }

uint64_t sent_to(const wire::QuietAnswer& answer, Incarnation peer) {
  for (const wire::PeerCount& count : answer.counts) {
    if (count.peer == peer) return count.requests_sent;
  }
  return 0;
}

uint64_t received_from(const wire::QuietAnswer& answer, Incarnation peer) {
  for (const wire::PeerCount& count : answer.counts) {
    if (count.peer == peer) return count.requests_received;
  }
  return 0;
}

bool has_lost(const wire::QuietAnswer& answer, Incarnation peer) {
  return std::find(answer.lost.begin(), answer.lost.end(), peer) != answer.lost.end();
}

}  // namespace

Quiet::Quiet(RpcShared& shared, Callbacks callbacks) : shared_(shared), callbacks_(std::move(callbacks)) {}

void Quiet::begin() {
  if (is_stopping_ || is_over_) return;
  is_stopping_ = true;
  on_members_changed();
}

void Quiet::stop() {
  is_over_ = true;
  if (timer_ != 0) shared_.environment.loop.cancel_timer(std::exchange(timer_, 0));
}

void Quiet::on_members_changed() {
  if (!is_stopping_ || is_over_) return;
  if (shared_.is_open_world) {
    look_whether_idle();
  } else if (is_leader()) {
    start_round();
  } else {
    greet_leader();
    answer_leader();
  }
}

Incarnation Quiet::leader() const {
  for (const MemberRecord& member : shared_.membership.all()) {
    if (member.state == Standing::kMember) return member.peer.incarnation;
  }
  return shared_.self.incarnation;
}

std::vector<Peer> Quiet::others() const {
  std::vector<Peer> others;
  for (const MemberRecord& member : shared_.membership.all()) {
    if (member.state == Standing::kMember && member.peer.incarnation != shared_.self.incarnation) {
      others.push_back(member.peer);
    }
  }
  return others;
}

wire::QuietAnswer Quiet::own_answer() const {
  wire::QuietAnswer answer;
  answer.stopping = is_stopping_;
  answer.idle = callbacks_.is_idle();
  for (const auto& [incarnation, peer] : shared_.peers) {
    answer.counts.push_back({incarnation, peer.requests_sent, peer.requests_received});
  }
  for (const MemberRecord& member : shared_.membership.all()) {
    if (member.state == Standing::kLost) answer.lost.push_back(member.peer.incarnation);
  }
  return answer;
}

// ---- the leader ----

void Quiet::start_round() {
  ++round_;
  answers_.clear();
  answers_[shared_.self.incarnation] = own_answer();
  told_missing_ = missing_to_leader();
  for (const Peer& peer : others()) send(peer.incarnation, wire::QuietAsk{round_, told_missing_});
  examine_round();
}

void Quiet::on_answer(const Peer& from, const wire::QuietAnswer& answer) {
  if (is_over_ || answer.round != round_ || !answers_.contains(shared_.self.incarnation)) return;
  answers_[from.incarnation] = answer;
  if (answer.stopping) known_stopping_.insert(from.incarnation);
  tell_missing();
  examine_round();
}

std::vector<Incarnation> Quiet::missing_to_leader() const {
  std::vector<Incarnation> missing;
  for (const MemberRecord& member : shared_.membership.all()) {
    const Incarnation incarnation = member.peer.incarnation;
    const bool is_awaited = member.state == Standing::kMember && incarnation != shared_.self.incarnation &&
                            !known_stopping_.contains(incarnation);
    if (member.state == Standing::kLost || is_awaited) missing.push_back(incarnation);
  }
  return missing;
}

// Those that wait want to name in their report for whom.
void Quiet::tell_missing() {
  std::vector<Incarnation> missing = missing_to_leader();
  if (missing == told_missing_) return;
  told_missing_ = std::move(missing);
  for (const auto& [incarnation, answer] : answers_) {
    if (incarnation != shared_.self.incarnation && answer.stopping) {
      send(incarnation, wire::QuietAsk{round_, told_missing_});
    }
  }
}

void Quiet::examine_round() {
  wire::QuietAnswer& own = answers_[shared_.self.incarnation];
  if (!is_ready(own)) {
    own = own_answer();
    if (!is_ready(own)) {
      pace(kFirstPace);
      return;
    }
  }
  for (const Peer& peer : others()) {
    const auto answer = answers_.find(peer.incarnation);
    if (answer == answers_.end() || !is_ready(answer->second)) return;  // its next answer wakes us
  }
  if (others().empty() || is_balanced()) {
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

// Whether this round and the one before it together show that nothing is on its way.
bool Quiet::is_balanced() const {
  for (const auto& [one, answer] : answers_) {
    const auto before = previous_.find(one);
    if (before == previous_.end()) return false;
    for (const auto& [other, answer_of_other] : answers_) {
      if (has_lost(answer, other) || has_lost(answer_of_other, one)) continue;
      const uint64_t sent = sent_to(answer, other);
      if (sent != received_from(answer_of_other, one)) return false;
      if (sent != sent_to(before->second, other) ||
          received_from(answer, other) != received_from(before->second, other)) {
        return false;
      }
    }
  }
  return true;
}

void Quiet::finish() {
  for (const Peer& peer : others()) send(peer.incarnation, wire::QuietVerdict{round_});
  stop();
  callbacks_.on_quiet();
}

// ---- a member ----

void Quiet::on_ask(const Peer& from, const wire::QuietAsk& ask) {
  if (is_over_) return;
  missing_ = ask.missing;
  if (from.incarnation == leader_ && ask.round == asked_round_) return;
  leader_ = from.incarnation;
  asked_round_ = ask.round;
  is_answer_final_ = false;
  told_stopping_ = false;
  pace_ = 0;
  wire::QuietAnswer answer = own_answer();
  answer.round = asked_round_;
  is_answer_final_ = is_ready(answer);
  told_stopping_ = answer.stopping;
  send(leader_, std::move(answer));
  if (is_stopping_ && !is_answer_final_) pace(kFirstPace);
}

// Makes a stream to the leader, by which we hear of its end even if it never begins a round.
void Quiet::greet_leader() {
  const Incarnation now = leader();
  if (now == greeted_) return;
  greeted_ = now;
  wire::QuietAnswer greeting;
  greeting.stopping = true;
  send(now, std::move(greeting));
}

// Another answer only where it helps the leader: when we want to stop, and when we are idle as well.
void Quiet::answer_leader() {
  if (leader_ == 0 || is_answer_final_ || !is_stopping_) return;
  wire::QuietAnswer answer = own_answer();
  if (is_ready(answer) || !told_stopping_) {
    answer.round = asked_round_;
    is_answer_final_ = is_ready(answer);
    told_stopping_ = true;
    send(leader_, std::move(answer));
  }
  if (!is_answer_final_) pace(kFirstPace);
}

void Quiet::on_verdict(const Peer& from, const wire::QuietVerdict& verdict) {
  if (is_over_ || !is_stopping_ || from.incarnation != leader_ || verdict.round != asked_round_) return;
  stop();
  callbacks_.on_quiet();
}

std::vector<std::string> Quiet::missing() const {
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

// Nobody else is waited for.
void Quiet::look_whether_idle() {
  if (!callbacks_.is_idle()) return pace(kFirstPace);
  stop();
  callbacks_.on_quiet();
}

// ---- all ----

void Quiet::pace(Nanos first) {
  if (timer_ != 0) return;
  pace_ = pace_ == 0 ? first : std::min(2 * pace_, kLastPace);
  Loop& loop = shared_.environment.loop;
  timer_ = loop.start_timer(deadline_after(loop.now(), pace_), [this] {
    timer_ = 0;
    tick();
  });
}

void Quiet::tick() {
  if (is_over_) return;
  if (shared_.is_open_world) return look_whether_idle();
  if (!is_leader()) {
    answer_leader();
    return;
  }
  wire::QuietAnswer& own = answers_[shared_.self.incarnation];
  if (is_ready(own)) {
    start_round();  // the counts of the last one did not match
  } else {
    examine_round();
  }
}

void Quiet::send(Incarnation to, wire::Body body) {
  try {
    shared_.session->send(to, std::move(body));
  } catch (const Error&) {
    // It is lost, of which we are told otherwise.
  }
}

}  // namespace distag
