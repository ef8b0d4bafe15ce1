#include "dautograd/participants.h"

namespace distag {

void Participants::note_done(Incarnation worker, uint64_t sent, uint64_t received) {
  State& state = states_[worker];
  state.is_done = true;
  state.grads_sent = sent;
  state.grads_received = received;
}

Participants::Sums Participants::sums() const {
  Sums sums;
  for (const auto& [worker, state] : states_) {
    sums.are_done = sums.are_done && state.is_done;
    sums.sent += state.grads_sent;
    sums.received += state.grads_received;
  }
  return sums;
}

void Participants::forget(Incarnation worker) {
  states_.erase(worker);
  joined_.erase(worker);
}

}  // namespace distag
