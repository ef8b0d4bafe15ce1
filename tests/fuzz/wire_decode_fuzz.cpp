// Decodes a message as a transport hands it over. Input: for each frame its length (2 bytes, little-endian) and its
// bytes; the first one is the header. A message that is not refused must encode again.
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/error.h"
#include "wire/codec.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace distag;
  Frames frames;
  while (size >= 2 && frames.size() < 8) {
    const std::size_t wanted = data[0] | static_cast<std::size_t>(data[1]) << 8;
    const std::size_t length = std::min(wanted, size - 2);
    frames.push_back(Frame::copy_of(data + 2, length));
    data += 2 + length;
    size -= 2 + length;
  }
  if (frames.empty()) return 0;
  const Frame header = frames.front();
  frames.erase(frames.begin());
  try {
    wire::encode(wire::decode(header, frames, wire::Limits()), wire::Limits());
  } catch (const Error& error) {
    if (error.status() != Status::kProtocol) __builtin_trap();
  }
  return 0;
}
