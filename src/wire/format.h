#pragma once

#include <cstddef>

// Limits of the protocol's fields; see schemas/.
namespace distag::wire {

inline constexpr size_t kMaxNameBytes = 127;  // workers, jobs, functions, labels
inline constexpr size_t kMaxEndpointBytes = 1024;
inline constexpr size_t kMaxHostBytes = 255;
inline constexpr size_t kMaxNoteBytes = 1024;
inline constexpr size_t kMaxErrorBytes = 4096;
inline constexpr size_t kMaxTailBytes = 4096;  // payload behind the FlatBuffer

// The depth of a header's structure: values nest 16 deep, with two tables each, below message, body and metadata.
inline constexpr unsigned kMaxTableDepth = 48;
// A table takes at least 8 bytes of its header.
inline constexpr size_t kMinTableBytes = 8;

}  // namespace distag::wire
