#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/ids.h"
#include "base/trace_parent.h"
#include "group/service.h"
#include "tensor/value.h"

namespace distag {

class Rpc;

// An incoming call, as its function sees it. Thread-safe.
class Invocation : public std::enable_shared_from_this<Invocation> {
 public:
  virtual ~Invocation() = default;
  virtual Rpc& rpc() = 0;
  virtual const std::string& function() const = 0;
  virtual const std::string& caller() const = 0;  // name of the calling worker
  virtual const Id& context() const = 0;          // {0,0}: none
  virtual const Values& args() const = 0;
  virtual const std::shared_ptr<const TraceParent>& trace_parent() const = 0;  // nullptr: none
  virtual Nanos deadline() const = 0;                                          // kNever: none
  virtual Nanos time_left() const = 0;                                         // kForever: no limit
  virtual bool is_cancelled() const = 0;
  // Sets the answer, which goes out when the function returns. Throws INVALID_STATE if the call was answered or
  // deferred.
  virtual void set_result(Value value) = 0;
  // Keeps the call open after the function has returned. Throws INVALID_STATE in the same cases.
  virtual std::shared_ptr<PendingReply> defer() = 0;
};

// Runs on the functions executor; throws Error to fail the call.
using Function = std::function<void(Invocation&)>;

}  // namespace distag
