// The words of a listener on connections that do not come so far as a message.
#include "transport/zmtp/zmtp_acceptor.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "contract/transport_contract.h"
#include "support/sockets.h"
#include "transport/socket/address.h"
#include "transport/socket/group_key.h"
#include "transport/socket/socket_turns.h"

namespace distag::testing {
namespace {

TransportKind kind() {
  return {"zmtp", [](FdLoop& loop) { return make_zmtp(loop); }, {}, {}, {}, false};
}

// The first bytes of a client: signature, version, mechanism, and that it does not serve.
std::string greeting_of(const std::string& mechanism) {
  std::string greeting = std::string("\xff\0\0\0\0\0\0\0\0\x7f\3\0", 12) + mechanism;
  greeting.resize(64, '\0');
  return greeting;
}

// A stranger over tcp.
class Stranger {
 public:
  explicit Stranger(const std::string& endpoint) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const SocketAddress address = parse_address(endpoint, false);
    if (connect(fd_, reinterpret_cast<const sockaddr*>(&address.address), address.length) != 0) std::abort();
    SocketAddress own;
    own.length = sizeof own.address;
    if (getsockname(fd_, reinterpret_cast<sockaddr*>(&own.address), &own.length) != 0) std::abort();
    own_ = tcp_endpoint(own);
  }
  ~Stranger() { hang_up(); }
  void say(const std::string& bytes) const {
    EXPECT_EQ(send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  }
  // Until it was accepted, and greeted.
  void await_greeting() const {
    pollfd greeted{fd_, POLLIN, 0};
    EXPECT_EQ(poll(&greeted, 1, static_cast<int>(kPatience / kMillisecond)), 1);
  }
  void hang_up() {
    if (fd_ >= 0) close(std::exchange(fd_, -1));
  }
  const std::string& own() const { return own_; }

 private:
  int fd_;
  std::string own_;
};

// All that a member without a key says before its first message, and a message.
const std::string kHandshake = greeting_of("NULL") + std::string("\4\x1c\5READY\x0bSocket-Type\0\0\0\6DEALER", 30);
const std::string kMessage("\0\2hi", 4);

// An acceptor with the key of a group, or without, that records the strangers that it refused.
class ZmtpAcceptorTest : public ::testing::Test {
 protected:
  ZmtpAcceptorTest() : side_(kind()) {}
  ~ZmtpAcceptorTest() override { destroy_acceptor(); }

  void listen(const std::optional<SocketKeys>& keys, Nanos handshake_timeout) {
    side_.run([this, &keys, handshake_timeout] {
      acceptor_ = std::make_unique<ZmtpAcceptor>(std::make_shared<SocketTurns>(side_.loop()),
                                                 parse_address("tcp://127.0.0.1:0", true), keys,
                                                 recording_acceptor(record_), handshake_timeout);
      endpoint_ = acceptor_->endpoint();
    });
  }
  void destroy_acceptor() {
    side_.run([this] { acceptor_.reset(); });
  }
  std::string next_denial() {
    const Record::Event event = record_.next("denied");
    return event.frames.empty() ? "nothing" : text_of(event.frames.at(0));
  }
  static std::string refusal(const Stranger& stranger, const std::string& why) {
    return "a connection from " + stranger.own() + " was refused: " + why;
  }

