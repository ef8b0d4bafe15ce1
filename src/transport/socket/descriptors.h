#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "base/error.h"
#include "transport/socket/address.h"

namespace distag {

// Descriptors that must stay free for the host: when a connection is accepted; when one is dialled or an address is
// listened at, with room for the peer that dials back; and when a connection that was open is dialled again. The last
// needs fewer than any accept leaves free: connections of strangers never keep a member from coming back.
inline constexpr int kAcceptReserve = 8;
inline constexpr int kDialReserve = 16;
inline constexpr int kRedialReserve = 6;
// A part of the limit that a group is checked against at its start: for the host, and for other files of a worker.
inline constexpr size_t kLeftForHost = 64;
static_assert(kRedialReserve < kAcceptReserve);

// The limit of open files of this process.
size_t descriptor_limit();
// Whether the process can open `count` more descriptors.
bool has_descriptors(int count);
// Throws OUT_OF_MEMORY when the process cannot.
void require_descriptors(int count);
// OUT_OF_MEMORY, with the cure, if `error` of the system says that this machine lacks a resource for a connection to
// the address, which tells nothing about the other side. Else nullopt: also if this machine has no address from which
// the other one is reached (IPv6 is switched off), as waiting does not change that.
std::optional<Error> own_lack(int error, const SocketAddress& address) noexcept;
// The same for connections that wait to be accepted.
std::optional<Error> lack_to_accept(int error) noexcept;

}  // namespace distag
