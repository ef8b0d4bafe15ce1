#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "capi/boundary.h"

namespace distag::capi {

// The sizes that structs had before they grew.
inline constexpr size_t kFirstWorkerOptions = offsetof(distag_worker_options, no_lane);
inline constexpr size_t kFirstSecurityOptions = offsetof(distag_security_options, group_key);
inline constexpr size_t kFirstCallOptions = offsetof(distag_call_options, traceparent);
inline constexpr size_t kFirstStats = offsetof(distag_stats, request_bytes_open);

// The rules for structs that start with struct_size. Refuses a size that no version had (INVALID_ARGUMENT), and what a
// later version has set in members that this one does not know (UNSUPPORTED). `first_size` here and below is the size
// of the struct's first version, if it has grown.
void check_struct(const void* given, size_t known_size, const char* type, size_t first_size = 0);

// Whether some version may have made a struct with this struct_size, so that its first members may be looked at.
bool is_readable(const void* given, size_t known_size, size_t first_size = 0);

// A struct of the caller, NULL for all defaults; members that its version did not have are 0.
template <typename T>
T read_struct(const T* given, const char* type, size_t first_size = 0) {
  T known{};
  if (given != nullptr) {
    check_struct(given, sizeof(T), type, first_size);
    std::memcpy(&known, given, std::min<size_t>(given->struct_size, sizeof(T)));
  }
  known.struct_size = sizeof(T);
  return known;
}

// Checks the size of a struct that is filled for the caller. `first_size` is the size of its first version, if it has
// grown.
void check_filled_struct(const void* given, size_t known_size, const char* type, size_t first_size = 0);

// Fills the members that the caller knows, and zeroes those that only a later version of the caller's has; struct_size
// stays.
template <typename T>
void fill_struct(T* given, T filled) {
  const uint32_t size = given->struct_size;
  filled.struct_size = size;
  auto* bytes = reinterpret_cast<unsigned char*>(given);
  std::memcpy(bytes, &filled, std::min<size_t>(size, sizeof(T)));
  for (size_t i = sizeof(T); i < size; ++i) bytes[i] = 0;
}

// A member of a later version that works here only as 0 or NULL.
template <typename T>
void need_zero(T member, const char* name) {
  if (member != T{}) refuse(Status::kUnsupported, "{} is not supported by this version: leave it 0", name);
}

}  // namespace distag::capi
