#include "keygen.h"

#include <sys/random.h>

#include <array>
#include <cstdio>
#include <string_view>

namespace distag_tool {

int print_key() {
  // 64 characters that no shell takes for its own, so six random bits for each: 288 bits.
  constexpr std::string_view kLetters = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_";
  std::array<unsigned char, 48> random{};
  if (getrandom(random.data(), random.size(), 0) != static_cast<ssize_t>(random.size())) {
    std::fputs("distag: the system gives no random numbers\n", stderr);
    return 1;
  }
  for (const unsigned char byte : random) std::fputc(kLetters[byte % kLetters.size()], stdout);
  std::fputc('\n', stdout);
  return std::fflush(stdout) == 0 ? 0 : 1;
}

}  // namespace distag_tool
