#pragma once

#include <memory>

#include "group/rendezvous.h"
#include "session/session.h"
#include "transport/transport.h"

namespace distag {

// The links of a worker from the moment at which it looks for its group until it has left or has failed to start. Each
// is made from those above it, so they are destroyed in reverse order. All are null before and after. On the loop.
struct GroupLinks {
  // The traffic so far, with refusals by the rendezvous: that has a listener of its own, and ends before the session.
  // Only with a session.
  SessionStats stats() {
    count_refused();
    SessionStats stats = session->stats();
    stats.messages_refused += refused_at_rendezvous;
    return stats;
  }
  void end_rendezvous() {
    count_refused();
    rendezvous.reset();
  }
  void close() noexcept {
    rendezvous.reset();
    local_server.reset();
    session.reset();
    transport.reset();
    refused_at_rendezvous = 0;
  }

  bool is_open_world() const { return wanted_size < 0; }

  std::unique_ptr<Transport> transport;
  std::unique_ptr<Session> session;
  std::unique_ptr<Rendezvous> rendezvous;
  std::shared_ptr<void> local_server;
  uint64_t refused_at_rendezvous = 0;  // as last reported
  int32_t wanted_size = 0;             // of the world; -1: an open world
  Nanos opened = 0;                    // when the worker began to look for its group

 private:
  void count_refused() {
    if (rendezvous) refused_at_rendezvous = rendezvous->refused();
  }
};

}  // namespace distag
