#include "transport/socket/findings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace distag::findings {

const char* of_connect(int error) { return error == EADDRNOTAVAIL ? kNoSource : std::strerror(error); }

std::string begins_with(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte byte : bytes.first(std::min<size_t>(bytes.size(), 16))) {
    const char character = static_cast<char>(byte);
    text += character >= ' ' && character <= '~' && character != '"' ? character : '.';
  }
  return fmt::format("it begins with \"{}\"", text);
}

std::string another_program(const std::string& why) { return fmt::format("another program listens there: {}", why); }

}  // namespace distag::findings
