#include "base/file_size.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <ctime>

namespace distag {
namespace {

// The system sends SIGXFSZ to the thread that makes the call. It is blocked there meanwhile, and consumed if it came: a
// check of the limit beforehand would miss that another thread lowers it.
template <typename Call>
auto without_signal(Call&& call) {
  sigset_t ours;
  sigset_t before;
  sigset_t pending;
  sigemptyset(&ours);
  sigaddset(&ours, SIGXFSZ);
  sigemptyset(&pending);
  sigpending(&pending);
  const bool is_of_host = sigismember(&pending, SIGXFSZ) == 1;
  pthread_sigmask(SIG_BLOCK, &ours, &before);
  errno = 0;
  const auto result = call();
  const int error = errno;
  const timespec now = {};
  if (error == EFBIG && !is_of_host) {
    while (sigtimedwait(&ours, nullptr, &now) < 0 && errno == EINTR) continue;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  errno = error;
  return result;
}

}  // namespace

int set_file_size(int descriptor, off_t size) {
  return without_signal([descriptor, size] { return ftruncate(descriptor, size); });
}

int allocate_file(int descriptor, off_t size) {
  return without_signal([descriptor, size] { return errno = posix_fallocate(descriptor, 0, size); });
}

ssize_t write_to_file(int descriptor, const void* data, size_t size) {
  return without_signal([descriptor, data, size] { return write(descriptor, data, size); });
}

const char* describe_file_error(int error) {
  return error == EFBIG ? "it is larger than this process may make files: raise the limit of file sizes (ulimit -f)"
                        : std::strerror(error);
}

}  // namespace distag
