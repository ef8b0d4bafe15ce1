#pragma once

#include <algorithm>
#include <cstddef>
#include <string>

namespace distag::capi {

// Copies as much as there is room for, and a NUL; out_size is the whole length without it.
inline void copy_text(const std::string& text, char* buffer, size_t capacity, size_t* out_size) {
  if (capacity > 0) {
    const size_t size = std::min(capacity - 1, text.size());
    std::copy_n(text.data(), size, buffer);
    buffer[size] = '\0';
  }
  *out_size = text.size();
}

}  // namespace distag::capi
