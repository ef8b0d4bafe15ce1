#include <algorithm>
#include <new>

#include "base/block_pool.h"
#include "base/each_step.h"
#include "session/session_state.h"

namespace distag {
namespace {

// For which a peer may acknowledge nothing more while parts of its messages arrive, behind which its acknowledgements
// wait, or while it tells that parts arrive there: both over a slow link.
constexpr int kMostLeases = 4;

// Empty: it is not.
std::string why_lost(PeerRecord& record, const StreamShared& shared) {
  const Nanos now = shared.loop.now(), lease = shared.config.lease;
  const Nanos owed = record.outgoing.owed_for(now);
  if (owed < 0) return {};
  const bool is_slow = record.hears_at() >= 0 && now - record.hears_at() < lease;
  if (owed >= lease && (!is_slow || owed >= kMostLeases * lease)) {
    return fmt::format("it has acknowledged nothing for {:.2f} s", static_cast<double>(owed) / kSecond);
  }
  if (record.outgoing.kept() <= shared.config.max_kept) return {};
  return fmt::format("{} messages wait for its acknowledgement", record.outgoing.kept());
}

}  // namespace

// ---- acknowledgements: with the next message, else alone after a while or a lot; that of a PING at once ----

void Session::State::note_received(PeerRecord& record, size_t bytes, bool is_ping) {
  record.note_spoken(shared.loop.now());
  record.unacknowledged_bytes += bytes;
  // Nothing is under way that could take it along, and a timer is one more time to wake.
  if (is_ping && record.is_member()) return acknowledge(record);
  if (record.ack_due == kNever) record.ack_due = record.last.heard + kAckDelay;
  if (!record.is_ack_listed) owed_acks.push_back(&record);  // there is room for all
  record.is_ack_listed = true;
  if (ack_timer != 0) return;
  try {
    ack_timer = shared.loop.start_timer(record.ack_due, [this] { on_ack_timer(); });
  } catch (const std::bad_alloc&) {
    // The next message tries again, and a stream that stalls dials again.
  }
}

// A peer that cannot be dialled for want of something here hears that by WELCOME, on the connection that it has
// dialled.
void Session::State::acknowledge(PeerRecord& record) {
  assert_on_loop(shared.loop);
  record.outgoing.send_ack();
  const bool cannot_go = !record.outgoing.is_open() && record.outgoing.lack().is_there(shared.loop.now());
  if (!cannot_go || !record.is_member() || record.connection.empty()) return;
  EachStep each;  // without memory for it the peer asks again
  each([this, &record] {
    wire::Welcome welcome{shared.config.self.incarnation, record.next_number};
    welcome.lack = record.outgoing.lack().error().message();
    reply(record.connection, std::move(welcome));
  });
}

namespace {

// It is being dialled, and may turn out to be one that cannot be for want of something here: WELCOME says it then.
bool is_unsaid(const PeerRecord& record) {
  return record.is_member() && record.owes_ack() && !record.connection.empty() && !record.outgoing.is_open() &&
         !record.outgoing.lack().is_unmet();
}

}  // namespace

void Session::State::on_ack_timer() {
  assert_on_loop(shared.loop);
  ack_timer = 0;
  const Nanos now = shared.loop.now();
  Nanos next = kNever;
  auto is_settled = [this, now, &next](PeerRecord* record) {
    if (record->ack_due <= now) {
      record->ack_due = kNever;
      // Of repetitions too: what acknowledged them first may be lost.
      if (record->is_member()) acknowledge(*record);
      if (is_unsaid(*record)) record->ack_due = now + kAckAgain;
    }
    next = std::min(next, record->ack_due);
    record->is_ack_listed = record->ack_due != kNever;
    return !record->is_ack_listed;
  };
  owed_acks.erase(std::remove_if(owed_acks.begin(), owed_acks.end(), is_settled), owed_acks.end());
  if (next == kNever) return;
  try {
    ack_timer = shared.loop.start_timer(next, [this] { on_ack_timer(); });
  } catch (const std::bad_alloc&) {
    // As above.
  }
}

// ---- leases ----

void Session::State::start_ticking() {
  if (tick_timer != 0) return;
  next_tick = shared.loop.now() + shared.config.lease / 4;
  tick_timer = shared.loop.start_timer(next_tick, [this] { tick(); });
}

void Session::State::tick() {
  assert_on_loop(shared.loop);
  tick_timer = 0;
  const Nanos now = shared.loop.now();
  const bool was_paused = now - next_tick > shared.config.lease / 4;
  start_ticking();
  // Without memory for one of these the next tick is there.
  EachStep each;
  each([this] { pool.trim(); });
  trim_blocks();
  each([this] { bury_those_that_are_over(); });
  keep_words_ready();
  each([this] { settle_late_strangers(); });
  each([this] { self_inbox.drain(); });
  for (size_t i = 0; i < in_order.size(); ++i) {
    each([this, i, now, was_paused] { tick(*in_order[i], now, was_paused); });
  }
}

void Session::State::tick(PeerRecord& record, Nanos now, bool was_paused) {
  record.inbox.drain();
  if (!record.is_member() || record.outgoing.is_idle()) return;
  if (was_paused) return record.outgoing.restart_lease(now);
  if (std::string why = why_lost(record, shared); !why.empty()) {
    end_once_heard(record, [this, &record, why = std::move(why)] {
      lose(record, loss_error(record, shared, Status::kDisconnected, why), wire::RefuseReason::kFenced);
    });
    return;
  }
  const Obstacle obstacle = obstacle_between(record, shared);
  const bool is_long = obstacle.lasts >= shared.config.lease;
  if (shared.config.on_lack && (is_long || (obstacle.holds_back && obstacle.lasts >= shared.config.lease / 4))) {
    shared.post([this, peer = record.peer, why = Error(Status::kOutOfMemory, text_of(obstacle, record.peer)), is_long] {
      shared.config.on_lack(peer, why, is_long);
    });
  }
  if (obstacle.lack == &record.outgoing.lack()) acknowledge(record);
  // Its messages are large or the way is slow: it is told that this worker lives, before there is one to acknowledge.
  if (record.last.part >= 0 && now - record.last.part < shared.config.lease / 4) acknowledge(record);
  record.outgoing.tick(now, record.last.heard, record.hears_at());
}

}  // namespace distag
