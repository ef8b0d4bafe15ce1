#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/future.h"
#include "group/gather_rounds.h"
#include "group/shared.h"

namespace distag {

// Brings the values of several members to each of them. Every member calls the one of lowest rank. Once all have
// called, the values come down a tree (GatherTree), and then the calls are answered. For each set of ranks, one call of
// a worker is under way at a time, until it is answered or its callee is lost; the next ones wait. So the first call of
// a member meets the first of the others, the second meets the second, and arriving values belong to the call under
// way. A call that fails before it has come does not count; one that comes with a failure instead of a value does.
// Shared with the tasks that it posts to the loop.
class AllGather : public std::enable_shared_from_this<AllGather> {
 public:
  static constexpr const char* kFunction = "distag.all_gather";
  // Limits: the number of sets of ranks with a turn, half of what their lowest rank accepts; and the turns of one set.
  static constexpr size_t kMostSets = GatherRounds::kMost / 2;
  static constexpr size_t kMostTurns = 4096;

  explicit AllGather(GroupShared& shared) : shared_(shared) {}

  // Without `ranks`, all current members of the group. The result is in the order of `ranks`. A value that cannot
  // travel fails the calls of all. Any thread. Throws INVALID_STATE unless started, INVALID_ARGUMENT for invalid ranks,
  // DISCONNECTED naming a lost member.
  std::shared_ptr<Future<Value>> begin(const Value& value, std::optional<std::vector<int32_t>> ranks, Nanos timeout);
  // On the loop. expects(): whether `turn` is the one under way for these ranks. take(): its values have arrived.
  bool expects(const Ranks& ranks, int64_t turn) const;
  void take(const Ranks& ranks, const Value& values);
  void stop();

 private:
  struct Turn {
    Ranks ranks;
    std::vector<int32_t> order;  // the ranks in the caller's order
    int64_t number = 0;          // random: no other turn has it, not even one of an earlier incarnation
    Value value;
    std::optional<Error> failure;  // why the value cannot travel: it goes in the place of the value, and fails all
    Nanos timeout = kForever;
    Nanos deadline = kNever;
    Loop::TimerId timer = 0;              // times out the future
    std::shared_ptr<Future<Value>> call;  // set once the turn is under way
    bool is_under_way = false;
    bool has_values = false;
    TaskPlace next;  // for the task that begins the next turn of these ranks
    std::shared_ptr<Future<Value>> future;
  };
  using TurnPointer = std::shared_ptr<Turn>;

  void check_serving() const;
  std::vector<int32_t> group() const;
  void try_to_enqueue(const TurnPointer& turn);
  void enqueue(const TurnPointer& turn);
  void try_to_send(const TurnPointer& turn);
  void send(const TurnPointer& turn);
  void on_answer(const TurnPointer& turn, const Future<Value>& answer);
  static void add_own_reason(const Turn& turn, Error& error);
  bool is_next(const Turn& turn) const;
  bool try_to_go_on(const TurnPointer& turn);
  void on_due(const TurnPointer& turn);
  void on_late(Turn& turn);
  void on_cancelled(const TurnPointer& turn);
  void cancel_timer(Turn& turn);
  void give_up(const TurnPointer& turn, Error why);
  void remove(const Turn& turn);
  void send_next_soon(const TurnPointer& turn);
  void send_next(const Turn& turn);

  GroupShared& shared_;
  std::map<Ranks, std::deque<TurnPointer>> turns_;  // the first of each queue is under way; on the loop
};

}  // namespace distag
