#pragma once

#include <cstddef>
#include <memory>
#include <new>

namespace distag {

inline constexpr size_t kFrameAlignment = 64;

// Memory for received frames, aligned for tensors.
inline std::shared_ptr<std::byte> make_frame_block(size_t size) {
  // Aligned here by hand: glibc before 2.38 leaves a hole at an aligned block that the next block of that size does not
  // fit into, so that a stream of blocks took twice their memory.
  size_t space = size + kFrameAlignment;
  void* const whole = ::operator new(space);
  void* begin = whole;
  std::align(kFrameAlignment, size, begin, space);
  return {static_cast<std::byte*>(begin), [whole](std::byte*) { ::operator delete(whole); }};
}

}  // namespace distag
