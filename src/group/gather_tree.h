#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "group/gather_rounds.h"
#include "group/service.h"
#include "group/shared.h"

namespace distag {

// Brings the values of a complete round from the lowest rank to all others, down a binary tree of the ranks: place p
// sends to the places 2p + 1 and 2p + 2. So no worker sends more than twice, and the values arrive after as many steps
// as the number of ranks has binary digits. A worker answers for all below it, once they have the values.
//
// Failures. A worker that cannot get the values (it is lost, or short of memory) is left out: its sender serves those
// below it instead, and names it with the reason in its answer. The same holds for a worker lost before those below are
// served. Values come with the numbers of all contributions. A worker that no longer waits for that round (it gave up,
// began the next round or was restarted) refuses and is left out. So is a worker whose answer names ranks outside the
// round. A worker that gets the values twice takes them once. On the loop; shared with the calls it makes.
class GatherTree : public std::enable_shared_from_this<GatherTree> {
 public:
  static constexpr const char* kFunction = "distag.all_gather_values";

  // nullptr: some were left out, but there was no memory to note them.
  using Done = UniqueFunction<void(const LeftOut*)>;
  struct Receiver {
    std::function<bool(const Ranks&, int64_t turn)> expects;
    std::function<void(const Ranks&, const Value& values)> take;
  };

  GatherTree(GroupShared& shared, Receiver receiver) : shared_(shared), receiver_(std::move(receiver)) {}

  // Starts at the first of the ranks, which must be this worker's.
  void spread(const Ranks& ranks, const std::vector<int64_t>& turns, const Value& values, Done done);
  // The function behind "distag.all_gather_values".
  void on_call(const GroupCall& call);

 private:
  // The spread at one worker, for all ranks below it.
  struct Spread {
    Ranks ranks;
    Values args;
    size_t open = 1;  // open calls, plus one for the code that begins it
    LeftOut left_out;
    bool forgets = false;  // there was no memory to note a rank that was left out
    Done done;
  };
  using SpreadPointer = std::shared_ptr<Spread>;

  void send_below(const SpreadPointer& spread, size_t place);
  void send(const SpreadPointer& spread, size_t place);
  void on_answer(const SpreadPointer& spread, size_t place, const Future<Value>& answer);
  void leave_out(const SpreadPointer& spread, size_t place, Error why);
  static void note_left_out(Spread& spread, int32_t rank, Error why) noexcept;
  static void close(Spread& spread) noexcept;

  GroupShared& shared_;
  const Receiver receiver_;
};

}  // namespace distag
