#include "transport/socket/address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <unistd.h>

#include <charconv>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <string_view>

#include "base/error.h"

namespace distag {
namespace {

constexpr const char* kForms = "give \"tcp://host:port\" or \"ipc:///path\"";

SocketAddress parse_ipc(const std::string& endpoint) {
  const std::string path = endpoint.substr(std::strlen("ipc://"));
  SocketAddress result;
  auto& address = reinterpret_cast<sockaddr_un&>(result.address);
  if (path.empty() || path[0] != '/' || path.find('\0') != std::string::npos) {
    fail(Status::kInvalidArgument, "\"{}\" is no ipc endpoint: give an absolute path, \"ipc:///path\"", endpoint);
  }
  if (path.size() >= sizeof address.sun_path) {
    fail(Status::kInvalidArgument,
         "the path of \"{}\" has {} bytes, and the system takes at most {}: use a shorter directory (TMPDIR or "
         "XDG_RUNTIME_DIR for private endpoints)",
         endpoint, path.size(), sizeof address.sun_path - 1);
  }
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  result.length = sizeof address;
  result.endpoint = endpoint;
  return result;
}

std::optional<uint16_t> number_of(std::string_view text) {
  uint16_t port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return port;
}

struct Ports {
  uint16_t first = 0;
  uint16_t last = 0;  // of a range
};

Ports parse_ports(const std::string& endpoint, const std::string& text, bool for_listening) {
  const size_t dash = for_listening ? text.find('-') : std::string::npos;
  const std::optional<uint16_t> first = number_of(std::string_view(text).substr(0, dash));
  if (!first) {
    fail(Status::kInvalidArgument, "port \"{}\" of \"{}\" is not a number from {} to 65535", text, endpoint,
         for_listening ? "0" : "1");
  }
  if (*first == 0 && !for_listening) {
    fail(Status::kInvalidArgument, "port 0 of \"{}\" cannot be dialled: give the port at which the worker listens",
         endpoint);
  }
  if (dash == std::string::npos) return {*first, 0};
  const std::optional<uint16_t> last = number_of(std::string_view(text).substr(dash + 1));
  if (!last || *first == 0 || *last < *first) {
    fail(Status::kInvalidArgument, "\"{}\" has no range of ports: give \"tcp://host:first-last\"", endpoint);
  }
  return {*first, *last};
}

// In network byte order.
in_port_t& port_of(SocketAddress& address) {
  if (address.family() == AF_INET) return reinterpret_cast<sockaddr_in&>(address.address).sin_port;
  return reinterpret_cast<sockaddr_in6&>(address.address).sin6_port;
}

in_port_t port_of(const SocketAddress& address) {
  if (address.family() == AF_INET) return reinterpret_cast<const sockaddr_in&>(address.address).sin_port;
  return reinterpret_cast<const sockaddr_in6&>(address.address).sin6_port;
}

// The host, without its port.
std::string text_of_host(const SocketAddress& address) {
  char text[INET6_ADDRSTRLEN] = {};
  if (address.family() == AF_INET) {
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in&>(address.address).sin_addr, text, sizeof text);
    return text;
  }
  inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6&>(address.address).sin6_addr, text, sizeof text);
  return fmt::format("[{}]", text);
}

// Host and port of a tcp endpoint, unparsed.
struct TcpParts {
  std::string host;
  std::string port;
};

TcpParts split_tcp(const std::string& endpoint) {
  const std::string rest = endpoint.substr(std::strlen("tcp://"));
  const size_t colon = rest.rfind(':');
  if (rest.empty() || colon == 0) {
    fail(Status::kInvalidArgument, "\"{}\" has no host: give one, as in tcp://10.0.0.7:29500", endpoint);
  }
  if (colon == std::string::npos || colon + 1 == rest.size()) {
    fail(Status::kInvalidArgument, "\"{}\" has no port: give one, as in tcp://{}:29500", endpoint,
         rest.substr(0, colon));
  }
  TcpParts parts{rest.substr(0, colon), rest.substr(colon + 1)};
  if (parts.host.front() == '[' && parts.host.back() == ']') parts.host = parts.host.substr(1, parts.host.size() - 2);
  if (parts.host == "*") parts.host = "0.0.0.0";
  if (parts.host == "localhost") parts.host = "127.0.0.1";  // RFC 6761, section 6.3; not every machine has /etc/hosts
  return parts;
}

// AI_NUMERICHOST: no name server is asked.
SocketAddress look_up(const std::string& endpoint, const std::string& host, int flags) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), nullptr, &hints, &found);
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owned(found, &freeaddrinfo);
  if (error == EAI_MEMORY) throw std::bad_alloc();
  if (error != 0 && (flags & AI_NUMERICHOST) != 0) {
    fail(Status::kInvalidArgument,
         "\"{}\" names the host \"{}\": only numeric addresses travel between workers, as in tcp://10.0.0.7:4711",
         endpoint, host);
  }
  if (error != 0 || found == nullptr) {
    fail(Status::kInvalidArgument, "host \"{}\" of \"{}\" does not resolve: {}", host, endpoint, gai_strerror(error));
  }
  const addrinfo* best = found;
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    // A listener at a name has to take the same family as its diallers.
    if (one->ai_family == AF_INET) {
      best = one;
      break;
    }
  }
  SocketAddress result;
  std::memcpy(&result.address, best->ai_addr, best->ai_addrlen);
  result.length = best->ai_addrlen;
  return result;
}

