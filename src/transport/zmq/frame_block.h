#pragma once

#include <cstddef>
#include <memory>
#include <new>

namespace distag {

inline constexpr size_t kFrameAlignment = 64;

// Memory for received frames, aligned as tensors want it.
inline std::shared_ptr<std::byte> make_frame_block(size_t size) {
  return {static_cast<std::byte*>(::operator new(size, std::align_val_t(kFrameAlignment))),
          [](std::byte* bytes) { ::operator delete(bytes, std::align_val_t(kFrameAlignment)); }};
}

}  // namespace distag
