#pragma once

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "contract/transport_contract.h"
#include "support/sockets.h"
#include "transport/socket/group_key.h"

// A worker that listens by libzmq, and clients by hand.
namespace distag::testing {

inline constexpr const char* kSecret = "the secret that this group of tests shares";
inline constexpr Nanos kLook = 20 * kMillisecond;

// `last_words`: how long queued words still go after an orderly end.
inline TransportKind zmq_kind(const char* secret, Nanos last_words = ZmqContext::kLastWords) {
  Security security;
  if (secret != nullptr) security.group_key = group_key_of(secret);
  return {"zmq",
          [security, last_words](FdLoop& loop) {
            return std::make_unique<SocketTransport>(std::make_unique<ZmqEngine>(loop, nullptr, kLook, last_words),
                                                     security);
          },
          {},
          {},
          {},
          false};
}

// Listens, and records messages, parts of messages and refusals.
class Served {
 public:
  explicit Served(const char* secret, const char* address = "tcp://127.0.0.1:0") : side_(zmq_kind(secret)) {
    side_.run([this, address] {
      AcceptorEvents events = recording_acceptor(record_);
      events.on_part = [this](const ConnectionToken& from) { record_.add({"part", {}, from}); };
      acceptor_ =
          side_.transport().listen(*address == '\0' ? side_.transport().private_address() : address, std::move(events));
      endpoint_ = acceptor_->endpoint();
    });
  }
  ~Served() {
    side_.run([this] { acceptor_.reset(); });
  }
  bool reply(const ConnectionToken& to, const std::string& text) {
    bool is_sent = false;
    side_.run([&] { is_sent = acceptor_->reply(to, {text_frame(text)}); });
    return is_sent;
  }
  void pass(Nanos time) {
    auto later = Future<Unit>::make();
    side_.run([&] { side_.loop().start_timer(side_.loop().now() + time, [later] { later->complete(Unit{}); }); });
    ASSERT_TRUE(wait(*later, kPatience));
  }
  size_t count(const std::string& what) {
    const std::vector<std::string> events = record_.all();
    return static_cast<size_t>(std::count(events.begin(), events.end(), what));
  }
  Side& side() { return side_; }
  Record& record() { return record_; }
  Acceptor& acceptor() { return *acceptor_; }  // on the loop
  const std::string& endpoint() const { return endpoint_; }

 private:
  Side side_;
  Record record_;
  std::unique_ptr<Acceptor> acceptor_;
  std::string endpoint_;
};

inline std::string greeting_of(const std::string& mechanism) {
  std::string greeting = std::string("\xff\0\0\0\0\0\0\0\1\x7f\3\0", 12) + mechanism;
  greeting.resize(64, '\0');
  return greeting;
}

inline std::string property(const std::string& name, const std::string& value) {
  return static_cast<char>(name.size()) + name + std::string(3, '\0') + static_cast<char>(value.size()) + value;
}

inline std::string ready_of(const std::string& properties) {
  const std::string body = "\5READY" + property("Socket-Type", "DEALER") + properties;
  return std::string("\4") + static_cast<char>(body.size()) + body;
}

// A client by hand, over tcp.
class Raw {
 public:
  explicit Raw(const std::string& endpoint) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const SocketAddress address = parse_address(endpoint, false);
    if (connect(fd_, reinterpret_cast<const sockaddr*>(&address.address), address.length) != 0) std::abort();
  }
  ~Raw() { close(fd_); }
  void say(const std::string& bytes) const {
    EXPECT_EQ(send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  }
  // The whole handshake of NULL: a message may follow.
  void shake(const std::string& properties) const {
    greet();
    say(ready_of(properties));
  }
  // The handshake of NULL up to the READY of the other side, which comes once ZAP has accepted this client.
  void greet() const {
    say(greeting_of("NULL"));
    std::string said;
    char bytes[256];
    while (said.find("READY") == std::string::npos) {
      const ssize_t got = recv(fd_, bytes, sizeof bytes, 0);
      ASSERT_GT(got, 0);
      said.append(bytes, static_cast<size_t>(got));
    }
  }
  void await_greeting() const {
    pollfd greeted{fd_, POLLIN, 0};
    EXPECT_EQ(poll(&greeted, 1, static_cast<int>(kPatience / kMillisecond)), 1);
  }
  // Whether this process has the other end: no memory is needed to look.
  bool is_held_here() const {
    sockaddr_in own{}, other{};
    socklen_t size = sizeof own;
    if (getsockname(fd_, reinterpret_cast<sockaddr*>(&own), &size) != 0) return true;
    for (int fd = 0; fd < 4096; ++fd) {
      size = sizeof other;
      const bool is_one = getpeername(fd, reinterpret_cast<sockaddr*>(&other), &size) == 0;
      if (is_one && other.sin_family == AF_INET && other.sin_port == own.sin_port) return true;
    }
    return false;
  }
  // Hangs up, and waits until the other side has hung up, too.
  void hang_up() const {
    shutdown(fd_, SHUT_WR);
    await_end();
  }
  // Waits until the other side has hung up.
  void await_end() const {
    char bytes[256];
    while (recv(fd_, bytes, sizeof bytes, 0) > 0) {
    }
  }

 private:
  const int fd_;
};

}  // namespace distag::testing
