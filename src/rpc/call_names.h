#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/trace_parent.h"
#include "group/membership.h"

namespace distag {

// For events of a trace; empty: none.
inline std::string_view trace_id_of(const std::shared_ptr<const TraceParent>& trace_parent) {
  return trace_parent == nullptr ? std::string_view() : trace_parent->trace_id();
}

// `call "embed" ("layer 3") on "ps1"`, without what is in brackets when it has no label: how autograd names it.
std::string name_call(const std::string& function, const std::string& label, const Peer& callee);
// The same and ` (rank 3)`: what errors of calls begin with.
std::string describe_call(const std::string& function, const std::string& label, const Peer& callee);

}  // namespace distag
