// The side that dials: against ROUTERs of libzmq, and against servers that break the protocol at each step.
#include "transport/zmtp/zmtp_connection.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>
#include <zmq.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "contract/transport_contract.h"
#include "support/loopback.h"
#include "support/sockets.h"
#include "transport/socket/address.h"
#include "transport/socket/group_key.h"
#include "transport/zmtp/outbox.h"
#include "transport/zmtp/zmtp_reader.h"

namespace distag::testing {
namespace {

constexpr const char* kSecret = "the secret that this group of tests shares";
constexpr const char* kOtherSecret = "another secret, of another group of tests";

TransportKind kind_of(const char* secret) {
  Security security;
  if (secret != nullptr) security.group_key = group_key_of(secret);
  return {"zmtp", [security](FdLoop& loop) { return make_zmtp(loop, security); }, {}, {}, {}, false};
}

// ---- libzmq at the other side ----

class LibzmqSocket {
 public:
  LibzmqSocket(int type, const char* secret) : context_(zmq_ctx_new()), socket_(zmq_socket(context_, type)) {
    const int no_wait = 0, patience = 30'000;
    zmq_setsockopt(socket_, ZMQ_LINGER, &no_wait, sizeof no_wait);
    zmq_setsockopt(socket_, ZMQ_RCVTIMEO, &patience, sizeof patience);
    if (secret == nullptr) return;
    const CurveKeyPair key = group_key_of(secret);
    const int is_server = type == ZMQ_ROUTER ? 1 : 0;
    zmq_setsockopt(socket_, ZMQ_CURVE_SERVER, &is_server, sizeof is_server);
    if (is_server == 0) zmq_setsockopt(socket_, ZMQ_CURVE_SERVERKEY, key.public_key.data(), key.public_key.size());
    zmq_setsockopt(socket_, ZMQ_CURVE_PUBLICKEY, key.public_key.data(), key.public_key.size());
    zmq_setsockopt(socket_, ZMQ_CURVE_SECRETKEY, key.secret_key.data(), key.secret_key.size());
  }
  ~LibzmqSocket() {
    zmq_close(socket_);
    zmq_ctx_term(context_);
  }

  void* handle() const { return socket_; }
  std::string bind() {
    EXPECT_EQ(zmq_bind(socket_, "tcp://127.0.0.1:*"), 0);
    char endpoint[64];
    size_t size = sizeof endpoint;
    zmq_getsockopt(socket_, ZMQ_LAST_ENDPOINT, endpoint, &size);
    return endpoint;
  }
  std::vector<std::string> receive() {
    std::vector<std::string> parts;
    for (int more = 1; more != 0;) {
      zmq_msg_t part;
      zmq_msg_init(&part);
      if (zmq_msg_recv(&part, socket_, 0) < 0) return {};
      parts.emplace_back(static_cast<const char*>(zmq_msg_data(&part)), zmq_msg_size(&part));
      more = zmq_msg_more(&part);
      zmq_msg_close(&part);
    }
    return parts;
  }
  void send(const std::vector<std::string>& parts) {
    for (size_t i = 0; i < parts.size(); ++i) {
      const int flags = i + 1 < parts.size() ? ZMQ_SNDMORE : 0;
      EXPECT_GE(zmq_send(socket_, parts[i].data(), parts[i].size(), flags), 0);
    }
  }

