#include "capi/struct_check.h"

#include <algorithm>
#include <cstring>

namespace distag::capi {
namespace {

// No struct will ever be larger: beyond it a size is taken for garbage, and no byte is read.
constexpr uint32_t kLargestStruct = 4096;

uint32_t size_of(const void* given) {
  uint32_t size = 0;
  std::memcpy(&size, given, sizeof size);
  return size;
}

// There is no smaller struct than that of the first version.
bool is_possible(uint32_t size, size_t first_size) { return size >= first_size && size <= kLargestStruct; }

void check_size(uint32_t size, size_t known_size, const char* type) {
  if (is_possible(size, known_size)) return;
  refuse(Status::kInvalidArgument,
         "struct_size of {} is {}, which no version has (here {}): start with its _INIT macro", type, size, known_size);
}

}  // namespace

bool is_readable(const void* given, size_t known_size, size_t first_size) {
  if (given == nullptr) return false;
  const uint32_t size = size_of(given);
  return is_possible(size, known_size) || (first_size != 0 && size == first_size);
}

void check_struct(const void* given, size_t known_size, const char* type, size_t first_size) {
  const uint32_t size = size_of(given);
  if (first_size != 0 && size == first_size) return;
  check_size(size, known_size, type);
  const auto* bytes = static_cast<const unsigned char*>(given);
  if (std::any_of(bytes + known_size, bytes + size, [](unsigned char byte) { return byte != 0; })) {
    refuse(Status::kUnsupported, "{} has members set that this version ({}) does not know", type, distag_get_version());
  }
}

void check_filled_struct(const void* given, size_t known_size, const char* type, size_t first_size) {
  if (given == nullptr) refuse(Status::kInvalidArgument, "the {} to be filled is NULL", type);
  if (is_readable(given, known_size, first_size)) return;
  check_size(size_of(given), known_size, type);
}

}  // namespace distag::capi
