#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "group/service.h"
#include "group/shared.h"

namespace distag {

// Ranks in ascending order, none twice.
using Ranks = std::vector<int32_t>;

// "ranks 0, 1, 2"
std::string describe_ranks(const Ranks& ranks);

// Numbers as they travel: a row of int64. Throws INVALID_ARGUMENT for other values, and for numbers that cannot be
// ranks.
Value encode_row(const std::vector<int64_t>& numbers);
std::vector<int64_t> decode_row(const Value& value);
Value encode_ranks(const Ranks& ranks);
Ranks decode_ranks(const Value& value);

// Ranks that a round did not reach, and why.
using LeftOut = std::map<int32_t, Error>;

// The request that a member sends to the one of lowest rank among those that gather. The answer says that the round is
// over: the values have come another way before (GatherTree).
struct GatherRequest {
  Ranks ranks;
  Nanos time_left = kForever;
  int64_t turn = 0;  // by which its sender knows the values that are for it
  Value value;

  Values encode() &&;
  // Throws INVALID_ARGUMENT for what it cannot be.
  static GatherRequest decode(const Values& args);
};

// Collects what members contribute to the rounds of which this worker is the lowest rank; each set of ranks has one
// round at a time. A round ends when all have come, for one of them at its deadline, and for all when one is gone. A
// member that gave up is as if it had not come. Of a round for which all have come the calls are answered once the
// values have reached everybody. On the loop.
class GatherRounds {
 public:
  // Brings the values to all, this worker first, and tells which ranks they did not reach; nullptr: some, but there was
  // no memory to note them. `turns`: those of the requests, by rank.
  using Spread = std::function<void(const Ranks& ranks, const std::vector<int64_t>& turns, const Value& values,
                                    UniqueFunction<void(const LeftOut*)>)>;

  GatherRounds(GroupShared& shared, Spread spread) : shared_(shared), spread_(std::move(spread)) {}

  // Contributions of one member to rounds that are not complete; as many as an honest one has under way are room
  // enough.
  static constexpr size_t kMost = 1024;

  // The function behind "distag.all_gather".
  void on_call(const GroupCall& call);
  void on_peer_gone(const Peer& peer, const Error& error);
  // The ranks that have not come to a round that others have come to; at most that many rounds.
  std::vector<Ranks> missing(size_t most) const;
  // Before it is destroyed.
  void stop();
  void abandon() { rounds_.clear(); }

 private:
  struct Contribution {
    Incarnation from = 0;
    int64_t turn = 0;
    Value value;
    uint64_t bytes = 0;  // of the value
    std::shared_ptr<PendingReply> reply;
    Loop::TimerId timer = 0;  // 0: none
  };
  struct Round {
    std::map<int32_t, Contribution> came;  // by rank
  };

  void check(const GatherRequest& request, const Peer& caller) const;
  void check_room(const GatherRequest& request, const Peer& caller);
  std::string describe_missing(const Ranks& ranks, const Round& round) const;
  void drop_given_up(Round& round);
  void add(Round& round, GatherRequest request, const Peer& caller, std::shared_ptr<PendingReply> reply);
  void look_for_missing(const Ranks& ranks, const Round& round);
  void on_due(const Ranks& ranks, int32_t rank, Nanos timeout);
  void remove(Round& round, int32_t rank);
  void complete(const Ranks& ranks);
  static void answer(PendingReply& reply, const Error* why) noexcept;
  void fail_round(const Ranks& ranks, const Error& error);

  GroupShared& shared_;
  const Spread spread_;
  std::map<Ranks, Round> rounds_;
};

}  // namespace distag
