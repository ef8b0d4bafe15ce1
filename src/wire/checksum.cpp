#include "wire/checksum.h"

#include <isa-l/crc.h>

#include <algorithm>
#include <array>

#include "base/linked_function.h"

namespace distag::wire {
namespace {

constinit const LinkedFunction<decltype(crc32_iscsi)> crc32c{"crc32_iscsi", &crc32_iscsi};

}  // namespace

Checksum& Checksum::add(std::span<const std::byte> bytes) {
  constexpr size_t kMost = size_t{1} << 30;  // the library counts in int
  while (!bytes.empty()) {
    const auto piece = bytes.first(std::min(bytes.size(), kMost));
    // The library does not write to the bytes.
    auto* data = const_cast<unsigned char*>(reinterpret_cast<const unsigned char*>(piece.data()));
    state_ = crc32c(data, static_cast<int>(piece.size()), state_);
    bytes = bytes.subspan(piece.size());
  }
  return *this;
}

Checksum& Checksum::add(const Frame& frame) {
  std::array<std::byte, 8> size;
  for (size_t i = 0; i < size.size(); ++i) size[i] = static_cast<std::byte>(uint64_t{frame.size()} >> (8 * i));
  return add(size).add({frame.data(), frame.size()});
}

}  // namespace distag::wire
