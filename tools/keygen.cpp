#include "keygen.h"

#include <sys/random.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <string_view>

#include "files.h"
#include "handles.h"

namespace distag_tool {
namespace {

int end_output() {
  if (std::fflush(stdout) == 0) return 0;
  std::fprintf(stderr, "distag: the key cannot be written: %s\n", describe_file_error(errno));
  return 1;
}

}  // namespace

int print_key() {
  // 64 characters that no shell treats specially, so six random bits for each: 288 bits.
  constexpr std::string_view kLetters = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_";
  std::array<unsigned char, 48> random{};
  if (getrandom(random.data(), random.size(), 0) != static_cast<ssize_t>(random.size())) {
    std::fputs("distag: the system gives no random numbers\n", stderr);
    return 1;
  }
  for (const unsigned char byte : random) std::fputc(kLetters[byte % kLetters.size()], stdout);
  std::fputc('\n', stdout);
  return end_output();
}

int make_worker_key(const std::string& name, const std::string& folder) {
  constexpr std::string_view kLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.:";
  if (name.empty() || name.size() > 127 || name.find_first_not_of(kLetters) != std::string::npos) {
    std::fprintf(stderr, "distag: \"%s\" is no name of a worker\n", name.c_str());
    return 1;
  }
  distag_error error = DISTAG_ERROR_INIT;
  distag_key_pair keys = DISTAG_KEY_PAIR_INIT;
  distag_security_create_keys(&keys, &error);
  check(error);
  const std::string path = folder + "/" + name + ".key";
  make_secret_file(path, std::string(keys.secret_key) + "\n");
  std::printf("%s %s\n", name.c_str(), keys.public_key);
  return end_output();
}

}  // namespace distag_tool
