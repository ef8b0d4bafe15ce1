#pragma once

#include <cstddef>

namespace distag {

// Descriptors that stay free for the host when a connection is accepted; and those that are free when one is dialled or
// an address is listened at: with room for who dials back.
inline constexpr int kAcceptReserve = 8;
inline constexpr int kDialReserve = 16;

// The limit of open files of this process.
size_t descriptor_limit();
// Whether the process can open `count` more descriptors.
bool has_descriptors(int count);
// Throws OUT_OF_MEMORY when it cannot.
void require_descriptors(int count);

}  // namespace distag
