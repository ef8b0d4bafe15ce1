#include <cstring>
#include <utility>

#include "transport/transport.h"

namespace distag {

Frame Frame::copy_of(const void* data, size_t size) {
  const auto* bytes = static_cast<const std::byte*>(data);
  return of(std::vector<std::byte>(bytes, bytes + size));
}

Frame Frame::of(std::vector<std::byte> bytes) {
  auto owner = std::make_shared<const std::vector<std::byte>>(std::move(bytes));
  return Frame(owner->data(), owner->size(), owner);
}

}  // namespace distag
