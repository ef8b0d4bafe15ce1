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

}  // namespace

// ---- acknowledgements: with the next message, else alone after a while or a lot; that of a PING at once ----

void Session::State::note_received(PeerRecord& record, size_t bytes, bool is_ping) {
  record.heard_at = shared.loop.now();
  record.unacknowledged_bytes += bytes;
  // Nothing is under way that could take it along, and a timer is one more time to wake.
  if (is_ping && record.is_member()) return record.outgoing.send_ack();
  if (record.ack_due == kNever) record.ack_due = record.heard_at + kAckDelay;
  if (!record.is_ack_listed) owed_acks.push_back(&record);  // there is room for all
  record.is_ack_listed = true;
  if (ack_timer != 0) return;
  try {
    ack_timer = shared.loop.start_timer(record.ack_due, [this] { on_ack_timer(); });
  } catch (const std::bad_alloc&) {
    // The next message tries again, and a stream that stalls dials again.
  }
}

void Session::State::on_ack_timer() {
  assert_on_loop(shared.loop);
  ack_timer = 0;
  const Nanos now = shared.loop.now();
  Nanos next = kNever;
  auto is_settled = [now, &next](PeerRecord* record) {
    if (record->ack_due <= now) {
      record->ack_due = kNever;
      // Of repetitions too: what acknowledged them first may be lost.
      if (record->is_member()) record->outgoing.send_ack();
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
  if (std::string why = why_lost(record, now); !why.empty()) {
    end_once_heard(record, [this, &record, why = std::move(why)] {
      lose(record, loss_error(record, Status::kDisconnected, why), wire::RefuseReason::kFenced);
    });
    return;
  }
  // Its messages are large or the way is slow: it is told that this worker lives, before there is one to acknowledge.
  if (record.part_at >= 0 && now - record.part_at < shared.config.lease / 4) record.outgoing.send_ack();
  record.outgoing.tick(now, record.heard_at, record.hears_at());
}

// Empty: it is not.
std::string Session::State::why_lost(const PeerRecord& record, Nanos now) const {
  const Nanos since = record.outgoing.owed_since();
  if (since == kNever) return {};
  const Nanos lease = shared.config.lease, owed = now - since;
  if (const Error* lack = record.outgoing.lack()) {
    // The peer may be well: it is waited for as long as for a slow one, where something is kept for it.
    if (record.outgoing.kept() == 0 || owed < kMostLeases * lease) return {};
    return fmt::format("it could not be reached for {:.2f} s, for want of something here: {}",
                       static_cast<double>(owed) / kSecond, lack->message());
  }
  const bool is_slow = record.hears_at() >= 0 && now - record.hears_at() < lease;
  if (owed >= lease && (!is_slow || owed >= kMostLeases * lease)) {
    return fmt::format("it has acknowledged nothing for {:.2f} s", static_cast<double>(owed) / kSecond);
  }
  if (record.outgoing.kept() <= shared.config.max_kept) return {};
  return fmt::format("{} messages wait for its acknowledgement", record.outgoing.kept());
}

}  // namespace distag
