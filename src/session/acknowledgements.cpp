#include "session/acknowledgements.h"

#include <algorithm>
#include <new>
#include <utility>

#include "base/each_step.h"

namespace distag {
namespace {

// True if a later WELCOME has to carry the acknowledgement.
bool is_unsaid(const PeerRecord& record) { return record.owes_ack() && record.hears_welcome_alone(); }

}  // namespace

void Acknowledgements::make_room(size_t peers) {
  assert_on_loop(shared_.loop);
  owed_.reserve(peers);
}

void Acknowledgements::forget(PeerRecord& record) {
  assert_on_loop(shared_.loop);
  if (std::exchange(record.ack.is_listed, false)) std::erase(owed_, &record);
}

void Acknowledgements::close() {
  assert_on_loop(shared_.loop);
  shared_.loop.cancel_timer(std::exchange(timer_, 0));
  owed_.clear();
}

void Acknowledgements::note_received(PeerRecord& record, size_t bytes, bool is_ping) {
  assert_on_loop(shared_.loop);
  record.note_spoken(shared_.loop.now());
  record.ack.bytes += bytes;
  // No message is under way that could carry it, and a timer would cost one more wake-up.
  if (is_ping && record.is_member()) {
    send(record);
    if (!is_unsaid(record)) return;
    record.ack.due = record.ack.welcomed + kAckAgain;
  }
  if (record.ack.due == kNever) record.ack.due = record.last.heard + kAckDelay;
  list(record);
}

void Acknowledgements::list(PeerRecord& record) {
  if (!record.ack.is_listed) owed_.push_back(&record);  // there is room for all
  record.ack.is_listed = true;
  if (timer_ == 0 || record.ack.due < timer_due_) start_timer(record.ack.due);
}

// If there is no memory for the timer, the next message tries again, and a stalled stream dials again.
void Acknowledgements::start_timer(Nanos due) noexcept {
  EachStep each;
  each([this, due] {
    const Loop::TimerId timer = shared_.loop.start_timer(due, [this] { on_timer(); });
    shared_.loop.cancel_timer(std::exchange(timer_, timer));
    timer_due_ = due;
  });
}

void Acknowledgements::send(PeerRecord& record, bool is_last) {
  assert_on_loop(shared_.loop);
  record.outgoing.send_ack();
  if (!record.hears_welcome_alone()) return;
  const Nanos now = shared_.loop.now();
  const bool is_short = record.outgoing.lack().is_there(now);
  if (!is_short && !is_last && record.ack.welcomed >= 0 && now - record.ack.welcomed < kAckAgain) return;
  record.ack.welcomed = now;
  EachStep each;  // without memory for WELCOME the peer asks again
  each([this, &record, is_short] {
    wire::Welcome welcome{shared_.config.self.incarnation, record.next_number};
    if (is_short) welcome.lack = record.outgoing.lack().error().message();
    if (replies_.send(record.connection, std::move(welcome))) record.note_acknowledged(record.next_number - 1);
  });
}

// Records that are not due stay in the list, for the timer that is started last.
void Acknowledgements::on_timer() {
  timer_ = 0;
  const Nanos now = shared_.loop.now();
  Nanos next = kNever;
  auto is_settled = [this, now, &next](PeerRecord* record) {
    if (record->ack.due <= now) {
      record->ack.due = kNever;
      // Repetitions are acknowledged too: their first acknowledgement may be lost.
      if (record->is_member()) send(*record);
      if (is_unsaid(*record)) record->ack.due = record->ack.welcomed + kAckAgain;
    }
    next = std::min(next, record->ack.due);
    record->ack.is_listed = record->ack.due != kNever;
    return !record->ack.is_listed;
  };
  owed_.erase(std::remove_if(owed_.begin(), owed_.end(), is_settled), owed_.end());
  if (next != kNever) start_timer(next);
}

}  // namespace distag
