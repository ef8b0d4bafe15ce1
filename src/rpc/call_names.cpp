#include "rpc/call_names.h"

namespace distag {

std::string name_call(const std::string& function, const std::string& label, const Peer& callee) {
  if (label.empty()) return fmt::format("call \"{}\" on \"{}\"", function, callee.name);
  return fmt::format("call \"{}\" (\"{}\") on \"{}\"", function, label, callee.name);
}

std::string describe_call(const std::string& function, const std::string& label, const Peer& callee) {
  return fmt::format("{} (rank {})", name_call(function, label, callee), callee.rank);
}

}  // namespace distag
