#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/future.h"
#include "base/ids.h"
#include "base/mutex.h"
#include "tensor/value.h"

namespace distag {

struct RrefHome;

// A value of this worker that others may use: not made yet, made, or the failure to make it. It lives as long as
// anything holds it: references here, forks of other workers, the call that makes it. Thread-safe.
class OwnedValue {
 public:
  OwnedValue(std::shared_ptr<RrefHome> home, const Id& id) : home_(std::move(home)), id_(id) {}
  ~OwnedValue();
  OwnedValue(const OwnedValue&) = delete;
  OwnedValue& operator=(const OwnedValue&) = delete;

  const Id& id() const { return id_; }
  Future<Value>& outcome() { return *outcome_; }
  // Requires a value that is made or failed; throws the failure, which then counts as seen by a user.
  const Value& value();

  // The call that makes the value, for reports; empty: its owner shares it, or the call has not come yet.
  std::string origin() const;
  void set_origin(std::string origin);

 private:
  void report() const;  // logs a failure that no user saw

  const std::shared_ptr<RrefHome> home_;
  const Id id_;
  std::shared_ptr<Future<Value>> outcome_ = Future<Value>::make();
  std::atomic<bool> is_seen_{false};
  mutable Mutex mutex_;
  std::string origin_ GUARDED_BY(mutex_);
};

// The values of one worker by their ids, without ownership. Thread-safe.
class OwnedTable {
 public:
  void add(const std::shared_ptr<OwnedValue>& value);
  std::shared_ptr<OwnedValue> find(const Id& id) const;  // nullptr: no such value
  std::vector<std::shared_ptr<OwnedValue>> all() const;
  // Visits each value, without memory for a list.
  void visit(const std::function<void(OwnedValue&)>& visitor);
  uint64_t count() const;

 private:
  friend class OwnedValue;
  void remove(const Id& id);

  mutable Mutex mutex_;
  std::unordered_map<Id, std::weak_ptr<OwnedValue>> values_ GUARDED_BY(mutex_);
};

}  // namespace distag
