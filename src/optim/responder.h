#pragma once

#include <memory>

#include "base/future.h"
#include "rpc/rpc.h"

namespace distag::optim {

// The destination of the answer to a request: the caller on another worker, or a future here. A refusal is an answer
// too, so that the asker can distinguish it from a lost call, whose outcome is unknown. A responder that is destroyed
// unfinished fails the request.
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
  // Whether the asker no longer waits for the answer.
  bool is_cancelled() const;

  // Returns the value of an answer; throws the Error of a refusal.
  static const Value& read(const Value& answer);

 private:
  void send(Value answer);

  std::shared_ptr<PendingReply> remote_;
  std::shared_ptr<Future<Value>> here_;
  std::shared_ptr<Invocation> within_;
};

}  // namespace distag::optim
