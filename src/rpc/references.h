#pragma once

#include "rpc/rpc_shared.h"

namespace distag {

// Throws INVALID_ARGUMENT for a value with a reference that cannot travel from this worker. Any thread.
void check_references(const RpcShared& shared, const Value& value);
// Converts the values of a message that is being numbered; they are held until it has its number. Converts all of them
// or, when it throws, none.
void convert_references(RpcShared& shared, const Peer& to, Values& values);
void convert_reference(RpcShared& shared, const Peer& to, Value& value);
// Converts a value of a message that has come. Throws Violation.
void receive_references(RpcShared& shared, const Peer& from, Value& value);

}  // namespace distag
