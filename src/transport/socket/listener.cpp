#include "transport/socket/listener.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/own_descriptors.h"
#include "base/system_error.h"
#include "transport/socket/descriptors.h"

namespace distag {
namespace {

constexpr int kBacklog = 256;

[[noreturn]] void fail_to_listen(const SocketAddress& address, int error) {
  if (error == EADDRINUSE) {
    fail(Status::kInvalidState, "\"{}\" is in use: somebody listens there; stop them or take another address",
         address.endpoint);
  }
  if (error == EPERM) throw system_error(fmt::format("cannot listen at \"{}\"", address.endpoint), "socket", error);
  const bool is_shortage = error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS;
  fail(is_shortage ? Status::kOutOfMemory : Status::kInvalidArgument, "cannot listen at \"{}\": {}", address.endpoint,
       std::strerror(error));
}

bool is_nobody_at(const SocketAddress& address) {
  const int fd = socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return false;
  const bool is_connected = connect(fd, reinterpret_cast<const sockaddr*>(&address.address), address.length) == 0;
  const int error = is_connected ? 0 : errno;
  close(fd);
  return error == ECONNREFUSED || error == ENOENT;
}

// Removes only a socket that a dead process left.
void clear_path(const SocketAddress& address) {
  struct stat status = {};
  if (lstat(address.path(), &status) != 0) return;
  if (!S_ISSOCK(status.st_mode)) {
    fail(Status::kInvalidState, "cannot listen at \"{}\": the path exists and is not a socket", address.endpoint);
  }
  if (!is_nobody_at(address)) fail_to_listen(address, EADDRINUSE);
  unlink(address.path());
}

// -1 with errno.
int open_socket(const SocketAddress& address) {
  const int fd = OwnDescriptors::open(
      [&address] { return socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0); });
  if (fd < 0) return -1;
  const int on = 1;
  if (!address.is_ipc()) {
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);  // accepted sockets inherit it
  }
  const bool is_bound = bind(fd, reinterpret_cast<const sockaddr*>(&address.address), address.length) == 0;
  if (is_bound && listen(fd, kBacklog) == 0) return fd;
  const int error = errno;
  OwnDescriptors::close(fd);
  if (is_bound && address.is_ipc()) unlink(address.path());
  errno = error;
  return -1;
}

// Opens the first port of a range that is free.
int open_at_one_of(SocketAddress address) {
  int fd = -1;
  do {
    fd = open_socket(address);
  } while (fd < 0 && errno == EADDRINUSE && address.to_next_port());
  if (fd < 0) fail_to_listen(address, errno);
  return fd;
}

}  // namespace

Listener::Listener(const SocketAddress& address)
    : endpoint_(address.endpoint), path_(address.is_ipc() ? address.path() : "") {
  require_descriptors(kDialReserve);
  if (address.is_ipc()) clear_path(address);
  fd_ = open_at_one_of(address);
  if (address.is_ipc()) return;
  try {
    SocketAddress bound = address;
    if (getsockname(fd_, reinterpret_cast<sockaddr*>(&bound.address), &bound.length) != 0) {
      fail_to_listen(address, errno);
    }
    endpoint_ = tcp_endpoint(bound);
  } catch (...) {
    OwnDescriptors::close(fd_);
    throw;
  }
}

Listener::~Listener() {
  // The path goes first, so that a dialler that finds it finds a listener.
  if (!path_.empty()) unlink(path_.c_str());
  OwnDescriptors::close(fd_);
}

int Listener::accept() {
  return OwnDescriptors::open([this] { return accept4(fd_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC); });
}

}  // namespace distag
