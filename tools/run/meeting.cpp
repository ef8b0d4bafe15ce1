#include "run/meeting.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string_view>

namespace distag_tool {
namespace {

// Variables that a rank gets, or must not inherit.
constexpr std::array<std::string_view, 6> kPlace = {"RANK",       "WORLD_SIZE",      "LOCAL_RANK", "LOCAL_WORLD_SIZE",
                                                    "GROUP_RANK", "GROUP_WORLD_SIZE"};
constexpr std::array<std::string_view, 6> kOthers = {"DISTAG_RENDEZVOUS",  "MASTER_ADDR",
                                                     "MASTER_PORT",        "DISTAG_MASTER_ADDR",
                                                     "DISTAG_MASTER_PORT", "DISTAG_RESTART_COUNT"};

bool is_replaced(std::string_view name) {
  if (std::find(kOthers.begin(), kOthers.end(), name) != kOthers.end()) return true;
  if (name.starts_with("DISTAG_")) name.remove_prefix(std::strlen("DISTAG_"));
  return std::find(kPlace.begin(), kPlace.end(), name) != kPlace.end();
}

// Only a program that sets SO_REUSEADDR, as servers do, gets the port while it is held in this way.
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

constexpr const char* kBlasThreads = "OPENBLAS_NUM_THREADS";

}  // namespace

bool Meeting::limits_blas(int rank_count) {
  for (const char* name : {kBlasThreads, "GOTO_NUM_THREADS", "OMP_NUM_THREADS"}) {  // all variables that OpenBLAS reads
    const char* const value = std::getenv(name);
    if (value != nullptr && *value != '\0') return false;
  }
  return rank_count > 1;
}

Meeting::Meeting() : folder_("distag-run"), held_(hold_port(port_)) {}

std::vector<std::string> Meeting::make_environment(int rank, int rank_count, int restart) const {
  std::vector<std::string> result;
  for (char** each = environ; *each != nullptr; ++each) {
    const std::string_view variable = *each;
    const std::string_view name = variable.substr(0, variable.find('='));
    if (!is_replaced(name) && (name != kBlasThreads || !limits_blas(rank_count))) result.emplace_back(variable);
  }
  for (const char* prefix : {"DISTAG_", ""}) {
    const int place[] = {rank, rank_count, rank, rank_count, 0, 1};  // values of kPlace: all ranks are on this machine
    for (size_t i = 0; i < kPlace.size(); ++i) {
      result.push_back(prefix + std::string(kPlace[i]) + "=" + std::to_string(place[i]));
    }
  }
  if (limits_blas(rank_count)) result.push_back(kBlasThreads + std::string("=1"));
  result.push_back("DISTAG_RESTART_COUNT=" + std::to_string(restart));
  result.push_back("DISTAG_RENDEZVOUS=file://" + folder_.path());
  result.push_back("MASTER_ADDR=127.0.0.1");
  result.push_back("MASTER_PORT=" + std::to_string(port_));
  return result;
}

}  // namespace distag_tool
