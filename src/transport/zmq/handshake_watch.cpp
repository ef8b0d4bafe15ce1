#include "transport/zmq/handshake_watch.h"

#include <zmq.h>

#include <utility>

#include "base/error.h"

namespace distag {
namespace {

constexpr const char* kNoHandshake = "it speaks no ZMTP";

std::string refusal(const std::string& address, const std::string& why) {
  return fmt::format("a connection from {} was refused: {}",
                     address.empty() ? "an address that is not known" : address.c_str(), why);
}

}  // namespace

void HandshakeWatch::add(const ZmqEvent& event) {
  const int fd = static_cast<int>(event.value);
  if (event.number == ZMQ_EVENT_ACCEPTED) fresh_[fd] = events_.size();
  if (event.number == ZMQ_EVENT_DISCONNECTED) {
    fresh_.erase(fd);
    unconfirmed_.erase(fd);
  }
  events_.push_back({event, Seen(), false});
}

bool HandshakeWatch::look_at_addresses() {
  unconfirmed_ = std::exchange(fresh_, {});
  for (const auto& [fd, place] : unconfirmed_) events_[place].seen = look_at_(fd);
  return !unconfirmed_.empty();
}

void HandshakeWatch::confirm_addresses() {
  // Connections that were closed meanwhile are no longer in the list: the address may belong to another one.
  for (Event& event : events_) {
    const auto found = unconfirmed_.find(static_cast<int>(event.event.value));
    const bool is_looked_at = event.event.number == ZMQ_EVENT_ACCEPTED && !event.seen.address.empty();
    if (!is_looked_at || event.is_confirmed) continue;
    if (found != unconfirmed_.end() && &events_[found->second] == &event) {
      event.is_confirmed = true;
    } else {
      event.seen = Seen();
    }
  }
  unconfirmed_.clear();
}

std::string HandshakeWatch::why(const ZmqEvent& failure) const {
  if (failure.number == ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL) {
    return "it hung up in the midst of its handshake, or that has not ended in time";
  }
  switch (failure.value) {
    case ZMQ_PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH:
      return has_keys_ ? "it has no key" : "it has a key, and this worker has none";
    case ZMQ_PROTOCOL_ERROR_ZMTP_CRYPTOGRAPHIC:
      return fmt::format("it does not know the key of {}", has_names_ ? "this worker" : "the group");
    default:
      return fmt::format("its handshake breaks the protocol of {} (libzmq: {:#x})", has_keys_ ? "CURVE" : "ZMTP",
                         failure.value);
  }
}

HandshakeWatch::Outcome HandshakeWatch::settle() {
  Outcome outcome;
  for (Event& event : std::exchange(events_, {})) {
    const int fd = static_cast<int>(event.event.value);
    // After a failed handshake its end is the next event. If another one comes, the failure was a broken box.
    if (event.event.number != ZMQ_EVENT_DISCONNECTED) tell_broken_box(outcome);
    switch (event.event.number) {
      case ZMQ_EVENT_ACCEPTED:
        open_[fd] = Accepted{std::move(event.seen), 0};
        break;
      case ZMQ_EVENT_HANDSHAKE_SUCCEEDED:
        ++successes_;
        break;
      case ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL:
      case ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL:
        failure_ = why(event.event);
        is_hang_up_ = event.event.number == ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL;
        is_late_ = false;
        break;
      case ZMQ_EVENT_DISCONNECTED:
        end(fd, outcome);
        break;
      default:
        break;
    }
  }
  if (is_late_) tell_broken_box(outcome);
  outcome.is_unclear = !failure_.empty() && !is_hang_up_;
  fresh_.clear();
  unconfirmed_.clear();
  for (auto& [fd, serials] : std::exchange(spoken_, {})) {
    const auto found = open_.find(fd);
    if (found != open_.end()) found->second.serial = serials.back();
    explain(outcome);
  }
  return outcome;
}

void HandshakeWatch::end(int fd, Outcome& outcome) {
  const Accepted ended = std::exchange(open_[fd], {});
  open_.erase(fd);
  const std::string failure = std::exchange(failure_, {});
  const auto spoken = spoken_.find(fd);
  if (ended.serial != 0) {
    outcome.ended.push_back(ended.serial);
  } else if (spoken != spoken_.end()) {
    outcome.ended.push_back(spoken->second.front());
    spoken->second.pop_front();
    if (spoken->second.empty()) spoken_.erase(spoken);
    explain(outcome);
  } else if (denials_ > 0 && (failure.empty() || is_hang_up_)) {
    --denials_;
  } else if (!failure.empty()) {
    outcome.refusals.push_back(refusal(ended.seen.address, failure));
  } else if (successes_ > 0) {
    --successes_;
  } else {
    outcome.refusals.push_back(refusal(ended.seen.address, kNoHandshake));
  }
}

void HandshakeWatch::tell_broken_box(Outcome& outcome) {
  if (failure_.empty() || is_hang_up_) return;
  failure_.clear();
  outcome.has_broken_box = true;
}

std::vector<HandshakeWatch::Open> HandshakeWatch::open() const {
  std::vector<Open> all;
  for (const auto& [fd, accepted] : open_) all.push_back({fd, accepted.seen.inode, accepted.serial});
  return all;
}

// Takes the success of a connection whose message has come; without one, the handshake was none.
void HandshakeWatch::explain(Outcome& outcome) {
  if (successes_ > 0) {
    --successes_;
  } else {
    outcome.refusals.push_back(refusal({}, kNoHandshake));
  }
}

}  // namespace distag
