#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/future.h"
#include "base/ids.h"
#include "base/task.h"
#include "session/session.h"
#include "tensor/value.h"
#include "wire/message.h"

namespace distag {

// The layer above, as calls use it (remote references). All on the loop, unless it says
// otherwise.

// References among the values of a message. Only called for values that have references.
class ReferenceTravel {
 public:
  virtual ~ReferenceTravel() = default;

  // Throws INVALID_ARGUMENT for a value that holds a reference of another worker. Any thread.
  virtual void check(const Value& value) const = 0;
  // Called when the message is sent. Throws, if `to` is the owner, the error of a value whose call never went out.
  // Throws OVERLOADED if `to` has too many references.
  virtual void check_made(const Peer& to, const Value& value) const = 0;

  // Called when the message gets its number: returns the values as they travel, which have to be held until after that.
  // When it throws, the message does not go out.
  virtual Values on_send(const Peer& to, const Values& values) = 0;
  // A value as it arrives, before anything else is done with the message. If there is no memory, it may be called
  // again, also with a value that it has returned.
  virtual Value on_receive(const Peer& from, const Value& value) = 0;
};

// Calls whose result stays at the callee as `kept`.
class ReferenceCreation {
 public:
  virtual ~ReferenceCreation() = default;

  // At the caller: the call is queued, numbered, acknowledged, or it never goes out.
  virtual void on_creation_queued(const wire::Reference& kept) = 0;
  virtual void on_creation_numbered(const wire::Reference& kept) = 0;
  virtual void on_creation_acknowledged(wire::Reference& kept) = 0;
  virtual void on_creation_failed(wire::Reference& kept, const Peer& callee, const Error& error) = 0;
  // At the callee, when the call has come: the future for its result, and what holds the value until then.
  virtual std::shared_ptr<Future<Value>> on_creation(const Peer& from, const Id& value, const std::string& call) = 0;
};

// Arguments that refer to values of this worker.
class ReferencedArguments {
 public:
  virtual ~ReferencedArguments() = default;

  // Runs `ready` once all of these values are made, with the first failure among those that are arguments themselves.
  virtual void when_ready(const Values& args, UniqueFunction<void(const Error*)> ready) = 0;
  // The arguments, with those that refer to a value of this worker replaced by it. Any thread, once they are ready.
  virtual Values resolve(const Values& args) const = 0;
};

// Installed by the worker before the start.
class ReferenceHook : public ReferenceTravel, public ReferenceCreation, public ReferencedArguments {
 public:
  // The values that other workers still hold, one line each.
  virtual std::vector<std::string> leaks() const = 0;
};

}  // namespace distag
