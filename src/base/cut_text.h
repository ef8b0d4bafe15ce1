#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace distag {

// Its first bytes, at most that many: of UTF-8 whole characters.
inline std::string_view cut_to(std::string_view text, size_t size) noexcept {
  if (text.size() <= size) return text;
  while (size > 0 && (static_cast<unsigned char>(text[size]) & 0xC0u) == 0x80u) --size;
  return text.substr(0, size);
}

// Its last bytes likewise.
inline std::string_view end_of(std::string_view text, size_t size) noexcept {
  if (text.size() <= size) return text;
  size_t begin = text.size() - size;
  while (begin < text.size() && (static_cast<unsigned char>(text[begin]) & 0xC0u) == 0x80u) ++begin;
  return text.substr(begin);
}

// At most that many bytes of it, above 5: what does not fit is left out of the middle. A failure begins with where it
// was, and ends with its reason.
inline std::string cut_middle(std::string_view text, size_t size) {
  constexpr std::string_view kGap = " ... ";
  if (text.size() <= size) return std::string(text);
  const size_t half = (size - kGap.size()) / 2;
  return std::string(cut_to(text, half)).append(kGap).append(end_of(text, half));
}

}  // namespace distag