  const SocketKeys key_{group_key_of("the secret that this group of tests shares")};
  Side side_;
  Record record_;
  std::unique_ptr<ZmtpAcceptor> acceptor_;
  std::string endpoint_;
};

TEST_F(ZmtpAcceptorTest, TellsOfBytesThatAreNoHandshake) {
  listen(key_, kPatience);
  const std::vector<std::pair<std::string, std::string>> strangers = {
      {"GET / HTTP/1.1\r\n\r\n", "it speaks no ZMTP: it begins with \"GET / HTTP/1.1..\""},
      {std::string("\xff\0\0\0\0\0\0\0\x01\x7f\x01", 11), "it speaks no ZMTP: an old version"},
      {greeting_of("CURVE") + std::string("\0\5HELLO", 7), "it speaks no ZMTP: no handshake"},
      {greeting_of("CURVE") + std::string("\4\6\5READY", 8), "it speaks no CURVE: no HELLO"}};
  for (const auto& [bytes, why] : strangers) {
    const Stranger stranger(endpoint_);
    stranger.say(bytes);
    ASSERT_EQ(next_denial(), refusal(stranger, why));
  }
}

TEST_F(ZmtpAcceptorTest, TellsOfAHandshakeThatDoesNotEndInTime) {
  listen(key_, 50 * kMillisecond);
  for (const std::string& bytes : {std::string(), greeting_of("CURVE").substr(0, 11), greeting_of("CURVE")}) {
    const Stranger stranger(endpoint_);
    stranger.say(bytes);
    ASSERT_EQ(next_denial(), refusal(stranger, "its handshake has not ended in time"));
  }
}

TEST_F(ZmtpAcceptorTest, TellsOfWhoHangsUpInItsHandshake) {
  listen(key_, kPatience);
  for (const std::string& bytes : {greeting_of("CURVE").substr(0, 11), greeting_of("CURVE")}) {
    Stranger stranger(endpoint_);
    stranger.await_greeting();
    stranger.say(bytes);
    stranger.hang_up();
    ASSERT_EQ(next_denial(), refusal(stranger, "it hung up in the midst of its handshake"));
  }
}

// As those do who look whether somebody listens.
TEST_F(ZmtpAcceptorTest, TellsNothingOfWhoHangsUpWithoutAWord) {
  listen(key_, kPatience);
  for (const bool waits : {false, true}) {
    Stranger quiet(endpoint_);
    if (waits) quiet.await_greeting();
    quiet.hang_up();
    const Stranger stranger(endpoint_);
    stranger.say("GET");
    ASSERT_EQ(next_denial(), refusal(stranger, "it speaks no ZMTP: it begins with \"GET\""));
  }
  EXPECT_EQ(record_.all().size(), 2u);
}

// The client is a member: the layers above know of its end. Here it says nothing, hangs up, or breaks a message. Its
// handshake has to end in time: the limit grows each round, as the machine may stop for a while.
TEST_F(ZmtpAcceptorTest, TellsNothingOfWhoHasEndedItsHandshake) {
  std::vector<std::string> told;
  for (Nanos timeout = 50 * kMillisecond; told != std::vector<std::string>{"message"} && timeout < 5 * kSecond;
       timeout *= 4) {
    const size_t before = record_.all().size();
    destroy_acceptor();
    listen(std::nullopt, timeout);
    for (const std::string& rest : {std::string(), kMessage, std::string("\xff\xff", 2)}) {
      Stranger member(endpoint_);
      member.await_greeting();
      member.say(kHandshake + rest);
      auto later = Future<Unit>::make();
      side_.run([this, later, timeout] {
        side_.loop().start_timer(side_.loop().now() + 2 * timeout, [later] { later->complete(Unit{}); });
      });
      if (rest == kMessage) member.hang_up();
      ASSERT_TRUE(wait(*later, kPatience));
    }
    told = record_.all();
    told.erase(told.begin(), told.begin() + static_cast<std::ptrdiff_t>(before));
  }
  ASSERT_EQ(told, std::vector<std::string>{"message"});
  EXPECT_EQ(text_of(record_.next("message").frames.at(0)), "hi");
}

// Also while messages of a member wait for their turn.
TEST_F(ZmtpAcceptorTest, MayBeDestroyedByWhomItTells) {
  side_.run([this] {
    AcceptorEvents events = recording_acceptor(record_);
    events.on_denied = [this](const std::string&) {
      acceptor_.reset();
      record_.add({"denied", {}, {}});
    };
    acceptor_ =
        std::make_unique<ZmtpAcceptor>(std::make_shared<SocketTurns>(side_.loop()),
                                       parse_address("tcp://127.0.0.1:0", true), std::nullopt, std::move(events));
    endpoint_ = acceptor_->endpoint();
  });
  std::string messages;
  for (int i = 0; i < 1000; ++i) messages += kMessage;
  Stranger member(endpoint_);
  member.say(kHandshake + kMessage);
  record_.next("message");
  std::vector<std::unique_ptr<Stranger>> strangers;
  for (int i = 0; i < 8; ++i) {
    strangers.push_back(std::make_unique<Stranger>(endpoint_));
    strangers.back()->await_greeting();
  }
  side_.run([&] {  // all at once
    member.say(messages);
    for (const auto& stranger : strangers) stranger->say("GET");
  });
  EXPECT_EQ(record_.next("denied").what, "denied");
  destroy_acceptor();
  const std::vector<std::string> events = record_.all();
  EXPECT_EQ(std::count(events.begin(), events.end(), "denied"), 1);
}

}  // namespace
}  // namespace distag::testing
