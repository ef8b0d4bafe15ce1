#pragma once

#include <memory>

#include "group/rendezvous.h"
#include "session/session.h"
#include "transport/transport.h"

namespace distag {

// What a worker has from the moment at which it looks for its group until it has left or has failed to start: each is
// made of those above it, so they go in the reverse order. All of it is null before and after. On the loop.
struct GroupLinks {
  // The traffic so far, with what the rendezvous refused: it has a listener of its own, and ends before the session.
  // Not without a session.
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
  uint64_t refused_at_rendezvous = 0;  // as it said last
  int32_t wanted_size = 0;             // of the world; -1: it is open
  Nanos opened = 0;                    // when it began to look for its group

 private:
  void count_refused() {
    if (rendezvous) refused_at_rendezvous = rendezvous->refused();
  }
};

}  // namespace distag
