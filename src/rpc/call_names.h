#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/trace_parent.h"
#include "group/membership.h"

namespace distag {

// The trace id for events of a trace; empty: none.
inline std::string_view trace_id_of(const std::shared_ptr<const TraceParent>& trace_parent) {
  return trace_parent == nullptr ? std::string_view() : trace_parent->trace_id();
}

// Returns `call "embed" ("layer 3") on "ps1"`; the brackets are omitted if there is no label. Autograd names calls so.
std::string name_call(const std::string& function, const std::string& label, const Peer& callee);
// The same followed by ` (rank 3)`; errors of calls begin with it.
std::string describe_call(const std::string& function, const std::string& label, const Peer& callee);

}  // namespace distag
