#include "optim/responder.h"

#include <utility>

namespace distag::optim {

Responder::~Responder() {
  if (here_ != nullptr) fail_dropped(*here_);
}

void Responder::finish(Value value) { send(Value::list({std::move(value)})); }

void Responder::refuse(const Error& error) {
  send(
      Value::map({{"status", Value(static_cast<int64_t>(error.status()))}, {"message", Value::text(error.message())}}));
}

void Responder::send(Value answer) {
  if (remote_ != nullptr) {
    remote_->finish(std::move(answer));
  } else {
    here_->complete(std::move(answer));
  }
}

const Value& Responder::read(const Value& answer) {
  if (answer.kind() == ValueKind::kList && answer.as_list().size() == 1) return answer.as_list()[0];
  const Value* status = answer.kind() == ValueKind::kMap ? answer.find("status") : nullptr;
  const Value* message = answer.kind() == ValueKind::kMap ? answer.find("message") : nullptr;
  if (status == nullptr || message == nullptr) {
    fail(Status::kProtocol, "the answer of an owner of parameters has no form that is known");
  }
  const int64_t code = status->as_int64();
  throw Error(code > 0 ? static_cast<Status>(code) : Status::kRemote, message->as_text());
}

bool Responder::is_cancelled() const {
  if (remote_ != nullptr) return remote_->is_cancelled();
  return here_->is_done() || (within_ != nullptr && within_->is_cancelled());
}

}  // namespace distag::optim