SocketAddress parse_tcp(const std::string& endpoint, bool for_listening) {
  const TcpParts parts = split_tcp(endpoint);
  const Ports ports = parse_ports(endpoint, parts.port, for_listening);
  SocketAddress result = look_up(endpoint, parts.host, AI_NUMERICHOST);
  port_of(result) = htons(ports.first);
  result.last_port = ports.last;
  result.endpoint = tcp_endpoint(result);
  if (ports.last != 0) result.endpoint += fmt::format("-{}", ports.last);
  return result;
}

// How well an address of an interface suits diallers: IPv4 first, as they prefer it; no IPv6 that needs a scope.
int rank_of(const sockaddr* address) {
  if (address == nullptr) return 0;
  if (address->sa_family == AF_INET) return 2;
  if (address->sa_family != AF_INET6) return 0;
  return IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr) ? 0 : 1;
}

// nullopt: no interface has that name.
std::optional<SocketAddress> look_up_interface(const std::string& endpoint, const std::string& name) {
  if (name.size() >= IF_NAMESIZE || if_nametoindex(name.c_str()) == 0) return std::nullopt;
  ifaddrs* found = nullptr;
  if (getifaddrs(&found) != 0) throw std::bad_alloc();
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owned(found, &freeifaddrs);
  const sockaddr* best = nullptr;
  for (const ifaddrs* one = found; one != nullptr; one = one->ifa_next) {
    if (name == one->ifa_name && rank_of(one->ifa_addr) > rank_of(best)) best = one->ifa_addr;
  }
  if (best == nullptr) {
    fail(Status::kInvalidArgument, "interface \"{}\" of \"{}\" has no address", name, endpoint);
  }
  SocketAddress result;
  result.length = best->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  std::memcpy(&result.address, best, result.length);
  return result;
}

}  // namespace

bool SocketAddress::is_local() const {
  switch (family()) {
    case AF_UNIX:
      return true;
    case AF_INET:
      return ntohl(reinterpret_cast<const sockaddr_in&>(address).sin_addr.s_addr) >> 24 == 127;
    case AF_INET6:
      return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr) != 0;
    default:
      return false;
  }
}

bool SocketAddress::to_next_port() {
  if (is_ipc() || ntohs(port_of(*this)) >= last_port) return false;
  port_of(*this) = htons(static_cast<uint16_t>(ntohs(port_of(*this)) + 1));
  return true;
}

std::string tcp_endpoint(const SocketAddress& address) {
  return fmt::format("tcp://{}:{}", text_of_host(address), ntohs(port_of(address)));
}

SocketAddress parse_address(const std::string& endpoint, bool for_listening) {
  if (endpoint.starts_with("ipc://")) return parse_ipc(endpoint);
  if (endpoint.starts_with("tcp://")) return parse_tcp(endpoint, for_listening);
  fail(Status::kInvalidArgument, "\"{}\" is no endpoint of this transport: {}", endpoint, kForms);
}

std::string resolve_address(const std::string& address) {
  if (!address.starts_with("tcp://")) return address;
  const TcpParts parts = split_tcp(address);
  parse_ports(address, parts.port, true);                         // checked before a name server is asked
  if (parts.host.find('%') != std::string::npos) return address;  // a number with its scope: no name has one
  const std::optional<SocketAddress> interface = look_up_interface(address, parts.host);
  return fmt::format("tcp://{}:{}", text_of_host(interface ? *interface : look_up(address, parts.host, 0)), parts.port);
}

std::string own_address_towards(const std::string& address) {
  if (!address.starts_with("tcp://")) return {};
  const SocketAddress other = parse_address(address, true);
  if (other.is_local()) return {};
  // A datagram socket: its connect() only looks up the route.
  const int fd = socket(other.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return {};
  SocketAddress own;
  own.length = sizeof own.address;
  const bool is_known = connect(fd, reinterpret_cast<const sockaddr*>(&other.address), other.length) == 0 &&
                        getsockname(fd, reinterpret_cast<sockaddr*>(&own.address), &own.length) == 0;
  close(fd);
  if (!is_known) return {};
  port_of(own) = 0;
  return tcp_endpoint(own);
}

std::string dialable(const std::string& endpoint, const std::string& own_address) {
  const bool is_everywhere = endpoint.starts_with("tcp://0.0.0.0:") || endpoint.starts_with("tcp://[::]:");
  if (!is_everywhere || own_address.empty()) return endpoint;
  return own_address.substr(0, own_address.rfind(':')) + endpoint.substr(endpoint.rfind(':'));
}

}  // namespace distag
