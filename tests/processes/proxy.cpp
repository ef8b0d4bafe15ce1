#include "processes/proxy.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string_view>
#include <utility>
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

std::function<Change()> corrupting(uint64_t seed, size_t between) {
  struct Damage {
    std::mt19937_64 random;
    size_t until_next;
  };
  const auto damage = std::make_shared<Damage>();
  damage->random.seed(seed);
  damage->until_next = damage->random() % between;
  return [damage, between]() -> Change {
    return [damage, between](std::string& bytes) {
      uint64_t changes = 0;
      while (damage->until_next < bytes.size()) {
        char& byte = bytes[damage->until_next];
        byte = static_cast<char>(static_cast<unsigned char>(byte) ^ (1 + damage->random() % 255));
        ++changes;
        damage->until_next += 1 + damage->random() % (2 * between);
      }
      damage->until_next -= bytes.size();
      return changes;
    };
  };
}

namespace {

// The bytes of the frame that the text begins with; 0: it is not whole.
size_t frame_size(std::string_view text) {
  constexpr unsigned kIsLong = 2;
  if (text.size() < 2) return 0;
  size_t head = 2, body = static_cast<unsigned char>(text[1]);
  if ((static_cast<unsigned char>(text[0]) & kIsLong) != 0) {
    head = 9;
    if (text.size() < head) return 0;
    body = 0;
    for (size_t i = 1; i < head; ++i) body = body << 8 | static_cast<unsigned char>(text[i]);
  }
  return text.size() < head + body ? 0 : head + body;
}

bool is_box(std::string_view frame) { return frame.substr(0, 32).find("\7MESSAGE") != std::string_view::npos; }

}  // namespace

std::function<Change()> spoiling_boxes(BoxFault fault, int every, int most) {
  struct Count {
    int boxes = 0;
    int changes = 0;
  };
  const auto count = std::make_shared<Count>();
  return [=]() -> Change {
    constexpr size_t kGreeting = 64;
    return [=, greeted = size_t{0}, held = std::string()](std::string& bytes) mutable -> uint64_t {
      const size_t of_greeting = std::min(bytes.size(), kGreeting - greeted);
      greeted += of_greeting;
      held += bytes.substr(of_greeting);
      bytes.resize(of_greeting);
      uint64_t changes = 0;
      size_t size = 0;
      for (; (size = frame_size(held)) > 0; held.erase(0, size)) {
        const std::string_view frame(held.data(), size);
        const bool is_next = is_box(frame) && count->changes < most && ++count->boxes % every == 0;
        if (!is_next || fault == BoxFault::kRepeated) bytes += frame;
        if (!is_next) continue;
        if (fault == BoxFault::kRepeated) bytes += frame;
        ++count->changes;
        ++changes;
      }
      return changes;
    };
  };
}

Proxy::Proxy(std::function<Change()> make_change) : make_change_(std::move(make_change)) {
  listener_ = bind_any(port_);
  if (listen(listener_, 16) != 0 || pipe(stop_) != 0) std::abort();
  thread_ = std::thread([this] { run(); });
}

Proxy::~Proxy() {
  close(stop_[1]);
  thread_.join();
  for (const auto& [fd, way] : ways_) close(fd);
  close(listener_);
  close(stop_[0]);
}

void Proxy::forward_to(const std::string& target) {
  std::lock_guard<std::mutex> lock(mutex_);
  target_ = target;
}

std::string Proxy::endpoint() const { return "tcp://127.0.0.1:" + std::to_string(port_); }

void Proxy::run() {
  for (;;) {
    std::vector<pollfd> waiting = {{stop_[0], POLLIN, 0}, {listener_, POLLIN, 0}};
    for (const auto& [fd, way] : ways_) waiting.push_back({fd, POLLIN, 0});
    poll(waiting.data(), waiting.size(), -1);
    if (waiting[0].revents != 0) return;
    if (waiting[1].revents != 0) accept_one();
    for (size_t i = 2; i < waiting.size(); ++i) {
      const auto found = ways_.find(waiting[i].fd);
      if (waiting[i].revents == 0 || found == ways_.end()) continue;
      const int other = found->second.to;
      if (carry(waiting[i].fd, found->second)) continue;
      for (const int fd : {waiting[i].fd, other}) {
        ways_.erase(fd);
        close(fd);
      }
    }
  }
}

int Proxy::dial_target() {
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

void Proxy::accept_one() {
  const int near = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
  if (near < 0) return;
  const int far = dial_target();
  if (far < 0) {
    close(near);
    return;
  }
  ++connections_;
  ways_[near] = {far, make_change_()};
  ways_[far] = {near, make_change_()};
}

// False when either side is gone. Both sides read on their own, so a write that waits ends.
bool Proxy::carry(int from, Way& way) {
  std::string bytes(size_t{64} << 10, '\0');
  const ssize_t got = read(from, bytes.data(), bytes.size());
  if (got <= 0) return false;
  bytes.resize(static_cast<size_t>(got));
  changed_ += way.change(bytes);
  for (size_t sent = 0; sent < bytes.size();) {
    const ssize_t put = send(way.to, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (put <= 0) return false;
    sent += static_cast<size_t>(put);
  }
  return true;
}

}  // namespace distag::testing
