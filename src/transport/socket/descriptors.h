#pragma once

#include <cstddef>

namespace distag {

// Descriptors that stay free for the host when a connection is accepted; and those that are free when one is dialled or
// an address is listened at: with room for the peer that dials back. A dial in the place of a connection that was open
// needs fewer than any accept leaves free: connections of strangers never keep a member from coming back.
inline constexpr int kAcceptReserve = 8;
inline constexpr int kDialReserve = 16;
inline constexpr int kRedialReserve = 6;
// Of the limit that a group is held against at its start: for the host, and for what a worker has besides its sockets.
inline constexpr size_t kLeftForHost = 64;
static_assert(kRedialReserve < kAcceptReserve);

// The limit of open files of this process.
size_t descriptor_limit();
// Whether the process can open `count` more descriptors.
bool has_descriptors(int count);
// Throws OUT_OF_MEMORY when it cannot.
void require_descriptors(int count);

}  // namespace distag
