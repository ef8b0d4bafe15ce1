#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "base/ids.h"
#include "rpc/outgoing_call.h"
#include "rpc/rpc.h"
#include "wire/packed.h"

namespace distag {

// The bytes that a request takes of its sender's budget: its arguments and a fixed overhead.
uint64_t cost_of(const Values& args, const wire::Packed* packed, const std::string& label);

// The bytes that an answer takes until its caller has acknowledged it.
uint64_t cost_of(const Value& answer, const wire::Packed* packed);

// The requests that each peer has not taken, by bytes, and the requests that wait for that: "Credit" in
// schemas/calls.fbs. Not thread-safe.
class Credit {
 public:
  Credit(uint64_t budget, size_t most_open) : budget_(budget), most_open_(most_open) {}

  // Returns true if the call goes out now; it counts then. Returns false if it waits here. Throws OVERLOADED if waiting
  // requests fill the budget already, unless the call has time, and if too many calls are open.
  bool admit(const std::shared_ptr<OutgoingCall>& call);
  // The call never goes out, whether it waits or counts.
  void give_back(OutgoingCall& call);
  // The call is over and no longer counts as open.
  void end(OutgoingCall& call);
  // The peer has taken this total; a lower total is outdated. Returns whether requests to the peer wait.
  bool on_taken(Incarnation peer, uint64_t total);

  // Takes out a waiting call that may go out now; it counts from here. nullptr: none may.
  std::shared_ptr<OutgoingCall> next(Incarnation peer);
  bool has_next(Incarnation peer) const;
  // The total at which the peer is asked to report what it has taken, as more requests wait. 0: none waits, or the peer
  // has been asked.
  uint64_t to_ask(Incarnation peer) const;
  void note_asked(Incarnation peer, uint64_t taken);
  std::vector<Incarnation> peers_with_waiting() const;
  RequestBytes bytes() const;
  // The peer is gone, and no call waits for it.
  void forget(Incarnation peer) { lines_.erase(peer); }

 private:
  struct Line {
    uint64_t sent = 0;
    uint64_t taken = 0;
    uint64_t asked = 0;  // the peer reports when it has taken this total
    uint64_t waiting_bytes = 0;
    size_t open = 0;
    std::map<uint64_t, std::shared_ptr<OutgoingCall>> waiting;  // by the counters of the calls' ids
  };
  static uint64_t not_taken(const Line& line);
  static void count_open(Line& line, OutgoingCall& call);
  bool fits(const Line& line, uint64_t cost) const;

  const uint64_t budget_;
  const size_t most_open_;
  std::unordered_map<Incarnation, Line> lines_;
};

}  // namespace distag
