#pragma once

#include <memory>

#include "capi/value.h"
#include "capi/worker.h"
#include "rref/rrefs.h"

// Every handle of a value that is a reference is one of these.
struct distag_rref final : distag_value {
  explicit distag_rref(distag::Value value);

  const std::shared_ptr<distag::Rref>& core() const { return core_; }
  // Throws INVALID_STATE when the worker is down.
  distag_worker& worker() const;
  const char* owner_name() const;
  // Call only on the owner, once the value is there. Throws the failure to make it.
  distag_value* local();

 private:
  const std::shared_ptr<distag::Rref> core_;
  const distag::capi::Ref<distag_worker> worker_;  // nullptr: the worker has ended
  distag::capi::Lent<distag_value> local_;
};
