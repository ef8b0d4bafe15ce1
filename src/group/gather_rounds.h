#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "group/service.h"
#include "group/shared.h"

namespace distag {

// Ranks in ascending order, without repetitions.
using Ranks = std::vector<int32_t>;

// "ranks 0, 1, 2"
std::string describe_ranks(const Ranks& ranks);

// Numbers as they travel: a row of int64. Throws INVALID_ARGUMENT for other values, and for numbers that are no
// ranks.
Value encode_row(const std::vector<int64_t>& numbers);
std::vector<int64_t> decode_row(const Value& value);
Value encode_ranks(const Ranks& ranks);
Ranks decode_ranks(const Value& value);

// Ranks that a round did not reach, with the reasons.
using LeftOut = std::map<int32_t, Error>;

// The request that a member sends to the lowest rank of those that gather. The answer means that the round is over: the
// values have arrived before by another path (GatherTree).
struct GatherRequest {
  Ranks ranks;
  Nanos time_left = kForever;
  int64_t turn = 0;  // identifies the values that belong to the sender's turn
  Value value;
  std::optional<Error> failure;  // why the value cannot travel; then it is null

  Values encode() &&;
  // Throws INVALID_ARGUMENT for malformed arguments.
  static GatherRequest decode(const Values& args);
};

// Collects the contributions of members to the rounds in which this worker is the lowest rank. Each set of ranks has
// one round at a time. A round ends when all members have come, for one member at its deadline, and for all when a
// member is lost. A member that gave up may come again. The calls of a complete round are answered once the values
// have reached all members; if the value of one cannot travel, all of them fail with that. On the loop.
class GatherRounds {
 public:
  // Brings the values to all ranks, this worker first, and reports the ranks that they did not reach; nullptr: some,
  // but there was no memory to note them. `turns`: the turns of the requests, by rank.
  using Spread = std::function<void(const Ranks& ranks, const std::vector<int64_t>& turns, const Value& values,
                                    UniqueFunction<void(const LeftOut*)>)>;

  GatherRounds(GroupShared& shared, Spread spread) : shared_(shared), spread_(std::move(spread)) {}

  // The limit of contributions by one member to incomplete rounds; an honest member never has more under
  // way.
  static constexpr size_t kMost = 1024;

  // The function behind "distag.all_gather".
  void on_call(const GroupCall& call);
  void on_peer_gone(const Peer& peer, const Error& error);
  // For each of at most `most` incomplete rounds: the ranks that have not come.
  std::vector<Ranks> missing(size_t most) const;
  // Must be called before it is destroyed.
  void stop();
  void abandon() { rounds_.clear(); }

 private:
  struct Contribution {
    Incarnation from = 0;
    int64_t turn = 0;
    Value value;
    std::optional<Error> failure;
    uint64_t bytes = 0;  // size of the value
    std::shared_ptr<PendingReply> reply;
    Loop::TimerId timer = 0;  // 0: none
  };
  struct Round {
    std::map<int32_t, Contribution> came;  // by rank: members that have come
    std::set<int32_t> gave_up;             // members that had come, and have not come again
  };

  void check(const GatherRequest& request, const Peer& caller) const;
  void check_room(GatherRequest& request, const Peer& caller);
  Error deadline_error(const Ranks& ranks, const Round& round) const;
  void drop_given_up(Round& round);
  void add(Round& round, GatherRequest request, const Peer& caller, std::shared_ptr<PendingReply> reply);
  void look_for_missing(const Ranks& ranks, const Round& round);
  void on_due(const Ranks& ranks, int32_t rank);
  void give_up(Round& round, int32_t rank);
  void remove(Round& round, int32_t rank);
  void complete(const Ranks& ranks);
  static void answer(PendingReply& reply, const Error* why) noexcept;
  void fail_round(const Ranks& ranks, const Error& error, int32_t origin);

  GroupShared& shared_;
  const Spread spread_;
  std::map<Ranks, Round> rounds_;
};

}  // namespace distag
