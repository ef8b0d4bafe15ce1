#include "base/random_bytes.h"

#include <array>
#include <bit>

#include "base/random.h"

namespace distag {

void fill_with_random(std::span<uint8_t> bytes) {
  SystemRandom source;
  for (size_t at = 0; at < bytes.size();) {
    for (const uint8_t byte : std::bit_cast<std::array<uint8_t, sizeof(uint64_t)>>(source.next())) {
      if (at < bytes.size()) bytes[at++] = byte;
    }
  }
}

}  // namespace distag
