#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <cstdint>
#include <string>

namespace distag {

// An endpoint of ZeroMQ as the operating system takes it: numbers, no names, so no thread waits for a name server.
struct SocketAddress {
  std::string endpoint;  // numeric: "tcp://127.0.0.1:4711", "tcp://[::1]:4711-4720", "ipc:///path"
  sockaddr_storage address{};
  socklen_t length = 0;
  uint16_t last_port = 0;  // of a range to listen at, which begins at the address's port; 0: one port

  int family() const { return address.ss_family; }
  bool is_ipc() const { return family() == AF_UNIX; }
  // Whether other machines cannot reach the address.
  bool is_local() const;
  // Moves on to the next port of the range; false when this was the last.
  bool to_next_port();
  // "/path" of an ipc endpoint.
  const char* path() const { return reinterpret_cast<const sockaddr_un&>(address).sun_path; }
};

// "tcp://127.0.0.1:4711" for the address, which must not be of ipc.
std::string tcp_endpoint(const SocketAddress& address);

// Throws INVALID_ARGUMENT for a text that is no tcp or ipc endpoint, or that names a host: only numbers come over the
// wire, and addresses that the host of this worker gave go through resolve_address first. "localhost" and "*" count as
// numbers. Port 0 means "any" and is refused unless `for_listening`, as is a range of ports. Never waits.
SocketAddress parse_address(const std::string& endpoint, bool for_listening);

// The address with its host as a number; a text that is no tcp endpoint is given back unchanged. "tcp://node7:4711"
// becomes "tcp://10.0.0.7:4711", and "tcp://eth0:0" the address of that interface of this machine, which goes before a
// host of its name. Throws INVALID_ARGUMENT for a text without host and port, a host that does not resolve, or an
// interface without an address. Takes as long as the name server does: not on a loop.
std::string resolve_address(const std::string& address);

// "tcp://10.0.0.2:0": the address of this machine from which the numeric one is reached. Empty for an address on this
// machine, one that is not of tcp, and one without a route. Sends nothing.
std::string own_address_towards(const std::string& address);

// The endpoint of a listener, for others to dial: if it listens at all addresses of the machine (tcp://0.0.0.0:4711),
// it is dialled at `own_address`, unless that is empty.
std::string dialable(const std::string& endpoint, const std::string& own_address);

}  // namespace distag
