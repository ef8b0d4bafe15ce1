#include "run/sink.h"

#include <limits.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

namespace distag_tool {
namespace {

// https://no-color.org
bool wants_colour(int descriptor) {
  const char* const refused = std::getenv("NO_COLOR");
  const char* const terminal = std::getenv("TERM");
  return isatty(descriptor) == 1 && (refused == nullptr || *refused == '\0') &&
         (terminal == nullptr || std::string_view(terminal) != "dumb");
}

}  // namespace

Sink::Sink(int descriptor) : descriptor_(descriptor), has_colour_(wants_colour(descriptor)) {}

void Sink::add(std::string_view text) {
  if (failure_ == 0) waiting_.append(text);
}

void Sink::write_some() {
  // A pipe that poll reports as writable takes PIPE_BUF bytes without blocking.
  const size_t count = std::min<size_t>(waiting_.size() - written_, PIPE_BUF);
  const ssize_t done = write(descriptor_, waiting_.data() + written_, count);
  if (done < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (done < 0) {
    failure_ = errno;
    waiting_.clear();
    written_ = 0;
    return;
  }
  written_ += static_cast<size_t>(done);
  if (written_ < waiting_.size() && written_ < kMostWaiting / 2) return;
  waiting_.erase(0, written_);
  written_ = 0;
}

}  // namespace distag_tool
