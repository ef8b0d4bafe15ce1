#include "transport/zmq/dial_watch.h"

#include <utility>

#include "transport/socket/credentials.h"
#include "transport/zmq/libzmq.h"

namespace distag {
namespace {

constexpr int kEndEvents = ZMQ_EVENT_CLOSED | ZMQ_EVENT_CLOSE_FAILED | ZMQ_EVENT_DISCONNECTED |
                           ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL | ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL |
                           ZMQ_EVENT_HANDSHAKE_FAILED_AUTH | ZMQ_EVENT_CONNECT_RETRIED;

// The other side said so, or speaks another mechanism, or its boxes have another key.
bool is_denial(const ZmqEvent& event) {
  if (event.number == ZMQ_EVENT_HANDSHAKE_FAILED_AUTH) return true;
  return event.number == ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL &&
         (event.value == ZMQ_PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH ||
          event.value == ZMQ_PROTOCOL_ERROR_ZMTP_CRYPTOGRAPHIC);
}

}  // namespace

DialWatch::DialWatch(ZmqSocket& socket, bool is_for_one_user)
    : monitor_(socket, kEndEvents | ZMQ_EVENT_CONNECTED | ZMQ_EVENT_HANDSHAKE_SUCCEEDED),
      is_for_one_user_(is_for_one_user) {}

void DialWatch::read_news() {
  if (!read_events()) return;
  const bool is_other = is_for_one_user_ && !is_of_same_user(descriptor_);
  NotedSocket noted(descriptor_);
  // libzmq says that the connection is over before it closes the descriptor, the number of which may be another's
  // from then on: the look counts only if that has not been said by now.
  read_events();
  is_denied_ = is_denied_ || (is_other && !is_over_);
  if (!is_over_) noted_ = std::move(noted);
  is_over_ = is_over_ || is_other;
  is_shaken_ = is_shaken_ && !is_over_;
}

// True if the connection was made just now.
bool DialWatch::read_events() {
  bool is_new = false;
  while (!is_over_) {
    const std::optional<ZmqEvent> event = monitor_.next();
    if (!event) break;
    note(*event);
    is_new = is_new || event->number == ZMQ_EVENT_CONNECTED;
  }
  return is_new;
}

void DialWatch::note(const ZmqEvent& event) {
  if (event.number == ZMQ_EVENT_CONNECTED) descriptor_ = static_cast<int>(event.value);
  is_shaken_ = is_shaken_ || event.number == ZMQ_EVENT_HANDSHAKE_SUCCEEDED;
  // After the handshake, a failure means a box that was changed in transit.
  is_denied_ = is_denied_ || (!is_shaken_ && is_denial(event));
  is_over_ = (event.number & kEndEvents) != 0;
}

}  // namespace distag
