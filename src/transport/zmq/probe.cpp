#include "transport/zmq/probe.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <utility>

#include "base/error.h"

namespace distag {
namespace {

constexpr Nanos kProbeTimeout = 500 * kMillisecond;

ProbeResult result_of(int error) {
  switch (error) {
    case 0:
      return ProbeResult::kListening;
    case ECONNREFUSED:
    case ENOENT:  // no such path
      return ProbeResult::kRefused;
    default:
      return ProbeResult::kUnknown;
  }
}

// A socket whose connect has begun, or -1; `error` is what connect gave.
int begin_connect(const SocketAddress& address, int& error) {
  const int fd = socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) {
    error = errno;
    return -1;
  }
  error = connect(fd, reinterpret_cast<const sockaddr*>(&address.address), address.length) == 0 ? 0 : errno;
  return fd;
}

}  // namespace

ProbeResult probe_now(const SocketAddress& address) {
  int error = 0;
  const int fd = begin_connect(address, error);
  if (fd >= 0) close(fd);
  return result_of(error);
}

Probe::Probe(FdLoop& loop, const SocketAddress& address, std::function<void(ProbeResult)> done)
    : loop_(loop), done_(std::move(done)) {
  int error = 0;
  fd_ = begin_connect(address, error);
  if (error != EINPROGRESS) {
    timer_ = loop_.start_timer(loop_.now(), [this, error] { finish(result_of(error)); });
    return;
  }
  // Readable on failure, and on success when the listener sends its greeting, as every ZeroMQ socket does.
  loop_.watch(fd_, [this] {
    int reason = 0;
    socklen_t size = sizeof reason;
    if (getsockopt(fd_, SOL_SOCKET, SO_ERROR, &reason, &size) != 0) reason = errno;
    finish(result_of(reason));
  });
  timer_ = loop_.start_timer(loop_.now() + kProbeTimeout, [this] { finish(ProbeResult::kUnknown); });
}

Probe::~Probe() {
  loop_.cancel_timer(timer_);
  if (fd_ < 0) return;
  loop_.unwatch(fd_);
  close(fd_);
}

void Probe::finish(ProbeResult result) {
  assert_on_loop(loop_);
  // The callback may destroy this.
  const auto done = std::exchange(done_, nullptr);
  if (done) done(result);
}

// Counts the numbers that are free, from the highest down, without taking them from the host meanwhile.
bool has_descriptors(int count) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return false;
  int free = 0;
  std::array<pollfd, 64> numbers{};
  for (rlim_t top = std::min<rlim_t>(limit.rlim_cur, INT_MAX); top > 0 && free < count;) {
    const auto size = static_cast<size_t>(std::min<rlim_t>(top, numbers.size()));
    for (size_t i = 0; i < size; ++i) numbers[i] = {static_cast<int>(--top), 0, 0};
    if (poll(numbers.data(), size, 0) < 0 && errno != EINTR) return false;
    const auto is_free = [](const pollfd& number) { return (number.revents & POLLNVAL) != 0; };
    free += static_cast<int>(std::count_if(numbers.begin(), numbers.begin() + static_cast<ptrdiff_t>(size), is_free));
  }
  if (free < count) return false;
  // Those of the whole system.
  const int one = eventfd(0, EFD_CLOEXEC);
  if (one >= 0) close(one);
  return one >= 0;
}

void require_descriptors(int count) {
  if (has_descriptors(count)) return;
  fail(Status::kOutOfMemory,
       "no descriptors are left for another connection, which takes {} for a moment: raise the limit of open files "
       "(ulimit -n)",
       count);
}

}  // namespace distag
