#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "rpc/caller_accounts.h"
#include "rpc/rpc_shared.h"
#include "wire/message.h"

namespace distag {

// The share of one request in what its caller may have here unbegun. Any thread.
//
// The room is given back exactly once: when the request begins or waits for something other than its turn, else by the
// destructor.
class RequestRoom {
 public:
  // On the loop. `shared` outlives this.
  RequestRoom(RpcShared& shared, std::shared_ptr<CallerAccount> account, const wire::Call& request)
      : shared_(shared),
        account_(std::move(account)),
        cost_(request.cost),
        bytes_(std::max(request.cost, request.bytes)) {
    account_->taken->note_come(bytes_);
  }
  ~RequestRoom() { give_back(); }
  RequestRoom(const RequestRoom&) = delete;
  RequestRoom& operator=(const RequestRoom&) = delete;

  void give_back() noexcept { give_back(cost_); }
  // The request will come again, so its caller must not yet learn that it was taken.
  void give_up() noexcept { give_back(0); }

  // The memory that the request takes, whatever its caller claims.
  uint64_t bytes() const { return bytes_; }
  CallerAccount& account() const { return *account_; }
  // The total cost to report to the caller.
  uint64_t taken() const { return account_->taken->total(); }

 private:
  void give_back(uint64_t cost) noexcept {
    if (!is_given_back_.exchange(true)) account_->taken->add(shared_.gate, cost, bytes_);
  }

  RpcShared& shared_;
  const std::shared_ptr<CallerAccount> account_;
  const uint64_t cost_;
  const uint64_t bytes_;
  std::atomic<bool> is_given_back_{false};
};

}  // namespace distag
