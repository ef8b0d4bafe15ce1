#include "run/meeting.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <string_view>

namespace distag_tool {
namespace {

// Those that a rank finds, or must not find, as they would go before.
constexpr std::array<std::string_view, 9> kVariables = {"DISTAG_RANK", "DISTAG_WORLD_SIZE",  "DISTAG_RENDEZVOUS",
                                                        "RANK",        "WORLD_SIZE",         "MASTER_ADDR",
                                                        "MASTER_PORT", "DISTAG_MASTER_ADDR", "DISTAG_MASTER_PORT"};

// Only who sets SO_REUSEADDR, as servers do, gets the port while it is held so.
Descriptor hold_port(int& port) {
  Descriptor held(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  if (held.get() < 0 || setsockopt(held.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
      bind(held.get(), generic, size) != 0 || getsockname(held.get(), generic, &size) != 0) {
    throw std::runtime_error(std::string("no port of this machine is to be had: ") + std::strerror(errno));
  }
  port = ntohs(address.sin_port);
  return held;
}

}  // namespace

Meeting::Meeting() : folder_("distag-run"), held_(hold_port(port_)) {}

std::vector<std::string> Meeting::make_environment(int rank, int rank_count) const {
  std::vector<std::string> result;
  for (char** each = environ; *each != nullptr; ++each) {
    const std::string_view variable = *each;
    const std::string_view name = variable.substr(0, variable.find('='));
    if (std::find(kVariables.begin(), kVariables.end(), name) == kVariables.end()) result.emplace_back(variable);
  }
  for (const char* prefix : {"DISTAG_", ""}) {
    result.push_back(prefix + ("RANK=" + std::to_string(rank)));
    result.push_back(prefix + ("WORLD_SIZE=" + std::to_string(rank_count)));
  }
  result.push_back("DISTAG_RENDEZVOUS=file://" + folder_.path());
  result.push_back("MASTER_ADDR=127.0.0.1");
  result.push_back("MASTER_PORT=" + std::to_string(port_));
  return result;
}

}  // namespace distag_tool
