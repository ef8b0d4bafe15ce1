#pragma once

#include <memory>

#include "capi/value.h"
#include "capi/worker.h"
#include "rref/rrefs.h"

// Every handle of a value that is a reference is one of these.
struct distag_rref final : distag_value {
  explicit distag_rref(distag::Value value);

  const std::shared_ptr<distag::Rref>& core() const { return core_; }
  // Throws INVALID_STATE when it is down.
  distag_worker& worker() const;
  const char* owner_name() const;
  // The value, only at its owner and once it is there. Throws the failure to make it.
  distag_value* local();

 private:
  const std::shared_ptr<distag::Rref> core_;
  const distag::capi::Ref<distag_worker> worker_;  // nullptr: it has ended
  distag::capi::Lent<distag_value> local_;
};
