#include "session/inbox.h"

#include <utility>

#include "base/violation.h"

namespace distag {
namespace {

// Handed out in one task of the loop.
constexpr size_t kBatch = 64;
constexpr Nanos kTakeAgain = 100 * kMillisecond;  // after a shortage of memory

}  // namespace

void Inbox::add(Place place, Arrived arrived) noexcept {
  assert_on_loop(loop_);
  place.front()->arrived = std::move(arrived);
  waiting_.splice(waiting_.end(), place);
}

void Inbox::put_back(Place place, Decoded decoded) noexcept {
  assert_on_loop(loop_);
  place.front()->decoded = std::move(decoded);
  place.front()->is_decoded = true;
  put_back(std::move(place));
}

// A message that was decoded comes again as an outline, by which its request is refused; another is decoded again.
// Messages behind it wait for that.
void Inbox::put_back(Place place) noexcept {
  assert_on_loop(loop_);
  const std::shared_ptr<Turn> turn = place.front();
  if (turn->is_decoded && !turn->decoded.shortage) turn->decoded.shortage = Error(Status::kOutOfMemory, "no memory");
  turn->is_put_back = true;
  waiting_.splice(waiting_.begin(), place);
  loop_.start_timer(turn->place, loop_.now() + kTakeAgain, make_look(turn));
}

// At the place of a turn, which it holds.
Task Inbox::make_look(std::shared_ptr<Turn> turn) const noexcept {
  return [turn = std::move(turn), self = std::weak_ptr(self_)] {
    turn->is_put_back = false;
    if (const auto inbox = self.lock()) (*inbox)->drain();
  };
}

// Stops at the first that is not ready, as those behind it are heard after it. A failure that is no shortage is handed
// out like a message.
void Inbox::drain() {
  assert_on_loop(loop_);
  for (size_t handed_out = 0; !waiting_.empty(); ++handed_out) {
    const std::shared_ptr<Turn> turn = waiting_.front();
    if (turn->is_put_back || (turn->is_given_out && !turn->is_decoded)) return;
    if (handed_out == kBatch) {
      turn->is_put_back = true;
      loop_.post_or_drop(turn->place, make_look(turn));
      return;
    }
    if (!turn->is_decoded) {
      if (turn->arrived.takes_long && give_out(turn)) return;
      decode(*turn, limits_);
    }
    Place taken;
    taken.splice(taken.begin(), waiting_, waiting_.begin());
    if (lacks_memory(turn->decoded)) {
      turn->decoded = {};
      turn->is_given_out = false;
      turn->is_decoded = false;
      return put_back(std::move(taken));
    }
    turn->is_decoded = true;
    if (!owner_.on_decoded(turn->decoded)) return put_back(std::move(taken));
  }
}

// False: the decoder does not take it, since it is stopped or has no memory for it.
bool Inbox::give_out(const std::shared_ptr<Turn>& turn) {
  if (decoder_ == nullptr) return false;
  turn->is_given_out = true;
  try {
    if (decoder_->post([turn, limits = limits_, &loop = loop_, self = std::weak_ptr(self_)] {
          decode(*turn, limits);
          loop.post_or_drop(turn->decoded_place, [turn, self] {
            turn->is_decoded = true;  // not before: from here on its place is free
            if (const auto inbox = self.lock()) (*inbox)->drain();
          });
        })) {
      return true;
    }
  } catch (...) {
    // Here it costs time, and no message.
  }
  turn->is_given_out = false;
  return false;
}

// Beside the loop or on it. What has arrived stays until there was memory to decode it: it is decoded once more then.
void Inbox::decode(Turn& turn, const wire::Limits& limits) {
  try {
    for (Task& task : std::exchange(turn.arrived.rest, {})) task();
    const wire::Arrival arrival(turn.arrived.header, limits);
    turn.decoded = decode(arrival, turn.arrived.payload, turn.arrived.shortage);
  } catch (...) {
    turn.decoded.failure = std::current_exception();
  }
  if (!lacks_memory(turn.decoded)) turn.arrived = {};
}

bool Inbox::lacks_memory(const Decoded& decoded) noexcept {
  if (!decoded.failure) return false;
  try {
    std::rethrow_exception(decoded.failure);
  } catch (...) {
    return current_error().status() == Status::kOutOfMemory;
  }
}

// An outline is decoded where there is no memory for the message.
Inbox::Decoded Inbox::decode(const wire::Arrival& arrival, const Frames& payload, std::optional<Error> shortage) {
  Decoded decoded;
  try {
    if (!shortage) {
      try {
        decoded.message = arrival.decode(payload);
        return decoded;
      } catch (const Violation&) {
        throw;
      } catch (...) {
        shortage = current_error();
      }
    }
    if (arrival.is_long() && payload.empty()) throw *shortage;  // nothing tells what the message was
    decoded.message = arrival.decode_outline(arrival.is_long() ? payload.front() : Frame());
    decoded.shortage = std::move(shortage);
  } catch (...) {
    decoded.failure = std::current_exception();
  }
  return decoded;
}

}  // namespace distag
