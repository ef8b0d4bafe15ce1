#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <cstdint>
#include <string>

namespace distag {

// An endpoint of ZeroMQ as the operating system takes it: numbers, no names, so nobody waits for a name server.
struct SocketAddress {
  std::string endpoint;  // numeric: "tcp://127.0.0.1:4711", "tcp://[::1]:4711", "ipc:///path"
  sockaddr_storage address{};
  socklen_t length = 0;

  int family() const { return address.ss_family; }
  bool is_ipc() const { return family() == AF_UNIX; }
  // Not to be reached from another machine.
  bool is_local() const;
  // "/path" of an ipc endpoint.
  const char* path() const { return reinterpret_cast<const sockaddr_un&>(address).sun_path; }
};

// "tcp://127.0.0.1:4711" for the address, which is none of ipc.
std::string tcp_endpoint(const SocketAddress& address);

// Throws INVALID_ARGUMENT for what is no tcp or ipc endpoint, or names a host: only numbers come over the wire, and
// what the host of this worker gave goes through resolve_address first. "localhost" and "*" count as numbers. Port 0
// means "any" and is refused unless `for_listening`. Never waits.
SocketAddress parse_address(const std::string& endpoint, bool for_listening);

// The address with its host as a number, and what is no tcp endpoint as it is: "tcp://node7:4711" becomes
// "tcp://10.0.0.7:4711". Throws INVALID_ARGUMENT for a host that does not resolve. Takes as long as the name server
// does: not on a loop.
std::string resolve_address(const std::string& address);

// "tcp://10.0.0.2:0": the address of this machine from which the numeric one is reached. Empty for what is on this
// machine or no tcp endpoint, and where there is no way to it. Sends nothing.
std::string own_address_towards(const std::string& address);

// The endpoint of who listens, for others to dial: one that listens at all addresses of the machine
// (tcp://0.0.0.0:4711) is dialled at `own_address`, unless that is empty.
std::string dialable(const std::string& endpoint, const std::string& own_address);

}  // namespace distag
