#include "session/farewell.h"

#include <algorithm>
#include <utility>

namespace distag {
namespace {

// Stays true: nothing is sent once the farewell has begun.
bool has_no_more(const PeerRecord* record) { return !record->is_member() || record->outgoing.is_drained(); }

}  // namespace

void Farewell::begin(Nanos deadline, Task done) {
  assert_on_loop(shared_.loop);
  for (PeerRecord* record : std::vector<PeerRecord*>(peers_.all())) {
    if (!record->is_member() || record->outgoing.is_idle()) continue;
    record->outgoing.leave();
  }
  // From here on nothing new is sent, and no event of a peer is reported.
  has_begun_ = true;
  done_ = std::make_shared<Done>();
  done_->task = std::move(done);
  timer_ = shared_.loop.start_timer(deadline, [this] {
    timer_ = 0;
    tell();
  });
  on_progress();
}

void Farewell::on_progress() {
  assert_on_loop(shared_.loop);
  if (done_ == nullptr || !self_.is_drained()) return;
  const std::vector<PeerRecord*>& peers = peers_.all();
  while (settled_ < peers.size() && has_no_more(peers[settled_])) ++settled_;
  if (settled_ < peers.size()) return;
  shared_.loop.cancel_timer(std::exchange(timer_, 0));
  tell();
}

// Posts `done` as a task of its own, in which the session may be destroyed.
void Farewell::tell() noexcept {
  if (done_ == nullptr) return;
  TaskPlace& place = done_->place;
  shared_.loop.post_or_drop(place, [told = std::exchange(done_, nullptr)] { told->task(); });
}

void Farewell::close() {
  assert_on_loop(shared_.loop);
  shared_.loop.cancel_timer(std::exchange(timer_, 0));
}

bool Farewell::is_drained() const {
  assert_on_loop(shared_.loop);
  return self_.is_drained() && std::all_of(peers_.all().begin(), peers_.all().end(), has_no_more);
}

}  // namespace distag
