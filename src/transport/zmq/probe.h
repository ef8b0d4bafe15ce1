#pragma once

#include <functional>
#include <memory>

#include "base/fd_loop.h"
#include "transport/zmq/address.h"

namespace distag {

// Whether somebody listens: libzmq tells that a dial failed, but not why, so it is asked by a plain connect.
enum class ProbeResult { kListening, kRefused, kUnknown };

// At once, for ipc; kUnknown for tcp when it is not known at once.
ProbeResult probe_now(const SocketAddress& address);

// On the loop. `done` runs later, once, unless the probe is destroyed before; kUnknown after half a second.
class Probe {
 public:
  Probe(FdLoop& loop, const SocketAddress& address, std::function<void(ProbeResult)> done);
  ~Probe();
  Probe(const Probe&) = delete;
  Probe& operator=(const Probe&) = delete;

 private:
  void finish(ProbeResult result);

  FdLoop& loop_;
  std::function<void(ProbeResult)> done_;
  int fd_ = -1;
  Loop::TimerId timer_ = 0;
};

// Descriptors that stay free for the host when a connection is accepted; and those that are free when one is dialled:
// what a context and a socket of libzmq open, for which it ends the process when it cannot, and room for who dials
// back.
inline constexpr int kAcceptReserve = 8;
inline constexpr int kDialReserve = 24;

// Whether the process can open `count` more descriptors.
bool has_descriptors(int count);
// Throws OUT_OF_MEMORY when it cannot.
void require_descriptors(int count);

}  // namespace distag
