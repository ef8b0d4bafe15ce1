#include "session/liveness.h"

#include <algorithm>
#include <utility>

#include "base/each_step.h"

namespace distag {
namespace {

// Leases for which a peer may acknowledge nothing more while its acknowledgements wait behind parts of large messages,
// or while it reports that such parts arrive there, both over a slow link; or while bytes of its handshakes arrive.
constexpr int kMostLeases = 4;
constexpr int kMostLateTicks = 4;
// Ticks from one restart of all leases to the next: four leases where ticks are on time. Late time counts for no peer,
// so this counts ticks and not time.
constexpr int kTicksToRestart = 4 * kMostLeases;

// Empty: the peer is not lost. A late tick judges only what has lasted too long even if some messages are not processed
// yet.
std::string why_lost(PeerRecord& record, const StreamShared& shared, bool judges) {
  const Nanos now = shared.loop.now(), lease = shared.config.lease;
  const OutgoingStream::Owed owed = record.outgoing.owed(now);
  const Nanos shown_at = std::max(record.hears_at(), owed.handshake.heard_at);
  const bool is_slow = shown_at >= 0 && now - shown_at < lease;
  const bool is_waited_for = is_slow || owed.handshake.is_new || !judges;
  if (owed.time >= lease && (!is_waited_for || owed.time >= kMostLeases * lease)) {
    return fmt::format("it has acknowledged nothing for {:.2f} s", static_cast<double>(owed.time) / kSecond);
  }
  if (!judges || record.outgoing.kept() <= shared.config.max_kept) return {};
  return fmt::format("{} messages wait for its acknowledgement", record.outgoing.kept());
}

}  // namespace

void Liveness::start() {
  assert_on_loop(shared_.loop);
  if (timer_ != 0) return;
  next_tick_ = shared_.loop.now() + shared_.config.lease / 4;
  timer_ = shared_.loop.start_timer(next_tick_, [this] { tick(); });
}

void Liveness::open(PeerRecord& record) {
  assert_on_loop(shared_.loop);
  if (!record.outgoing.is_idle() || shared_.config.self.rank < 0) return;
  start();
  record.outgoing.open();
}

void Liveness::close() {
  assert_on_loop(shared_.loop);
  shared_.loop.cancel_timer(std::exchange(timer_, 0));
}

// The next tick is started first, so that no failure in this one ends the ticks. A peer that is added in a tick has its
// turn in the same one.
void Liveness::tick() {
  timer_ = 0;
  const Moment moment = note_tick();
  start();
  keep_house_();
  EachStep each;  // if one fails for lack of memory, the next tick does its work
  const std::vector<PeerRecord*>& peers = peers_.all();
  for (size_t i = 0; i < peers.size(); ++i) {
    each([this, &peers, i, &moment] { tick(*peers[i], moment); });
  }
}

Liveness::Moment Liveness::note_tick() {
  const Nanos now = shared_.loop.now();
  const Nanos late = now - next_tick_;
  const bool is_late = late > shared_.config.lease / 16;
  late_ticks_ = is_late && late_ticks_ < kMostLateTicks ? late_ticks_ + 1 : 0;
  const bool restarts = restart_in_ == 0 && late > shared_.config.lease / 4;
  restart_in_ = restarts ? kTicksToRestart : std::max(restart_in_ - 1, 0);
  return {now, late, late_ticks_ == 0, restarts};
}

// Whether the peer is lost is checked before anything is sent to it; a peer lost just now is not asked to answer.
void Liveness::tick(PeerRecord& record, const Moment& moment) {
  const auto [now, late, judges, restarts] = moment;
  record.inbox.drain();
  if (!record.is_member() || record.outgoing.is_idle()) return;
  if (restarts) return record.outgoing.excuse(now, kNever);
  if (late > shared_.config.lease / 16) record.outgoing.excuse(now, late);
  if (std::string why = why_lost(record, shared_, judges); !why.empty()) {
    return standings_.lose_once_heard(record, Status::kDisconnected, std::move(why), wire::RefuseReason::kFenced);
  }
  const Obstacle obstacle = obstacle_between(record, shared_);
  report_lack(record, obstacle);
  if (obstacle.lack == &record.outgoing.lack()) acks_.send(record);
  // The peer's messages are large or the link is slow: tell the peer that this worker lives before there is a message
  // to acknowledge.
  if (record.last.part >= 0 && now - record.last.part < shared_.config.lease / 4) acks_.send(record);
  record.outgoing.tick(now, record.last.heard, record.hears_at());
}

void Liveness::report_lack(const PeerRecord& record, const Obstacle& obstacle) {
  const bool is_long = obstacle.lasts >= shared_.config.lease;
  const bool is_due = is_long || (obstacle.holds_back && obstacle.lasts >= shared_.config.lease / 4);
  if (!shared_.config.on_lack || !is_due) return;
  shared_.post([this, peer = record.peer, why = Error(Status::kOutOfMemory, text_of(obstacle, record.peer)), is_long] {
    shared_.config.on_lack(peer, why, is_long);
  });
}

}  // namespace distag
