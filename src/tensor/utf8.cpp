#include "tensor/utf8.h"

#include <cstddef>
#include <cstdint>

namespace distag {
namespace {

// Length of the sequence that starts with `lead`, and the range its second byte must lie in; 0: not a lead byte.
struct Sequence {
  size_t length;
  uint8_t second_low;
  uint8_t second_high;
};

Sequence sequence_of(uint8_t lead) {
  if (lead < 0x80) return {1, 0, 0};
  if (lead < 0xC2) return {0, 0, 0};
  if (lead < 0xE0) return {2, 0x80, 0xBF};
  if (lead == 0xE0) return {3, 0xA0, 0xBF};
  if (lead == 0xED) return {3, 0x80, 0x9F};
  if (lead < 0xF0) return {3, 0x80, 0xBF};
  if (lead == 0xF0) return {4, 0x90, 0xBF};
  if (lead < 0xF4) return {4, 0x80, 0xBF};
  if (lead == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

}  // namespace

bool is_valid_utf8(std::string_view text) {
  size_t i = 0;
  while (i < text.size()) {
    Sequence sequence = sequence_of(static_cast<uint8_t>(text[i]));
    if (sequence.length == 0 || sequence.length > text.size() - i) return false;
    for (size_t k = 1; k < sequence.length; ++k) {
      auto byte = static_cast<uint8_t>(text[i + k]);
      uint8_t low = k == 1 ? sequence.second_low : 0x80;
      uint8_t high = k == 1 ? sequence.second_high : 0xBF;
      if (byte < low || byte > high) return false;
    }
    i += sequence.length;
  }
  return true;
}

}  // namespace distag
