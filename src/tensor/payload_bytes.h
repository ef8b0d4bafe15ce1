#pragma once

#include <cstdint>

#include "tensor/value.h"

namespace distag {

// About what a value takes where it waits.
uint64_t payload_bytes(const Value& value);

}  // namespace distag