 private:
  void* const context_;
  void* const socket_;
};

TEST(ZmtpConnection, SpeaksWithARouterOfLibzmq) {
  for (const char* secret : {static_cast<const char*>(nullptr), kSecret}) {
    LibzmqSocket router(ZMQ_ROUTER, secret);
    Side side(kind_of(secret));
    Dialled dialled(side, router.bind());
    ASSERT_EQ(dialled.record().next("connected").what, "connected");
    for (const size_t size : std::initializer_list<size_t>{0, 1, 255, 256, 8191, 70'000, 1'000'000}) {
      ASSERT_TRUE(dialled.send({text_frame("head"), make_frame(size, 1), text_frame("")}));
      std::vector<std::string> parts = router.receive();
      ASSERT_EQ(parts.size(), 4u);
      EXPECT_EQ(parts[1], "head");
      EXPECT_TRUE(parts[2] == text_of(make_frame(size, 1))) << size;
      router.send(parts);
      const Frames answer = dialled.record().next("message").frames;
      ASSERT_EQ(answer.size(), 3u);
      EXPECT_TRUE(text_of(answer[1]) == parts[2]) << size;
    }
  }
}

TEST(ZmtpConnection, AcceptorSpeaksWithADealerOfLibzmq) {
  for (const char* secret : {static_cast<const char*>(nullptr), kSecret}) {
    Side side(kind_of(secret));
    Listening listening(side, "tcp://127.0.0.1:0");
    LibzmqSocket dealer(ZMQ_DEALER, secret);
    ASSERT_EQ(zmq_connect(dealer.handle(), listening.endpoint().c_str()), 0);
    for (const size_t size : std::initializer_list<size_t>{1, 300, 1'000'000}) {
      dealer.send({"head", std::string(size, 'x')});
      const Record::Event event = listening.record().next("message");
      ASSERT_EQ(event.frames.size(), 2u);
      EXPECT_TRUE(listening.reply(event.from, event.frames));
      EXPECT_EQ(dealer.receive(), (std::vector<std::string>{"head", std::string(size, 'x')}));
    }
  }
}

TEST(ZmtpConnection, ARouterOfLibzmqWithAnotherKeyIsDenied) {
  LibzmqSocket router(ZMQ_ROUTER, kOtherSecret);
  Side side(kind_of(kSecret));
  Record record;
  std::unique_ptr<Connection> connection;
  side.run([&] {
    ConnectionEvents events = recording(record);
    events.on_denied = [&record] { record.add({"denied", {}, {}}); };
    connection = side.transport().dial(router.bind(), std::move(events));
  });
  EXPECT_EQ(record.next("dropped").what, "dropped");
  EXPECT_EQ(record.all(), (std::vector<std::string>{"denied", "dropped"}));
  side.run([&connection] { connection.reset(); });
}

// ---- servers by hand ----

std::string greeting_of(const std::string& mechanism, int version = 3) {
  std::string greeting = std::string("\xff\0\0\0\0\0\0\0\1\x7f", 10) + static_cast<char>(version) + '\1' + mechanism;
  greeting.resize(64);
  return greeting;
}

std::string command(const std::string& body, char flags = 4) {
  const bool is_long = body.size() > 255;
  std::string text(1, static_cast<char>(flags | (is_long ? 2 : 0)));
  for (size_t left = is_long ? 8 : 1; left > 0; --left) {
    text += static_cast<char>(static_cast<uint64_t>(body.size()) >> (8 * (left - 1)));
  }
  return text + body;
}

std::string ready_of(const std::string& type) {
  return command(std::string("\5READY") + "\x0bSocket-Type" + std::string(3, '\0') + static_cast<char>(type.size()) +
                 type + std::string("\10Identity\0\0\0\0", 13));
}

std::string frame(const std::string& body, bool more = false) { return command(body, more ? 1 : 0); }

const std::string kSound = greeting_of("NULL") + ready_of("ROUTER");

// A server that is dialled, by a plain socket.
class PlainServer {
 public:
  ~PlainServer() { hang_up(); }
  const std::string& endpoint() const { return listener_.endpoint(); }

  void accept_one() { fd_ = accept(listener_.fd(), nullptr, nullptr); }
  void hang_up() {
    if (fd_ >= 0) close(std::exchange(fd_, -1));
  }
  void send_text(const std::string& text) const {
    EXPECT_EQ(send(fd_, text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
  }
  std::string read_bytes(size_t count) const {
    std::string bytes(count, '\0');
    const ssize_t got = recv(fd_, bytes.data(), count, MSG_WAITALL);
    bytes.resize(got > 0 ? static_cast<size_t>(got) : 0);
    return bytes;
  }
  int fd() const { return fd_; }

 private:
  const LoopbackListener listener_;
  int fd_ = -1;
};

// Greeting and READY of a DEALER.
constexpr size_t kBytesOfDialler = 64 + 2 + 41;

// The connection of a side to a server that has spoken its part of the handshake.
class Shaken {
 public:
  Shaken() : side_(kind_of(nullptr)), dialled_(side_, server_.endpoint()) {
    server_.accept_one();
    server_.send_text(kSound);
    EXPECT_EQ(dialled_.record().next("connected").what, "connected");
    EXPECT_EQ(server_.read_bytes(kBytesOfDialler).size(), kBytesOfDialler);
  }
  PlainServer& server() { return server_; }
  Dialled& dialled() { return dialled_; }
  Side& side() { return side_; }

 private:
  PlainServer server_;
  Side side_;
  Dialled dialled_;
};

std::vector<std::string> events_with(const std::string& bytes, const char* secret = nullptr) {
  PlainServer server;
  Side side(kind_of(secret));
  Record record;
  std::unique_ptr<Connection> connection;
  side.run([&side, &server, &record, &connection] {
    ConnectionEvents events = recording(record);
    events.on_denied = [&record] { record.add({"denied", {}, {}}); };
    connection = side.transport().dial(server.endpoint(), std::move(events));
  });
  server.accept_one();
  server.send_text(bytes);
  shutdown(server.fd(), SHUT_WR);
  EXPECT_EQ(record.next("dropped").what, "dropped");
  side.run([&connection] { connection.reset(); });
  return record.all();
}

using Events = std::vector<std::string>;
const Events kDropped = {"dropped"};
const Events kDenied = {"denied", "dropped"};

TEST(ZmtpConnection, SaysAsADealerWhatItIs) {
  PlainServer server;
  Side side(kind_of(nullptr));
  Dialled dialled(side, server.endpoint());
  server.accept_one();
  const std::string said = server.read_bytes(kBytesOfDialler);
  EXPECT_EQ(said.substr(0, 1), "\xff");
  EXPECT_EQ(said[9], '\x7f');
  EXPECT_EQ(said[10], 3);
  EXPECT_EQ(said.substr(12, 20), std::string("NULL") + std::string(16, '\0'));
  EXPECT_EQ(said.substr(64), ready_of("DEALER"));
}

TEST(ZmtpConnection, AServerThatBreaksTheHandshakeIsDropped) {
  const std::string large_size = std::string("\2\0\0\0\0\1\0\0\0", 9);
  for (const auto& [name, bytes] : std::vector<std::pair<std::string, std::string>>{
           {"nothing", ""},
           {"http", "HTTP/1.1 400 Bad Request\r\n\r\n"},
           {"half a greeting", kSound.substr(0, 30)},
           {"no signature", std::string(64, '\xff')},
           {"an old version", greeting_of("NULL", 1)},
           {"no READY", greeting_of("NULL")},
           {"half of READY", kSound.substr(0, 80)},
           {"a DEALER", greeting_of("NULL") + ready_of("DEALER")},
           {"a PUB", greeting_of("NULL") + ready_of("PUB")},
           {"a message before READY", greeting_of("NULL") + frame("a")},
           {"a frame that is too large", kSound + large_size},
           {"flags", kSound + "\x08"},
           {"a large command", kSound + std::string("\6\0\0\0\0\0\0\x20\0", 9)},
           {"another error", greeting_of("NULL") + command("\5ERROR\3"
                                                           "999")},
           {"an error without a reason", greeting_of("NULL") + command("\5ERROR")},
           {"a cut property", greeting_of("NULL") + command("\5READY\x0bSocket")}}) {
    EXPECT_EQ(events_with(bytes), kDropped) << name;
  }
  for (const std::string& bytes : {kSound, kSound + frame("a", true)}) {
    EXPECT_EQ(events_with(bytes), (Events{"connected", "dropped"}));
  }
}

TEST(ZmtpConnection, AServerThatDoesNotAgreeOnKeysIsADenial) {
  for (const char* reason : {"300", "400", "500"}) {
    const std::string error = command(std::string("\5ERROR\3") + reason);
    EXPECT_EQ(events_with(greeting_of("NULL") + error), kDenied);
    EXPECT_EQ(events_with(greeting_of("CURVE") + error, kSecret), kDenied);
  }
  EXPECT_EQ(events_with(greeting_of("CURVE")), kDenied);
  EXPECT_EQ(events_with(greeting_of("NULL"), kSecret), kDenied);
  EXPECT_EQ(events_with(greeting_of("PLAIN")), kDenied);
  const std::string welcome = std::string("\7WELCOME") + std::string(16 + 16 + 32 + 96, 'x');
  EXPECT_EQ(events_with(greeting_of("CURVE") + command(welcome), kSecret), kDenied);
}

TEST(ZmtpConnection, AServerThatBreaksTheHandshakeOfCurveIsDropped) {
  const std::string greeting = greeting_of("CURVE");
  for (const auto& [name, bytes] : std::vector<std::pair<std::string, std::string>>{
           {"nothing more", greeting},
           {"READY first", greeting + command("\5READY" + std::string(60, 'x'))},
           {"READY without a box", greeting + ready_of("ROUTER")},
           {"a short WELCOME", greeting + command("\7WELCOME")},
           {"a long WELCOME", greeting + command("\7WELCOME" + std::string(161, 'x'))},
           {"half of WELCOME", greeting + command("\7WELCOME" + std::string(160, 'x')).substr(0, 90)},
           {"a message", greeting + frame("\7MESSAGE" + std::string(40, 'x'))}}) {
    EXPECT_EQ(events_with(bytes, kSecret), kDropped) << name;
  }
}

TEST(ZmtpConnection, BytesAfterTheHandshakeAreMessagesUntilTheEnd) {
  EXPECT_EQ(events_with(kSound + frame("a") + ready_of("ROUTER") + frame("b", true) + frame("c") + frame("d", true)),
            (Events{"connected", "message", "message", "dropped"}));
}

TEST(ZmtpConnection, ThousandsOfMessagesAtOnceAreAllHandedOut) {
  std::string bytes = kSound;
  for (int i = 0; i < 5000; ++i) bytes += frame(std::to_string(i));
  const Events events = events_with(bytes);
  EXPECT_EQ(events.size(), 5002u);
  EXPECT_EQ(events.back(), "dropped");
}

TEST(ZmtpConnection, APingIsAnsweredByItsContext) {
  Shaken shaken;
  shaken.server().send_text(command(std::string("\4PING\0\1context", 14)));
  EXPECT_EQ(shaken.server().read_bytes(2 + 5 + 7), command("\4PONGcontext"));
  shaken.server().send_text(command(std::string("\4PING", 5)) + command(std::string("\4PING\0\1", 7)));
  EXPECT_EQ(shaken.server().read_bytes(2 + 5), command("\4PONG")) << "and not for one that is cut off";
}

// The handshake has a deadline, whatever it waits for.
TEST(ZmtpConnection, AServerThatNeverAnswersIsDropped) {
  for (const std::string& bytes : {std::string(), greeting_of("NULL"), greeting_of("NULL").substr(0, 11)}) {
    PlainServer server;
    Side side(kind_of(nullptr));
    Record record;
    std::unique_ptr<Connection> connection;
    side.run([&side, &server, &record, &connection] {
      connection = std::make_unique<ZmtpConnection>(std::make_shared<SocketTurns>(side.loop()),
                                                    parse_address(server.endpoint(), false), std::nullopt,
                                                    recording(record), kSecond / 2);
    });
    server.accept_one();
    server.send_text(bytes);
    EXPECT_EQ(record.next("dropped").what, "dropped");
    EXPECT_EQ(record.all(), kDropped);
    EXPECT_EQ(server.read_bytes(kBytesOfDialler + 1).size(), kBytesOfDialler) << "and hung up";
    side.run([&connection] { connection.reset(); });
  }
}

TEST(ZmtpConnection, ADeadlineOfADialEndsWithTheHandshake) {
  // The handshake has to end before: longer each time, as the machine may stop for a while.
  bool is_right = false;
  for (Nanos timeout = 100 * kMillisecond; !is_right && timeout < 5 * kSecond; timeout *= 3) {
    PlainServer server;
    Side side(kind_of(nullptr));
    Record record;
    std::unique_ptr<Connection> connection;
    side.run([&side, &server, &record, &connection, timeout] {
      connection = std::make_unique<ZmtpConnection>(std::make_shared<SocketTurns>(side.loop()),
                                                    parse_address(server.endpoint(), false), std::nullopt,
                                                    recording(record), timeout);
    });
    server.accept_one();
    server.send_text(kSound);
    auto later = Future<Unit>::make();
    side.run([&side, later, timeout] {
      side.loop().start_timer(side.loop().now() + timeout * 3 / 2, [later] { later->complete(Unit{}); });
    });
    ASSERT_TRUE(wait(*later, kPatience));
    is_right = record.all() == Events{"connected"};
    side.run([&connection] { connection.reset(); });
  }
  EXPECT_TRUE(is_right);
}

// A reader that stalls: nothing more is taken, what was taken waits in a bounded queue, and comes in order.
TEST(ZmtpConnection, AReaderThatStallsGetsAllInOrderOnceItReads) {
  for (const size_t size : {size_t{1000}, size_t{60'000}, size_t{1} << 20}) {
    Shaken shaken;
    size_t sent = 0;
    size_t bytes = 0;
    const auto message = [size](size_t number) {
      return Frames{text_frame(fmt::format("{:8}", number)), make_frame(size, static_cast<unsigned>(number))};
    };
    while (shaken.dialled().send(message(sent))) {
      ++sent;
      bytes += 8 + size;
      ASSERT_LT(bytes, size_t{64} << 20) << "memory is not bounded";
    }
    for (size_t i = 0; i < sent; ++i) {
      const std::string expected = frame(fmt::format("{:8}", i), true) + frame(text_of(message(i)[1]));
      ASSERT_TRUE(shaken.server().read_bytes(expected.size()) == expected) << i;
    }
    EXPECT_EQ(shaken.dialled().record().next("writable").what, "writable");
    EXPECT_TRUE(shaken.dialled().send({text_frame("last")}));
    EXPECT_EQ(shaken.server().read_bytes(6), frame("last"));
  }
}

// The memory of a frame is released as soon as the system has it, and not before.
TEST(ZmtpConnection, AFrameIsKeptUntilItIsWritten) {
  Shaken shaken;
  const auto owner = std::make_shared<std::vector<std::byte>>(size_t{1} << 20);
  shaken.side().run([&shaken, &owner] {
    EXPECT_TRUE(shaken.dialled().connection().send({Frame(owner->data(), owner->size(), owner)}));
    EXPECT_EQ(owner.use_count(), 2) << "copied, or written within the call";
  });
  EXPECT_EQ(shaken.server().read_bytes(9 + owner->size()).size(), 9 + owner->size());
  for (int i = 0; i < 100'000 && owner.use_count() > 1; ++i) shaken.side().run([] {});
  EXPECT_EQ(owner.use_count(), 1);
}

TEST(ZmtpConnection, AnEndWhileBytesWaitIsADrop) {
  Shaken shaken;
  while (shaken.dialled().send({make_frame(60'000, 1)})) {
  }
  shaken.server().hang_up();
  EXPECT_EQ(shaken.dialled().record().next("dropped").what, "dropped");
  EXPECT_FALSE(shaken.dialled().send({text_frame("late")}));
}

// Messages that came before the end are handed out, also where a write notices the end first: the server hangs up while
// the loop is busy, which then writes before it reads.
TEST(ZmtpConnection, WhatCameBeforeTheEndIsHandedOut) {
  Shaken shaken;
  ASSERT_TRUE(shaken.dialled().send({text_frame("unread")}));
  char first = 0;
  ASSERT_EQ(recv(shaken.server().fd(), &first, 1, MSG_PEEK), 1) << "so that the end is a reset";
  shaken.side().run([&shaken] {
    std::string bytes;
    for (int i = 0; i < 200; ++i) bytes += frame(std::to_string(i));
    shaken.server().send_text(bytes);
    shaken.server().hang_up();
    EXPECT_TRUE(shaken.dialled().connection().send({text_frame("late")}));
  });
  ASSERT_EQ(shaken.dialled().record().next("dropped").what, "dropped");
  const Events events = shaken.dialled().record().all();
  EXPECT_EQ(std::count(events.begin(), events.end(), "message"), 200);
}

TEST(Outbox, IsFullByBytesAndByPieces) {
  Outbox outbox;
  EXPECT_TRUE(outbox.is_empty());
  outbox.add({make_frame(Outbox::kFull - 200, 1)});
  EXPECT_FALSE(outbox.is_full());
  outbox.add({make_frame(200, 1)});
  EXPECT_TRUE(outbox.is_full());
  outbox.clear();
  EXPECT_TRUE(outbox.is_empty());
  size_t pieces = 0;
  for (; !outbox.is_full(); ++pieces) outbox.add({make_frame(1, 1)});
  EXPECT_LT(pieces, 10'000u);
}

TEST(Outbox, WritesInOrderWhateverTheSocketTakes) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  Outbox outbox;
  std::string expected;
  std::string got;
  for (size_t i = 0; i < 400; ++i) {
    const Frame piece = make_frame(1 + i * 37 % 9000, static_cast<unsigned>(i));
    expected += text_of(piece);
    outbox.add({piece});
    if (i % 7 == 0) outbox.write_to(ends[0], 5000);
    if (i % 70 != 69) continue;
    char bytes[100'000];
    const ssize_t size = recv(ends[1], bytes, sizeof bytes, MSG_DONTWAIT);
    got.append(bytes, static_cast<size_t>(std::max<ssize_t>(size, 0)));
  }
  while (got.size() < expected.size()) {
    outbox.write_to(ends[0], 5000);
    char bytes[3000];
    const ssize_t size = recv(ends[1], bytes, sizeof bytes, 0);
    got.append(bytes, static_cast<size_t>(std::max<ssize_t>(size, 0)));
  }
  EXPECT_TRUE(got == expected);
  EXPECT_TRUE(outbox.is_empty());
  close(ends[1]);
  outbox.add({make_frame(1, 1)});
  EXPECT_EQ(outbox.write_to(ends[0], 1), Outbox::Written::kGone);
  close(ends[0]);
}

}  // namespace
}  // namespace distag::testing
