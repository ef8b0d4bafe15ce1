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

// The bytes that a request takes of its sender's budget: its arguments, and what every request needs.
uint64_t cost_of(const Values& args, const wire::Packed* packed, const std::string& label);

// The bytes that an answer takes until its caller has acknowledged it.
uint64_t cost_of(const Value& answer, const wire::Packed* packed);

// The requests that each peer has not taken, by bytes, and those that wait until it has: "Credit" in schemas/calls.fbs.
// Not thread-safe.
class Credit {
 public:
  Credit(uint64_t budget, size_t most_open) : budget_(budget), most_open_(most_open) {}

  // True: it goes out now, and counts. False: it waits here. Throws OVERLOADED where requests of as many bytes as the
  // budget wait already, unless it is one that has the time; and where too many are open.
  bool admit(const std::shared_ptr<OutgoingCall>& call);
  // It never goes out, whether it waits or counts.
  void give_back(OutgoingCall& call);
  // It is over, and no more of those that are open.
  void end(OutgoingCall& call);
  // The peer has taken so much in all. A lower word is an old one. Whether requests to it wait.
  bool on_taken(Incarnation peer, uint64_t total);

  // One that waits and goes out now: it counts from here. nullptr: none may.
  std::shared_ptr<OutgoingCall> next(Incarnation peer);
  bool has_next(Incarnation peer) const;
  // The total at which the peer is to tell what it has taken, as more waits; 0: none does, or it has been asked.
  uint64_t to_ask(Incarnation peer) const;
  void note_asked(Incarnation peer, uint64_t taken);
  std::vector<Incarnation> peers_with_waiting() const;
  RequestBytes bytes() const;
  // It is gone, and none waits for it.
  void forget(Incarnation peer) { lines_.erase(peer); }

 private:
  struct Line {
    uint64_t sent = 0;
    uint64_t taken = 0;
    uint64_t asked = 0;  // it tells when it has taken that much
    uint64_t waiting_bytes = 0;
    size_t open = 0;
    std::map<uint64_t, std::shared_ptr<OutgoingCall>> waiting;  // by the counters of their ids
  };
  static uint64_t not_taken(const Line& line);
  static void count_open(Line& line, OutgoingCall& call);
  bool fits(const Line& line, uint64_t cost) const;

  const uint64_t budget_;
  const size_t most_open_;
  std::unordered_map<Incarnation, Line> lines_;
};

}  // namespace distag
