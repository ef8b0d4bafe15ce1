#pragma once

#include <functional>

#include "session/standings.h"

namespace distag {

// The ticks of a session, one each quarter of a lease from the first opened stream, and the loss of peers. A peer is
// lost when it has acknowledged nothing for a lease, or for four leases while parts of its messages or bytes of its
// handshakes come. Only time counts in which this worker could have heard the peer and the peer was not in the line of
// first dials; the lateness of a tick does not count. In a tick that is late by more than a sixteenth of a lease, no
// peer is lost that owes for less than four leases: what came meanwhile is not processed yet. Every fifth of such ticks
// in a row judges nevertheless. A tick that is late by more than a quarter restarts all leases, at most once in sixteen
// ticks: this worker was away. On the loop.
class Liveness {
 public:
  // `keep_house` runs with each tick, before the peers.
  Liveness(StreamShared& shared, Acknowledgements& acks, const PeerTable& peers, Standings& standings,
           std::function<void()> keep_house)
      : shared_(shared), acks_(acks), peers_(peers), standings_(standings), keep_house_(std::move(keep_house)) {}
  ~Liveness() { shared_.loop.cancel_timer(timer_); }
  Liveness(const Liveness&) = delete;
  Liveness& operator=(const Liveness&) = delete;

  // Starts the ticks, unless they run.
  void start();
  // Opens the stream if it is idle; the peer owes an answer from then on. A worker without a rank cannot say HELLO yet,
  // so it opens none.
  void open(PeerRecord& record);
  void close();

 private:
  void tick();
  struct Moment {
    Nanos now;
    Nanos late;
    bool judges;
    bool restarts;  // restart all leases
  };
  Moment note_tick();
  void tick(PeerRecord& record, const Moment& moment);
  void report_lack(const PeerRecord& record, const Obstacle& obstacle);

  StreamShared& shared_;
  Acknowledgements& acks_;
  const PeerTable& peers_;
  Standings& standings_;
  const std::function<void()> keep_house_;
  Loop::TimerId timer_ = 0;
  Nanos next_tick_ = 0;
  int late_ticks_ = 0;  // ticks in a row that judged no peer
  int restart_in_ = 0;  // number of ticks until all leases may restart again
};

}  // namespace distag
