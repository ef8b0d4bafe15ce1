#pragma once

#include <functional>

#include "session/standings.h"

namespace distag {

// The ticks of a session, each quarter of a lease from the first stream that is opened, and what they find out about
// each peer: it is lost when it has acknowledged nothing for a lease, or for four while parts of its messages or bytes
// of its handshakes come. Only time counts in which this worker could have heard it, and in which the peer is not in
// the line of first dials. For the time by which a tick is late no peer owes. In one that is late by more than a
// sixteenth of a lease none is lost that owes for less than four leases: what came meanwhile is not heard yet. Of such
// ticks in a row every fifth judges all the same. One that is late by more than a quarter restarts all leases, once in
// sixteen ticks at most: this worker was away. On the loop.
class Liveness {
 public:
  // `keep_house` runs with each tick, before the peers.
  Liveness(StreamShared& shared, Acknowledgements& acks, const PeerTable& peers, Standings& standings,
           std::function<void()> keep_house)
      : shared_(shared), acks_(acks), peers_(peers), standings_(standings), keep_house_(std::move(keep_house)) {}
  ~Liveness() { shared_.loop.cancel_timer(timer_); }
  Liveness(const Liveness&) = delete;
  Liveness& operator=(const Liveness&) = delete;

  // Ticks, unless it does.
  void start();
  // The peer owes an answer from now on, unless it does. A worker without a rank cannot say HELLO yet.
  void open(PeerRecord& record);
  void close();

 private:
  void tick();
  struct Moment {
    Nanos now;
    Nanos late;
    bool judges;
    bool restarts;  // all leases
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
  int late_ticks_ = 0;  // in a row, in which no peer was judged
  int restart_in_ = 0;  // ticks: all leases may begin anew then
};

}  // namespace distag
