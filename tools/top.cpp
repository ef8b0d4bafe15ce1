#include <poll.h>
#include <termios.h>
#include <unistd.h>

#include <cstdio>

#include "ps.h"

namespace distag_tool {
namespace {

constexpr int kPauseMs = 1000;
constexpr char kControlC = 3;

// While this exists, keys are read one by one, without Enter. Without effect if the input is no terminal.
class Keys {
 public:
  Keys() : is_terminal_(isatty(STDIN_FILENO) != 0 && tcgetattr(STDIN_FILENO, &before_) == 0) {
    if (!is_terminal_) return;
    termios now = before_;
    now.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO | ISIG);
    tcsetattr(STDIN_FILENO, TCSANOW, &now);
  }
  ~Keys() {
    if (is_terminal_) tcsetattr(STDIN_FILENO, TCSANOW, &before_);
  }
  Keys(const Keys&) = delete;
  Keys& operator=(const Keys&) = delete;

 private:
  termios before_ = {};
  const bool is_terminal_;
};

// Pauses. False: to quit.
bool wait_for_quit() {
  pollfd input = {STDIN_FILENO, POLLIN, 0};
  if (poll(&input, 1, kPauseMs) <= 0) return true;
  char keys[64];
  const ssize_t size = read(STDIN_FILENO, keys, sizeof keys);
  for (ssize_t i = 0; i < size; ++i) {
    if (keys[i] == 'q' || keys[i] == kControlC) return false;
  }
  return size > 0;
}

}  // namespace

int print_top() {
  const Keys keys;
  const bool is_terminal = isatty(STDOUT_FILENO) != 0;
  do {
    if (is_terminal) std::printf("\x1b[H\x1b[J");
    print_all();
    std::fflush(stdout);
  } while (wait_for_quit());
  return 0;
}

}  // namespace distag_tool
