#include "session/acknowledgements.h"

#include <algorithm>
#include <new>
#include <utility>

#include "base/each_step.h"

namespace distag {
namespace {

// It is being dialled, and may turn out to be one that cannot be for want of something here: WELCOME says it then.
bool is_unsaid(const PeerRecord& record) {
  return record.is_member() && record.owes_ack() && !record.connection.empty() && !record.outgoing.is_open() &&
         !record.outgoing.lack().is_unmet();
}

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
  // Nothing is under way that could take it along, and a timer is one more time to wake.
  if (is_ping && record.is_member()) return send(record);
  if (record.ack.due == kNever) record.ack.due = record.last.heard + kAckDelay;
  if (!record.ack.is_listed) owed_.push_back(&record);  // there is room for all
  record.ack.is_listed = true;
  if (timer_ == 0) start_timer(record.ack.due);
}

// Without memory for the timer the next message tries again, and a stream that stalls dials again.
void Acknowledgements::start_timer(Nanos due) noexcept {
  EachStep each;
  each([this, due] { timer_ = shared_.loop.start_timer(due, [this] { on_timer(); }); });
}

void Acknowledgements::send(PeerRecord& record) {
  assert_on_loop(shared_.loop);
  record.outgoing.send_ack();
  const bool cannot_go = !record.outgoing.is_open() && record.outgoing.lack().is_there(shared_.loop.now());
  if (!cannot_go || !record.is_member() || record.connection.empty()) return;
  EachStep each;  // without memory for it the peer asks again
  each([this, &record] {
    wire::Welcome welcome{shared_.config.self.incarnation, record.next_number};
    welcome.lack = record.outgoing.lack().error().message();
    replies_.send(record.connection, std::move(welcome));
  });
}

// Those that are not due stay in the list, for the timer that is started last.
void Acknowledgements::on_timer() {
  timer_ = 0;
  const Nanos now = shared_.loop.now();
  Nanos next = kNever;
  auto is_settled = [this, now, &next](PeerRecord* record) {
    if (record->ack.due <= now) {
      record->ack.due = kNever;
      // Of repetitions too: what acknowledged them first may be lost.
      if (record->is_member()) send(*record);
      if (is_unsaid(*record)) record->ack.due = now + kAckAgain;
    }
    next = std::min(next, record->ack.due);
    record->ack.is_listed = record->ack.due != kNever;
    return !record->ack.is_listed;
  };
  owed_.erase(std::remove_if(owed_.begin(), owed_.end(), is_settled), owed_.end());
  if (next != kNever) start_timer(next);
}

}  // namespace distag
