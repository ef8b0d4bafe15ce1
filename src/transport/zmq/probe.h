#pragma once

#include <functional>

#include "base/fd_loop.h"
#include "transport/socket/address.h"

namespace distag {

// Whether somebody listens at an address: libzmq says that a dial failed, but not why, so a plain connect asks. On the
// loop. `done` runs later, once, unless the probe is destroyed before: with true where the system says that nobody
// listens there; with false where somebody does, or when that is not known after half a second.
class Probe {
 public:
  Probe(FdLoop& loop, const SocketAddress& address, std::function<void(bool is_refused)> done);
  ~Probe();
  Probe(const Probe&) = delete;
  Probe& operator=(const Probe&) = delete;

 private:
  void finish(int error);

  FdLoop& loop_;
  std::function<void(bool is_refused)> done_;
  int fd_ = -1;
  Loop::TimerId timer_ = 0;
};

}  // namespace distag
