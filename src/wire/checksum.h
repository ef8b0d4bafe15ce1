#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "transport/transport.h"

namespace distag::wire {

// CRC32C (Castagnoli): finds every error of up to three bits in a message, and all but one in 2^32 of the others.
class Checksum {
 public:
  Checksum& add(std::span<const std::byte> bytes);
  // Adds the size, then the bytes: so the borders between frames count too.
  Checksum& add(const Frame& frame);
  uint32_t value() const { return ~state_; }

 private:
  uint32_t state_ = ~uint32_t{0};
};

}  // namespace distag::wire
