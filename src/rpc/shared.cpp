#include "rpc/shared.h"

namespace distag {

std::string describe_call(const std::string& function, const Peer& callee) {
  return fmt::format("call \"{}\" on \"{}\" (rank {})", function, callee.name, callee.rank);
}

std::string name_call(const std::string& function, const std::string& label, const Peer& callee) {
  if (label.empty()) return fmt::format("call \"{}\" on \"{}\"", function, callee.name);
  return fmt::format("call \"{}\" (\"{}\") on \"{}\"", function, label, callee.name);
}

std::string describe_peer(const Peer& peer) { return fmt::format("worker \"{}\" (rank {})", peer.name, peer.rank); }

}  // namespace distag
