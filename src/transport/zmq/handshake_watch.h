#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "transport/zmq/zmq_monitor.h"

namespace distag {

// Counts the handshakes at a ROUTER that end without success, each once, from the events of its monitor. Has no socket
// of its own. On the loop.
//
// The events of libzmq do not say which connection they are about: ACCEPTED and DISCONNECTED name the descriptor, the
// number of which may be in use again by then; those of a failed handshake name nothing and come right before
// DISCONNECTED; that of success, and a refusal by ZAP, name nothing and come at any time. So an end that nothing
// explains may be that of a silent member, or of a stranger whose bytes are no handshake. It takes the place of one
// success or denial that no connection was found for; should a message come by that connection after all, the stranger
// is counted then.
class HandshakeWatch {
 public:
  using Serial = uint64_t;
  struct Outcome {
    std::vector<std::string> refusals;  // "a connection from ... was refused: ..."
    std::vector<Serial> ended;          // connections that have brought messages
  };

  // `address_of`: the other side of a descriptor, at this moment. `has_names`: each worker has a key of its own.
  HandshakeWatch(std::function<std::string(int fd)> address_of, bool has_keys, bool has_names)
      : address_of_(std::move(address_of)), has_keys_(has_keys), has_names_(has_names) {}

  // An event as it came. The outcome waits for settle().
  void add(const ZmqEvent& event);
  // Looks at the addresses of those that were accepted; an address counts once the events that came meanwhile do not
  // say that the descriptor is closed: add() them, then confirm_addresses(). False: no address is left to look at.
  bool look_at_addresses();
  void confirm_addresses();

  // ZAP has refused a connection, which was counted there.
  void add_denial() { ++denials_; }
  // The first message of the connection came by that descriptor.
  void add_message(Serial serial, int fd) { spoken_[fd].push_back(serial); }

  // Once no more messages are there, what the events meant, in their order.
  Outcome settle();
  size_t waiting() const { return events_.size(); }

 private:
  struct Event {
    ZmqEvent event;
    std::string address;  // of an ACCEPTED; empty: not known
    bool is_confirmed = false;
  };
  struct Open {
    std::string address;
    Serial serial = 0;  // once a message came
  };

  std::string why(const ZmqEvent& failure) const;
  void end(int fd, Outcome& outcome);
  void explain(Outcome& outcome);

  const std::function<std::string(int fd)> address_of_;
  const bool has_keys_;
  const bool has_names_;
  std::deque<Event> events_;
  std::map<int, size_t> fresh_;        // the last ACCEPTED of a descriptor, to be looked at: its place in events_
  std::map<int, size_t> unconfirmed_;  // likewise, and looked at
  std::map<int, Open> open_;           // by descriptor
  std::map<int, std::deque<Serial>> spoken_;  // by descriptor, not found among the open ones yet
  std::string failure_;                       // of the handshake that ends next
  bool is_hang_up_ = false;                   // that failure may be one that ZAP refused
  uint64_t successes_ = 0;                    // whose connection is not known
  uint64_t denials_ = 0;
};

}  // namespace distag
