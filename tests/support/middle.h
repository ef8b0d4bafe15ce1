#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "support/loopback.h"
#include "transport/socket/address.h"

namespace distag::testing {

// A man in the middle: passes on a connection, keeps the bytes of the client, and may change one of them.
class Middle {
 public:
  static constexpr size_t kNone = SIZE_MAX;

  Middle(const std::string& target, size_t changed_byte, bool repeats_messages = false)
      : changed_byte_(changed_byte), repeats_messages_(repeats_messages) {
    auto listener = std::make_unique<LoopbackListener>();
    endpoint_ = listener->endpoint();
    thread_ =
        std::thread([this, listener = std::move(listener), target]() mutable { pass_on(std::move(listener), target); });
  }
  ~Middle() { thread_.join(); }
  const std::string& endpoint() const { return endpoint_; }
  // Waits until both sides have hung up.
  std::string client_bytes() {
    if (thread_.joinable()) thread_.join();
    thread_ = std::thread([] {});
    return client_bytes_;
  }

  static int connect_to(const std::string& endpoint) {
    const SocketAddress address = parse_address(endpoint, false);
    const int fd = socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(fd, reinterpret_cast<const sockaddr*>(&address.address), address.length) != 0) std::abort();
    return fd;
  }

 private:
  void pass_on(std::unique_ptr<LoopbackListener> listener, const std::string& target) {
    const int client = accept(listener->fd(), nullptr, nullptr);
    listener.reset();
    const int server = connect_to(target);
    pollfd ends[2] = {{client, POLLIN, 0}, {server, POLLIN, 0}};
    for (bool open = true; open;) {
      if (poll(ends, 2, 120'000) == 0) {
        ADD_FAILURE() << "neither side has hung up within 120 s";
        break;
      }
      for (int i = 0; i < 2 && open; ++i) {
        if (ends[i].revents == 0) continue;
        char bytes[4096];
        const ssize_t got = read(ends[i].fd, bytes, sizeof bytes);
        open = got > 0 && pass(i == 0, bytes, static_cast<size_t>(got), ends[1 - i].fd);
      }
    }
    close(client);
    close(server);
  }
  bool pass(bool is_client, char* bytes, size_t size, int to) {
    if (is_client) {
      if (changed_byte_ >= client_bytes_.size() && changed_byte_ < client_bytes_.size() + size) {
        bytes[changed_byte_ - client_bytes_.size()] ^= 0x20;
      }
      client_bytes_.append(bytes, size);
      const bool is_message = size > 2 && std::string_view(bytes, size).substr(2).starts_with("\7MESSAGE");
      if (is_message && repeats_messages_) send(to, bytes, size, MSG_NOSIGNAL);
    }
    return send(to, bytes, size, MSG_NOSIGNAL) == static_cast<ssize_t>(size);
  }

  const size_t changed_byte_;
  const bool repeats_messages_;
  std::string endpoint_;
  std::string client_bytes_;
  std::thread thread_;
};

}  // namespace distag::testing
