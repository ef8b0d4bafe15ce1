#pragma once

#include <cstddef>
#include <string_view>

namespace distag {

// Its first bytes, at most that many: of UTF-8 whole characters.
inline std::string_view cut_to(std::string_view text, size_t size) noexcept {
  if (text.size() <= size) return text;
  while (size > 0 && (static_cast<unsigned char>(text[size]) & 0xC0u) == 0x80u) --size;
  return text.substr(0, size);
}

}  // namespace distag
