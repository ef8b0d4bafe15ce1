#include "escaped.h"

#include <cstdio>

namespace distag_tool {
namespace {

// U+0080 to U+009F, which some terminals obey.
bool is_second_half_of_control(std::string_view text, size_t at) {
  return at > 0 && text[at - 1] == '\xC2' && static_cast<unsigned char>(text[at]) < 0xA0;
}

}  // namespace

std::string escaped(std::string_view text, std::string_view also) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const bool is_control = byte < ' ' || byte == 0x7F || is_second_half_of_control(text, i);
    if (is_control) {
      char number[8];
      if (byte >= 0x80) out.pop_back();  // removes the first byte
      std::snprintf(number, sizeof number, "\\u%04x", byte);
      out += number;
      continue;
    }
    if (also.find(text[i]) != std::string_view::npos) out += '\\';
    out += text[i];
  }
  return out;
}

}  // namespace distag_tool
