#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dautograd/dautograd_shared.h"
#include "dautograd/participants.h"

namespace distag {

// The rounds of probes by which the initiator of a FAST pass finds out that nothing can move any more: a send that the
// roots do not depend on waits for ever. On the loop.
//
// A round asks all workers that are not done, and is judged once, when all have answered it. No message is on its way
// if in two successive rounds all were idle, as many GRADs were received as sent, and no number changed between them.
class FastRounds {
 public:
  class Owner {
   public:
    virtual ~Owner() = default;
    // Called before a round. True: a participant is lost, and the pass has ended.
    virtual bool has_lost_participant() = 0;
    // Sets the state of this worker's own part, which is not done.
    virtual void note_own(Participants::State& own) = 0;
    virtual void on_unreached(const Error& error) = 0;
  };

  FastRounds(DautogradShared& shared, Participants& participants, Owner& owner, const Id& context, const Id& pass)
      : shared_(shared), participants_(participants), owner_(owner), context_(context), pass_(pass) {}

  // Schedules a round soon: something has happened, which may have been the last thing.
  void begin_soon();
  // Adds a participant: the next round asks it as well.
  void add(Incarnation worker);
  void on_answer(const Peer& from, const wire::ProbeAnswer& answer);
  void stop();

 private:
  void schedule(Nanos delay);
  void begin();
  void judge();
  std::string describe_unreached() const;

  DautogradShared& shared_;
  Participants& participants_;
  Owner& owner_;
  const Id context_;
  const Id pass_;
  Loop::TimerId timer_ = 0;
  Nanos delay_ = 0;
  uint64_t round_ = 0;
  uint64_t judged_ = 0;
  std::vector<uint64_t> last_counts_;  // from the round before, if all were idle and nothing was on its way
};

}  // namespace distag
