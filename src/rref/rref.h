#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/error.h"
#include "base/log.h"
#include "base/loop_gate.h"
#include "base/mutex.h"
#include "rref/owned.h"
#include "session/session.h"
#include "wire/message.h"

namespace distag {

class Sharing;
struct ForkRelease;

// The state that the references and values of one worker have in common. They may outlive it: then the gate is closed.
struct RrefHome : std::enable_shared_from_this<RrefHome> {
  RrefHome(Loop& loop_, Log& log_) : gate(loop_), loop(loop_), log(log_) {}

  std::shared_ptr<OwnedValue> make_value(const Id& id);

  LoopGate gate;
  Loop& loop;                  // through the gate
  Log& log;                    // through the gate
  Sharing* sharing = nullptr;  // through the gate
  std::shared_ptr<void> host;  // of the layer above, see Rrefs::set_host
  OwnedTable table;
  std::atomic<uint64_t> used{0};   // references to values of others
  std::atomic<uint64_t> forks{0};  // held by others on values of this worker
};

// A reference: at the owner a hold on the value, elsewhere a fork, which ends with it. Thread-safe.
class Rref final : public wire::Reference {
 public:
  // At the owner.
  Rref(std::shared_ptr<RrefHome> home, std::shared_ptr<OwnedValue> owned);
  // Elsewhere. `fork` none: the owner does not count it, and never will.
  Rref(std::shared_ptr<RrefHome> home, const Id& value, std::shared_ptr<const Peer> owner, const Id& fork);
  ~Rref() override;
  Rref(const Rref&) = delete;
  Rref& operator=(const Rref&) = delete;

  bool is_owner() const { return owned_ != nullptr; }
  bool is_of(const std::shared_ptr<RrefHome>& home) const { return home_ == home; }
  const std::shared_ptr<void>& host() const { return home_->host; }
  // The same for all references to one value.
  uint64_t number() const;

  const std::shared_ptr<OwnedValue>& owned() const { return owned_; }               // nullptr elsewhere
  const std::shared_ptr<const Peer>& owner_peer() const { return owner_peer_; }     // nullptr at the owner
  bool is_confirmed() const { return confirmed_.load(std::memory_order_acquire); }  // the owner knows of it
  void confirm() { confirmed_.store(true, std::memory_order_release); }
  // The owner has not heard of its fork: nothing is to be dropped. Before anybody else has it.
  void forget_fork() { release_.reset(); }

  // Elsewhere: the call that should have made the value never went out. Logged if it is never asked for.
  void fail(Error error);
  std::optional<Error> failure();

 private:
  const std::shared_ptr<RrefHome> home_;
  const std::shared_ptr<OwnedValue> owned_;
  const std::shared_ptr<const Peer> owner_peer_;
  std::shared_ptr<ForkRelease> release_;  // nullptr: without a fork
  std::atomic<bool> confirmed_{false};
  Mutex mutex_;
  std::optional<Error> failure_ GUARDED_BY(mutex_);
  bool is_failure_seen_ GUARDED_BY(mutex_) = false;
};

// The name of a value where there is room for one number only.
uint64_t number_of(const Id& value);

// A value that is a reference of a worker; nullptr for anything else.
std::shared_ptr<Rref> as_rref(const Value& value);

}  // namespace distag
