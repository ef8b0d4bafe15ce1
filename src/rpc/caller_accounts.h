#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <unordered_map>

#include "rpc/answer_room.h"
#include "rpc/rpc.h"
#include "rpc/taken_costs.h"

namespace distag {

// The calls and answers of one caller, as this worker counts them.
struct CallerAccount {
  std::shared_ptr<TakenCosts> taken;
  std::shared_ptr<AnswerRoom> answers;
  size_t open = 0;  // open calls of the caller; on the loop
};

// The accounts of all callers. On the loop.
//
// A caller has one account from its first request until it is gone; its calls may hold the account longer. Calls that
// wait for room in a closed account never begin: close() returns them, so that they can be freed.
class CallerAccounts {
 public:
  using Calls = std::list<std::shared_ptr<IncomingCall>>;

  explicit CallerAccounts(RpcShared& shared) : shared_(shared) {}

  const std::shared_ptr<CallerAccount>& of(Incarnation caller);
  // A request of that cost was dropped before it reached its call.
  void drop(Incarnation caller, uint64_t cost);
  // The total cost of the caller's requests that were taken.
  uint64_t taken(Incarnation caller);
  Heard on_credit_wanted(Incarnation caller, uint64_t taken);
  // The caller is gone.
  Calls close(Incarnation caller);
  Calls close_all() noexcept;  // also when the loop is gone

 private:
  RpcShared& shared_;
  std::unordered_map<Incarnation, std::shared_ptr<CallerAccount>> accounts_;
};

}  // namespace distag
