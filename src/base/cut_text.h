#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace distag {

// The first bytes of `text`, at most `size`, without a part of a UTF-8 character.
inline std::string_view cut_to(std::string_view text, size_t size) noexcept {
  if (text.size() <= size) return text;
  while (size > 0 && (static_cast<unsigned char>(text[size]) & 0xC0u) == 0x80u) --size;
  return text.substr(0, size);
}

// The last bytes of `text` likewise.
inline std::string_view end_of(std::string_view text, size_t size) noexcept {
  if (text.size() <= size) return text;
  size_t begin = text.size() - size;
  while (begin < text.size() && (static_cast<unsigned char>(text[begin]) & 0xC0u) == 0x80u) ++begin;
  return text.substr(begin);
}

// At most `size` bytes of `text`; `size` is above 5. What does not fit is left out of the middle, since an error text
// begins with its place and ends with its reason.
inline std::string cut_middle(std::string_view text, size_t size) {
  constexpr std::string_view kGap = " ... ";
  if (text.size() <= size) return std::string(text);
  const size_t half = (size - kGap.size()) / 2;
  return std::string(cut_to(text, half)).append(kGap).append(end_of(text, half));
}

}  // namespace distag
