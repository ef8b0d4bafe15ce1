#pragma once

#include <functional>
#include <string>

#include "base/fd_loop.h"
#include "transport/socket/address.h"

namespace distag {

// What is at an address: libzmq says that a dial failed, but not why, so a plain connection asks, and listens for half
// a second to who is there. On the loop. `done` runs later, once, unless the probe is destroyed before.
class Probe {
 public:
  struct Answer {
    bool is_refused = false;  // the system says that no process listens there
    bool is_zmtp = false;     // who listens greets as ZMTP does
    std::string found;        // for a text; empty: nothing is known within half a second, or it is ZMTP
  };

  Probe(FdLoop& loop, const SocketAddress& address, std::function<void(Answer answer)> done);
  ~Probe();
  Probe(const Probe&) = delete;
  Probe& operator=(const Probe&) = delete;

 private:
  void on_connected(int error);
  void on_readable();
  void finish(Answer answer);

  FdLoop& loop_;
  std::function<void(Answer answer)> done_;
  int fd_ = -1;
  Loop::TimerId timer_ = 0;
  bool is_connected_ = false;
};

}  // namespace distag
