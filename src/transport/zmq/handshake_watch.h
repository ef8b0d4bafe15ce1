#pragma once

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/own_descriptors.h"
#include "transport/zmq/zmq_monitor.h"

namespace distag {

// Tracks the connections of a ROUTER, and counts handshakes that end without success, each once, from the events of its
// monitor. Has no socket of its own. On the loop.
//
// The events of libzmq do not say which connection they are about. ACCEPTED and DISCONNECTED name a descriptor, whose
// number may be in use again by then. A failed handshake names nothing, and comes right before DISCONNECTED; success,
// and a refusal by ZAP, name nothing and come at any time. So an end without an explanation may be that of a silent
// member, or of a stranger whose bytes are no handshake. It uses up one success or denial
// that has no known connection yet. If a message comes by that connection after all, the stranger is counted then.
//
// If a box on an open connection does not open, libzmq reports a failed handshake; but it may leave that connection
// open and read no more from it.
class HandshakeWatch {
 public:
  using Serial = uint64_t;
  // The system's data about a descriptor at one moment; empty if that is no connection to the ROUTER.
  struct Seen {
    std::string address;  // of the other side
    ino_t inode = 0;
    NotedSocket noted;
  };
  struct Open {
    int fd = -1;
    ino_t inode = 0;    // 0: not known
    Serial serial = 0;  // set with the first message
  };
  struct Outcome {
    std::vector<std::string> refusals;  // "a connection from ... was refused: ..."
    std::vector<Serial> ended;          // connections that have brought messages
    bool has_broken_box = false;        // an open connection has brought one; unknown which
    bool is_unclear = false;            // not known yet: whether a handshake has failed or a box is broken
  };

  // `has_names`: each worker has a key of its own.
  HandshakeWatch(std::function<Seen(int fd)> look_at, bool has_keys, bool has_names)
      : look_at_(std::move(look_at)), has_keys_(has_keys), has_names_(has_names) {}

  // Adds an event. Its outcome waits for settle().
  void add(const ZmqEvent& event);
  // Looks at the addresses of accepted connections. An address counts once the events that came meanwhile do not say
  // that the descriptor is closed: add() them, then confirm_addresses(). False: no address is left to look at.
  bool look_at_addresses();
  void confirm_addresses();

  // ZAP has refused a connection, and counted it.
  void add_denial() { ++denials_; }
  // The first message of the connection came by that descriptor.
  void add_message(Serial serial, int fd) { spoken_[fd].push_back(serial); }

  // The meaning of the events, in their order. Called when no more messages are there.
  Outcome settle();
  // The unclear failure so far was a broken box: the end of a handshake would have been reported by now.
  void be_clear() { is_late_ = true; }
  std::vector<Open> open() const;
  size_t waiting() const { return events_.size(); }

 private:
  struct Event {
    ZmqEvent event;
    Seen seen;  // for ACCEPTED; without an address: not known
    bool is_confirmed = false;
  };
  struct Accepted {
    Seen seen;
    Serial serial = 0;  // set with the first message
  };

  std::string why(const ZmqEvent& failure) const;
  void end(int fd, Outcome& outcome);
  void explain(Outcome& outcome);
  void tell_broken_box(Outcome& outcome);

  const std::function<Seen(int fd)> look_at_;
  const bool has_keys_;
  const bool has_names_;
  std::deque<Event> events_;
  std::map<int, size_t> fresh_;        // the last ACCEPTED of a descriptor, yet to be looked at: an index of events_
  std::map<int, size_t> unconfirmed_;  // the same, and looked at
  std::map<int, Accepted> open_;       // by descriptor
  std::map<int, std::deque<Serial>> spoken_;  // by descriptor; connections not found in open_ yet
  std::string failure_;                       // of the handshake that should end next
  bool is_hang_up_ = false;                   // that failure may be a refusal by ZAP
  bool is_late_ = false;                      // the handshake's end would have been reported
  uint64_t successes_ = 0;                    // successes of unknown connections
  uint64_t denials_ = 0;
};

}  // namespace distag
