#include "processes/proxy.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <vector>

namespace distag::testing {
namespace {

sockaddr_in local_address(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

// Bound to any port, which is told.
int bind_any(int& port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = local_address(0);
  socklen_t size = sizeof address;
  if (bind(fd, reinterpret_cast<sockaddr*>(&address), size) != 0) std::abort();
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  port = ntohs(address.sin_port);
  return fd;
}

}  // namespace

int free_port() {
  int port = 0;
  close(bind_any(port));
  return port;
}

CorruptingProxy::CorruptingProxy(uint64_t seed, size_t between)
    : random_(seed), between_(between), until_next_(random_() % between) {
  listener_ = bind_any(port_);
  if (listen(listener_, 16) != 0 || pipe(stop_) != 0) std::abort();
  thread_ = std::thread([this] { run(); });
}

CorruptingProxy::~CorruptingProxy() {
  close(stop_[1]);
  thread_.join();
  for (const auto& [fd, other] : other_end_) close(fd);
  close(listener_);
  close(stop_[0]);
}

void CorruptingProxy::forward_to(const std::string& target) {
  std::lock_guard<std::mutex> lock(mutex_);
  target_ = target;
}

std::string CorruptingProxy::endpoint() const { return "tcp://127.0.0.1:" + std::to_string(port_); }

void CorruptingProxy::run() {
  for (;;) {
    std::vector<pollfd> waiting = {{stop_[0], POLLIN, 0}, {listener_, POLLIN, 0}};
    for (const auto& [fd, other] : other_end_) waiting.push_back({fd, POLLIN, 0});
    poll(waiting.data(), waiting.size(), -1);
    if (waiting[0].revents != 0) return;
    if (waiting[1].revents != 0) accept_one();
    for (size_t i = 2; i < waiting.size(); ++i) {
      const auto found = other_end_.find(waiting[i].fd);
      if (waiting[i].revents == 0 || found == other_end_.end()) continue;
      const int other = found->second;
      if (carry(waiting[i].fd, other)) continue;
      for (const int fd : {waiting[i].fd, other}) {
        other_end_.erase(fd);
        close(fd);
      }
    }
  }
}

int CorruptingProxy::dial_target() {
  std::lock_guard<std::mutex> lock(mutex_);
  const bool is_ipc = target_.rfind("ipc://", 0) == 0;
  const int fd = socket(is_ipc ? AF_UNIX : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  int result = -1;
  if (is_ipc) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, target_.c_str() + std::strlen("ipc://"), sizeof address.sun_path - 1);
    result = connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address);
  } else if (!target_.empty()) {
    const sockaddr_in address = local_address(std::atoi(target_.c_str() + target_.rfind(':') + 1));
    result = connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address);
  }
  if (result == 0) return fd;
  close(fd);
  return -1;
}

void CorruptingProxy::accept_one() {
  const int near = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
  if (near < 0) return;
  const int far = dial_target();
  if (far < 0) {
    close(near);
    return;
  }
  other_end_[near] = far;
  other_end_[far] = near;
}

// False when either side is gone. Both sides read on their own, so a write that waits ends.
bool CorruptingProxy::carry(int from, int to) {
  unsigned char bytes[64 * 1024];
  const ssize_t got = read(from, bytes, sizeof bytes);
  if (got <= 0) return false;
  const auto size = static_cast<size_t>(got);
  while (until_next_ < size) {
    bytes[until_next_] = static_cast<unsigned char>(bytes[until_next_] ^ (1 + random_() % 255));
    ++changed_;
    until_next_ += 1 + random_() % (2 * between_);
  }
  until_next_ -= size;
  for (size_t sent = 0; sent < size;) {
    const ssize_t put = send(to, bytes + sent, size - sent, MSG_NOSIGNAL);
    if (put <= 0) return false;
    sent += static_cast<size_t>(put);
  }
  return true;
}

}  // namespace distag::testing
