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

// The state that the references and values of one worker share. They may outlive the worker; the gate is closed then.
struct RrefHome : std::enable_shared_from_this<RrefHome> {
  RrefHome(Loop& loop_, Log& log_) : gate(loop_), loop(loop_), log(log_) {}

  std::shared_ptr<OwnedValue> make_value(const Id& id);

  LoopGate gate;
  Loop& loop;                  // only through the gate
  Log& log;                    // only through the gate
  Sharing* sharing = nullptr;  // only through the gate
  std::shared_ptr<void> host;  // set by the layer above, see Rrefs::set_host
  OwnedTable table;
  std::atomic<uint64_t> used{0};   // references to values of other workers
  std::atomic<uint64_t> forks{0};  // forks of this worker's values that others hold
};

// A reference: at the owner it holds the value, elsewhere it is a fork, which ends with it. Thread-safe.
class Rref final : public wire::Reference {
 public:
  // For a reference at the owner.
  Rref(std::shared_ptr<RrefHome> home, std::shared_ptr<OwnedValue> owned);
  // For a reference elsewhere. Without `fork` the owner does not count the reference, and never will.
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
  bool is_confirmed() const { return confirmed_.load(std::memory_order_acquire); }  // the owner knows of the fork
  void confirm() { confirmed_.store(true, std::memory_order_release); }
  // For a fork of which the owner has not heard: no Drop will be sent. Must be called before the reference is shared.
  void forget_fork() { release_.reset(); }

  // Elsewhere: the call that should have made the value never went out. The failure is logged if nothing asks for it.
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

// The id of a value as a single number.
uint64_t number_of(const Id& value);

// A value that is a reference of a worker; nullptr for any other value.
std::shared_ptr<Rref> as_rref(const Value& value);

}  // namespace distag
