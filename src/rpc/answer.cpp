#include "rpc/answer.h"

#include <utility>

#include "rpc/references.h"
#include "rpc/rpc_shared.h"
#include "tensor/deferred.h"
#include "wire/codec.h"

namespace distag {

Answer make_answer(const RpcShared& shared, const wire::Call& request, Value value) {
  check_references(shared, value);
  Answer answer;
  if (request.keep) {
    make_elements(value);
    answer.value = std::move(value);
    return answer;
  }
  if (value.kind() == ValueKind::kObject) {
    fail(Status::kInvalidArgument,
         "an object of type \"{}\" cannot travel: it answers only calls whose result stays here",
         value.as_object()->type);
  }
  answer.value = wire::prepare(value);
  answer.packed = wire::Packed::make(answer.value);
  if (answer.packed != nullptr) answer.value = Value();
  if (request.metadata.context && value.has_tensor()) answer.original = std::move(value);
  return answer;
}

}  // namespace distag
