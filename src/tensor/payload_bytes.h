#pragma once

#include <cstdint>

#include "tensor/value.h"

namespace distag {

// Roughly the memory that a waiting value takes.
uint64_t payload_bytes(const Value& value);

}  // namespace distag
