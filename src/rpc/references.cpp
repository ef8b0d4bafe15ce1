#include "rpc/references.h"

#include <algorithm>
#include <utility>

namespace distag {

void check_references(const RpcShared& shared, const Value& value) {
  if (!value.has_external()) return;
  if (shared.references == nullptr) fail(Status::kUnsupported, "this worker knows no remote references");
  shared.references->check(value);
}

void convert_references(RpcShared& shared, const Peer& to, Values& values) {
  if (std::none_of(values.begin(), values.end(), [](const Value& value) { return value.has_external(); })) return;
  shared.environment.loop.post_or_drop([held = values] {});
  values = shared.references->on_send(to, values);
}

void convert_reference(RpcShared& shared, const Peer& to, Value& value) {
  if (!value.has_external()) return;
  Values values{value};
  convert_references(shared, to, values);
  value = std::move(values.front());
}

void receive_references(RpcShared& shared, const Peer& from, Value& value) {
  if (!value.has_external()) return;
  if (shared.references == nullptr) fail(Status::kUnsupported, "this worker knows no remote references");
  value = shared.references->on_receive(from, value);
}

}  // namespace distag
