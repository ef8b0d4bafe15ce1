#include "session/inbox.h"

#include <utility>

#include "base/violation.h"

namespace distag {
namespace {

// Messages handed out in one task of the loop.
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

// A decoded message comes again as an outline, by which its request is refused; a message not decoded yet is decoded
// again. Messages behind it wait meanwhile.
void Inbox::put_back(Place place) noexcept {
  assert_on_loop(loop_);
  const std::shared_ptr<Turn> turn = place.front();
  if (turn->is_decoded && !turn->decoded.shortage) turn->decoded.shortage = Error(Status::kOutOfMemory, "no memory");
  turn->is_put_back = true;
  waiting_.splice(waiting_.begin(), place);
  loop_.start_timer(turn->place, loop_.now() + kTakeAgain, make_look(turn));
}

// A task at the place of `turn`; the task holds the turn.
Task Inbox::make_look(std::shared_ptr<Turn> turn) const noexcept {
  return [turn = std::move(turn), self = std::weak_ptr(self_)] {
    turn->is_put_back = false;
    if (const auto inbox = self.lock()) (*inbox)->drain();
  };
}

// Stops at the first message that is not ready, as those behind it must follow it. A failure other than a shortage is
// handed out like a message.
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

// Returns false if the decoder does not take the message, because it is stopped or out of memory.
bool Inbox::give_out(const std::shared_ptr<Turn>& turn) {
  if (decoder_ == nullptr) return false;
  turn->is_given_out = true;
  try {
    if (decoder_->post([turn, limits = limits_, &loop = loop_, self = std::weak_ptr(self_)] {
          decode(*turn, limits);
          loop.post_or_drop(turn->decoded_place, [turn, self] {
            turn->is_decoded = true;  // only now, as its place is free from here on
            if (const auto inbox = self.lock()) (*inbox)->drain();
          });
        })) {
      return true;
    }
  } catch (...) {
    // The loop decodes instead: this costs time, but no message.
  }
  turn->is_given_out = false;
  return false;
}

// Runs on the decoder or on the loop. `arrived` stays until there was memory to decode it, so that it can be decoded
// again.
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

// Decodes an outline if there is no memory for the message.
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
    if (arrival.is_long() && payload.empty()) throw *shortage;  // nothing shows what the message was
    decoded.message = arrival.decode_outline(arrival.is_long() ? payload.front() : Frame());
    decoded.shortage = std::move(shortage);
  } catch (...) {
    decoded.failure = std::current_exception();
  }
  return decoded;
}

}  // namespace distag
