#include "transport/zmq/probe.h"

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <span>
#include <utility>

#include "base/own_descriptors.h"
#include "transport/socket/findings.h"

namespace distag {
namespace {

constexpr Nanos kProbeTimeout = 500 * kMillisecond;
// How long who listens may take to speak first, as each peer of ZMTP does. A greeting that is only begun counts there
// as a handshake that broke off, so it is said after that alone.
constexpr Nanos kFirstWord = 100 * kMillisecond;
// The signature of ZMTP's greeting.
constexpr std::array<unsigned char, 10> kSignature = {0xff, 0, 0, 0, 0, 0, 0, 0, 1, 0x7f};

bool is_refusal(int error) { return error == ECONNREFUSED || error == ENOENT; }

}  // namespace

Probe::Probe(FdLoop& loop, const SocketAddress& address, std::function<void(Answer answer)> done)
    : loop_(loop), done_(std::move(done)) {
  int error = 0;
  fd_ = OwnDescriptors::open(
      [&address] { return socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0); });
  if (fd_ < 0 || connect(fd_, reinterpret_cast<const sockaddr*>(&address.address), address.length) != 0) error = errno;
  if (error != 0 && error != EINPROGRESS) {
    timer_ = loop_.start_timer(loop_.now(), [this, error] { on_connected(error); });
    return;
  }
  timer_ = loop_.start_timer(loop_.now() + kProbeTimeout, [this] { finish({.found = findings::kNoAnswer}); });
  const auto look = [this] {
    if (is_connected_) return on_readable();
    int reason = 0;
    socklen_t size = sizeof reason;
    if (getsockopt(fd_, SOL_SOCKET, SO_ERROR, &reason, &size) != 0) reason = errno;
    on_connected(reason);
  };
  loop_.watch(fd_, look, look);
  loop_.await_writable(fd_, true);
}

Probe::~Probe() {
  loop_.cancel_timer(timer_);
  if (fd_ < 0) return;
  loop_.unwatch(fd_);
  OwnDescriptors::close(fd_);
}

// First it listens; then it says what a greeting begins with, for a program that waits for a word.
void Probe::on_connected(int error) {
  assert_on_loop(loop_);
  if (is_refusal(error)) return finish({.is_refused = true, .found = findings::kNobodyListens});
  if (error != 0) return finish({.found = std::strerror(error)});
  is_connected_ = true;
  loop_.await_writable(fd_, false);
  loop_.cancel_timer(timer_);
  timer_ = loop_.start_timer(loop_.now() + kFirstWord, [this] {
    timer_ = loop_.start_timer(loop_.now() + kProbeTimeout, [this] { finish({.found = findings::kIsSilent}); });
    static_cast<void>(::send(fd_, kSignature.data(), kSignature.size(), MSG_NOSIGNAL));
  });
}

void Probe::on_readable() {
  assert_on_loop(loop_);
  std::array<std::byte, 16> bytes{};
  const ssize_t got = ::read(fd_, bytes.data(), bytes.size());
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return;
  if (got <= 0) return finish({.found = findings::kHangsUp});
  if (bytes[0] == std::byte{0xff}) return finish({.is_zmtp = true, .found = {}});
  const std::span<const std::byte> heard(bytes.data(), static_cast<size_t>(got));
  finish({.found = findings::another_program("it speaks no ZMTP: " + findings::begins_with(heard))});
}

void Probe::finish(Answer answer) {
  assert_on_loop(loop_);
  // The callback may destroy this.
  const auto done = std::exchange(done_, nullptr);
  if (done) done(std::move(answer));
}

}  // namespace distag
