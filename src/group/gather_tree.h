#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "group/gather_rounds.h"
#include "group/service.h"
#include "group/shared.h"

namespace distag {

// Brings the values of a complete round from the lowest rank to all others down a binary tree of the ranks: the place p
// of them sends to the places 2p + 1 and 2p + 2. So no worker sends them more than twice, and they arrive after as many
// steps as the number of ranks has binary digits. A worker answers for all below it, once they have them.
//
// Bad days. A worker to which the values cannot be sent, because it is lost or short of memory, is left out: who meant
// to send to it sends to those below it instead, and says in its own answer who was left out and why. One that is lost
// with what is below it still to be served, too. One that gets them twice has them. Each contribution bears a number of
// its own, and the values the numbers of all: a worker that no longer waits for that round, as it gave up, began the
// next one or was restarted, refuses and is left out likewise. An answer about ranks that are not below its worker is a
// defect of that worker, which is left out with all that it should have reported. On the loop; shared with the calls
// it makes.
class GatherTree : public std::enable_shared_from_this<GatherTree> {
 public:
  static constexpr const char* kFunction = "distag.all_gather_values";

  // nullptr: some were left out, but there was no memory to note which.
  using Done = UniqueFunction<void(const LeftOut*)>;
  struct Receiver {
    std::function<bool(const Ranks&, int64_t turn)> expects;
    std::function<void(const Ranks&, const Value& values)> take;
  };

  GatherTree(GroupShared& shared, Receiver receiver) : shared_(shared), receiver_(std::move(receiver)) {}

  // From the first of the ranks, which is this worker's.
  void spread(const Ranks& ranks, const std::vector<int64_t>& turns, const Value& values, Done done);
  // The function behind "distag.all_gather_values".
  void on_call(const GroupCall& call);

 private:
  // At one worker, for all below it.
  struct Spread {
    Ranks ranks;
    Values args;
    size_t open = 1;  // calls, and who begins it
    LeftOut left_out;
    bool forgets = false;  // there was no memory for one of them
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
