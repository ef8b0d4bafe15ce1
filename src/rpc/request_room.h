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

// The room that one request takes of what its caller may have here without its being begun. Any thread.
//
// It is given back exactly once: when the request begins or waits for something else than its turn, or else with this.
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
  // The request comes again, and its caller has yet to hear that it was taken.
  void give_up() noexcept { give_back(0); }

  // The memory that it takes, whatever its caller says.
  uint64_t bytes() const { return bytes_; }
  CallerAccount& account() const { return *account_; }
  // The costs of requests that its caller may hear of.
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
