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

// Knows the connections of a ROUTER, and counts the handshakes that end without success, each once, from the events of
// its monitor. Has no socket of its own. On the loop.
//
// The events of libzmq do not say which connection they are about: ACCEPTED and DISCONNECTED name the descriptor, the
// number of which may be in use again by then; those of a failed handshake name nothing and come right before
// DISCONNECTED; that of success, and a refusal by ZAP, name nothing and come at any time. So an end that nothing
// explains may be that of a silent member, or of a stranger whose bytes are no handshake. It takes the place of one
// success or denial that no connection was found for; should a message come by that connection after all, the stranger
// is counted then.
//
// A box that does not open, of a connection that is open, is told like a handshake that fails; but libzmq may leave
// that connection open, and hear no more of it.
class HandshakeWatch {
 public:
  using Serial = uint64_t;
  // What the system says of a descriptor at one moment; nothing where it is no connection to the ROUTER.
  struct Seen {
    std::string address;  // of the other side
    ino_t inode = 0;
    NotedSocket noted;
  };
  struct Open {
    int fd = -1;
    ino_t inode = 0;    // 0: not known
    Serial serial = 0;  // once a message came
  };
  struct Outcome {
    std::vector<std::string> refusals;  // "a connection from ... was refused: ..."
    std::vector<Serial> ended;          // connections that have brought messages
    bool has_broken_box = false;        // one that is open has, and which is not said
    bool is_unclear = false;            // as yet, whether a handshake has failed or a box is broken
  };

  // `has_names`: each worker has a key of its own.
  HandshakeWatch(std::function<Seen(int fd)> look_at, bool has_keys, bool has_names)
      : look_at_(std::move(look_at)), has_keys_(has_keys), has_names_(has_names) {}

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
  // What was unclear so far is a broken box: the end of a handshake would have been told by now.
  void be_clear() { is_late_ = true; }
  std::vector<Open> open() const;
  size_t waiting() const { return events_.size(); }

 private:
  struct Event {
    ZmqEvent event;
    Seen seen;  // of an ACCEPTED; without an address: not known
    bool is_confirmed = false;
  };
  struct Accepted {
    Seen seen;
    Serial serial = 0;  // once a message came
  };

  std::string why(const ZmqEvent& failure) const;
  void end(int fd, Outcome& outcome);
  void explain(Outcome& outcome);
  void tell_broken_box(Outcome& outcome);

  const std::function<Seen(int fd)> look_at_;
  const bool has_keys_;
  const bool has_names_;
  std::deque<Event> events_;
  std::map<int, size_t> fresh_;        // the last ACCEPTED of a descriptor, to be looked at: its place in events_
  std::map<int, size_t> unconfirmed_;  // likewise, and looked at
  std::map<int, Accepted> open_;       // by descriptor
  std::map<int, std::deque<Serial>> spoken_;  // by descriptor, not found among the open ones yet
  std::string failure_;                       // of the handshake that ends next
  bool is_hang_up_ = false;                   // that failure may be one that ZAP refused
  bool is_late_ = false;                      // its end would have been told
  uint64_t successes_ = 0;                    // whose connection is not known
  uint64_t denials_ = 0;
};

}  // namespace distag
