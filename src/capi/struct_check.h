#pragma once

#include <cstddef>
#include <cstdint>

#include "capi/boundary.h"

namespace distag::capi {

// The rules for structs that start with struct_size. Refuses a size that no version had (INVALID_ARGUMENT), and what a
// later version has set in members that this one does not know (UNSUPPORTED).
void check_struct(const void* given, size_t known_size, const char* type);

// Whether some version may have made a struct with this struct_size, so that its first members may be looked at.
bool is_readable(const void* given, size_t known_size);

// A struct of the caller, NULL for all defaults.
template <typename T>
T read_struct(const T* given, const char* type) {
  T known{};
  known.struct_size = sizeof(T);
  if (given == nullptr) return known;
  check_struct(given, sizeof(T), type);
  known = *given;
  return known;
}

// A struct that is filled for the caller: checks its size.
void check_filled_struct(const void* given, size_t known_size, const char* type);

// Fills it, and zeroes what a later version of the caller's has behind; struct_size stays.
template <typename T>
void fill_struct(T* given, T filled) {
  const uint32_t size = given->struct_size;
  filled.struct_size = size;
  *given = filled;
  auto* bytes = reinterpret_cast<unsigned char*>(given);
  for (size_t i = sizeof(T); i < size; ++i) bytes[i] = 0;
}

// A member of a later version that works here only as 0 or NULL.
template <typename T>
void need_zero(T member, const char* name) {
  if (member != T{}) refuse(Status::kUnsupported, "{} is not supported by this version: leave it 0", name);
}

}  // namespace distag::capi
