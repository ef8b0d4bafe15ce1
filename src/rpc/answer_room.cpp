#include "rpc/answer_room.h"

#include "rpc/incoming_call.h"
#include "rpc/rpc_shared.h"

namespace distag {
namespace {

// Calls that go on, and calls that are over and only skipped, in one turn of the loop.
constexpr int kBegunPerTurn = 16;
constexpr int kAnswersPerTurn = 64;

}  // namespace

// Either keeps() sees the room that is given back, or the thread that gives it back sees the waiting call.
bool AnswerRoom::keeps(const std::shared_ptr<IncomingCall>& call) {
  if (!is_full()) return false;
  MutexLock lock(mutex_);
  if (is_closed_) return false;
  waiting_.push_back(call);
  ++waiting_count_;
  if (is_full()) return true;
  waiting_.pop_back();
  --waiting_count_;
  return false;
}

std::list<std::shared_ptr<IncomingCall>> AnswerRoom::close() {
  MutexLock lock(mutex_);
  is_closed_ = true;
  waiting_count_ = 0;
  return std::exchange(waiting_, {});
}

std::shared_ptr<IncomingCall> AnswerRoom::take_next() {
  MutexLock lock(mutex_);
  if (waiting_.empty()) return nullptr;
  std::shared_ptr<IncomingCall> next = std::move(waiting_.front());
  waiting_.pop_front();
  --waiting_count_;
  return next;
}

void AnswerRoom::let_in_soon() noexcept {
  if (is_full() || is_posted_.exchange(true)) return;
  const std::shared_ptr<RpcShared> shared = shared_.lock();
  const bool is_taken = shared != nullptr && shared->gate.post(place_, [self = shared_from_this(), shared] {
    self->let_in(*shared->group);
  });
  if (!is_taken) is_posted_ = false;
}

// Each call that begins lets the next one begin, until the room is full; then the next acknowledgement does.
void AnswerRoom::let_in(const GroupShared& group) {
  is_posted_ = false;
  int begun = 0;
  for (int i = 0; i < kAnswersPerTurn && begun < kBegunPerTurn && !is_full(); ++i) {
    const std::shared_ptr<IncomingCall> next = take_next();
    if (next == nullptr) return;
    try {
      group.check_present(next->peer()->incarnation);  // the room is free as well once the caller is lost
      if (next->go_on()) ++begun;
    } catch (...) {
      answer_failure(*next, false);
    }
  }
  if (begun == 0) note_passed();
}

}  // namespace distag
