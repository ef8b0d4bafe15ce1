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

// Brings the values of several members to each of them: every one calls the one of lowest rank, from which the values
// of all come down a tree once all have come (GatherTree), and then the answer. A worker has one call under way for a
// set of ranks, until it is answered or its callee is lost; the next ones wait for it, so the first meets the first of
// the others, the second the second, and values that come are those of the one under way. One that failed does not
// count. Shared with what it posts to the loop.
class AllGather : public std::enable_shared_from_this<AllGather> {
 public:
  static constexpr const char* kFunction = "distag.all_gather";
  // Sets of ranks that have a turn, which is as many as the lowest of them takes half of; and turns of one set.
  static constexpr size_t kMostSets = GatherRounds::kMost / 2;
  static constexpr size_t kMostTurns = 4096;

  explicit AllGather(GroupShared& shared) : shared_(shared) {}

  // Without ranks: the group of this moment. The list is in the order of `ranks`. Any thread. Throws INVALID_STATE
  // unless started, INVALID_ARGUMENT for the ranks and for a value that cannot travel, DISCONNECTED naming who is gone.
  std::shared_ptr<Future<Value>> begin(const Value& value, std::optional<std::vector<int32_t>> ranks, Nanos timeout);
  // On the loop. Whether that turn of these ranks is the one under way, and the arrival of its values.
  bool expects(const Ranks& ranks, int64_t turn) const;
  void take(const Ranks& ranks, const Value& values);
  void stop();

 private:
  struct Turn {
    Ranks ranks;
    std::vector<int32_t> order;  // as the caller gave them
    int64_t number = 0;          // random: no other turn has it, of an earlier incarnation either
    Value value;
    Nanos timeout = kForever;
    Nanos deadline = kNever;
    Loop::TimerId timer = 0;              // ends its future
    std::shared_ptr<Future<Value>> call;  // once it is under way
    bool is_under_way = false;
    bool has_values = false;
    TaskPlace next;  // for the next of its ranks to begin
    std::shared_ptr<Future<Value>> future = Future<Value>::make();
  };
  using TurnPointer = std::shared_ptr<Turn>;

  void check_serving() const;
  std::vector<int32_t> group() const;
  void try_to_enqueue(const TurnPointer& turn);
  void enqueue(const TurnPointer& turn);
  void try_to_send(const TurnPointer& turn);
  void send(const TurnPointer& turn);
  void on_answer(const TurnPointer& turn, const Future<Value>& answer);
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
  std::map<Ranks, std::deque<TurnPointer>> turns_;  // the first of each is under way; on the loop
};

}  // namespace distag
