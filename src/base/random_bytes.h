#pragma once

#include <cstdint>
#include <span>

namespace distag {

// Bytes from the operating system, for keys. Throws INTERNAL where it gives none. Any thread.
void fill_with_random(std::span<uint8_t> bytes);

}  // namespace distag
