#include "keygen.h"

#include <fcntl.h>
#include <sys/random.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "handles.h"

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
  const std::string text = std::string(keys.secret_key) + "\n";
  signal(SIGXFSZ, SIG_IGN);  // a file that may not be that long is an error below
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  const bool is_written = file >= 0 && write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  if (!is_written || close(file) != 0) {
    std::fprintf(stderr, "distag: \"%s\" cannot be made: %s\n", path.c_str(), std::strerror(errno));
    return 1;
  }
  std::printf("%s %s\n", name.c_str(), keys.public_key);
  return std::fflush(stdout) == 0 ? 0 : 1;
}

}  // namespace distag_tool
