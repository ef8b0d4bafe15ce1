#include "transport/socket/socket_turns.h"

namespace distag {

SocketTurns::SocketTurns(FdLoop& loop) : loop_(loop) {
  idle_check_ = loop_.add_idle_check([this] { return run(); });
}

SocketTurns::~SocketTurns() { loop_.remove_idle_check(idle_check_); }

void SocketTurns::add(const std::shared_ptr<SocketWork>& work) {
  assert_on_loop(loop_);
  if (work->is_due_) return;
  due_.push_back(work);
  work->is_due_ = true;
}

bool SocketTurns::run() {
  assert_on_loop(loop_);
  const auto self = shared_from_this();  // the last connection may go in its turn
  for (size_t left = due_.size(); left > 0; --left) {
    // If take_turn() throws, the work stays in the list, for the next turn.
    if (const auto work = due_.front().lock()) {
      work->is_due_ = false;
      if (work->take_turn()) add(work);
    }
    due_.pop_front();
  }
  return !due_.empty();
}

}  // namespace distag
