#pragma once

#include <memory>
#include <optional>

#include "base/error.h"
#include "rpc/answer_room.h"
#include "tensor/value.h"
#include "wire/message.h"
#include "wire/packed.h"

namespace distag {

// The answer to a call: a value or an error. `original` is the value with its history, if the call has a context.
struct Answer {
  Value value;
  std::shared_ptr<const wire::Packed> packed;  // replaces `value` when set
  Value original;
  std::optional<Error> error;
  AnswerRoom::Share share;
};

// Prepares a result to travel, or to stay here if the request says so. Throws when it cannot. Any thread.
Answer make_answer(const RpcShared& shared, const wire::Call& request, Value value);

}  // namespace distag
