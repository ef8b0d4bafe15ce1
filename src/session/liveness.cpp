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
  each([this] { standings.bury_those_that_are_over(); });
  replies.keep_words_ready();
  each([this] { settle_late_strangers(); });
  each([this] { self.drain(); });
  for (size_t i = 0; i < peers.all().size(); ++i) {
    each([this, i, now, was_paused] { tick(*peers.all()[i], now, was_paused); });
  }
}

void Session::State::tick(PeerRecord& record, Nanos now, bool was_paused) {
  record.inbox.drain();
  if (!record.is_member() || record.outgoing.is_idle()) return;
  if (was_paused) return record.outgoing.restart_lease(now);
  if (std::string why = why_lost(record, shared); !why.empty()) {
    return standings.lose_once_heard(record, Status::kDisconnected, std::move(why), wire::RefuseReason::kFenced);
  }
  const Obstacle obstacle = obstacle_between(record, shared);
  const bool is_long = obstacle.lasts >= shared.config.lease;
  if (shared.config.on_lack && (is_long || (obstacle.holds_back && obstacle.lasts >= shared.config.lease / 4))) {
    shared.post([this, peer = record.peer, why = Error(Status::kOutOfMemory, text_of(obstacle, record.peer)), is_long] {
      shared.config.on_lack(peer, why, is_long);
    });
  }
  if (obstacle.lack == &record.outgoing.lack()) acks.send(record);
  // Its messages are large or the way is slow: it is told that this worker lives, before there is one to acknowledge.
  if (record.last.part >= 0 && now - record.last.part < shared.config.lease / 4) acks.send(record);
  record.outgoing.tick(now, record.last.heard, record.hears_at());
}

}  // namespace distag
