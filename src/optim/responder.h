#pragma once

#include <memory>

#include "base/future.h"
#include "rpc/rpc.h"

namespace distag::optim {

// Where the answer to a request goes: to the caller on another worker, or to a future here. A refusal is an answer too,
// so that the asker can tell it from a call that was lost, whose outcome is unknown. One that is dropped unfinished
// fails.
class Responder {
 public:
  explicit Responder(std::shared_ptr<PendingReply> remote) : remote_(std::move(remote)) {}
  Responder(std::shared_ptr<Future<Value>> here, std::shared_ptr<Invocation> within)
      : here_(std::move(here)), within_(std::move(within)) {}
  Responder(Responder&&) noexcept = default;
  Responder& operator=(Responder&&) = delete;
  ~Responder();

  void finish(Value value);
  // The request had no effect.
  void refuse(const Error& error);
  // The asker no longer waits for it.
  bool is_cancelled() const;

  // The value of an answer; throws the Error of a refusal.
  static const Value& read(const Value& answer);

 private:
  void send(Value answer);

  std::shared_ptr<PendingReply> remote_;
  std::shared_ptr<Future<Value>> here_;
  std::shared_ptr<Invocation> within_;
};

}  // namespace distag::optim
