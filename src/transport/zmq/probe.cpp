#include "transport/zmq/probe.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace distag {
namespace {

constexpr Nanos kProbeTimeout = 500 * kMillisecond;

bool is_refusal(int error) { return error == ECONNREFUSED || error == ENOENT; }

}  // namespace

Probe::Probe(FdLoop& loop, const SocketAddress& address, std::function<void(bool is_refused)> done)
    : loop_(loop), done_(std::move(done)) {
  int error = 0;
  fd_ = socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd_ < 0 || connect(fd_, reinterpret_cast<const sockaddr*>(&address.address), address.length) != 0) error = errno;
  if (error != EINPROGRESS) {
    timer_ = loop_.start_timer(loop_.now(), [this, error] { finish(error); });
    return;
  }
  timer_ = loop_.start_timer(loop_.now() + kProbeTimeout, [this] { finish(ETIMEDOUT); });
  const auto look = [this] {
    int reason = 0;
    socklen_t size = sizeof reason;
    if (getsockopt(fd_, SOL_SOCKET, SO_ERROR, &reason, &size) != 0) reason = errno;
    finish(reason);
  };
  loop_.watch(fd_, look, look);
  loop_.await_writable(fd_, true);
}

Probe::~Probe() {
  loop_.cancel_timer(timer_);
  if (fd_ < 0) return;
  loop_.unwatch(fd_);
  close(fd_);
}

void Probe::finish(int error) {
  assert_on_loop(loop_);
  // The callback may destroy this.
  const auto done = std::exchange(done_, nullptr);
  if (done) done(is_refusal(error));
}

}  // namespace distag
