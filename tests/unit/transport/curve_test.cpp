// The handshake of CURVE: clients that get past it, and those that do not. Those that know a key are libzmq.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <zmq.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>

#include "contract/transport_contract.h"
#include "support/loopback.h"
#include "support/middle.h"
#include "support/sockets.h"
#include "transport/socket/address.h"
#include "transport/socket/group_key.h"
#include "transport/zmtp/zmtp_reader.h"

namespace distag::testing {
namespace {

constexpr const char* kSecret = "the secret that this group of tests shares";
constexpr const char* kOtherSecret = "another secret, of another group of tests";

TransportKind kind_of(Engine engine, const char* secret) {
  Security security;
  if (secret != nullptr) security.group_key = group_key_of(secret);
  return {name_of(engine),
          [engine, security](FdLoop& loop) { return make_sockets(engine, loop, security); },
          {},
          {},
          {},
          false};
}

// An acceptor that also records the strangers that it refused; it may answer each message.
class Guarded {
 public:
  Guarded(Engine engine, const char* secret, bool answers = false) : side_(kind_of(engine, secret)) {
    side_.run([this, answers] {
      AcceptorEvents events;
      events.on_message = [this, answers](const ConnectionToken& from, Frames frames) {
        messages_.push_back(text_of(frames.at(0)));
        if (answers) acceptor_->reply(from, {text_frame("heard")});
        record_.add({"message", std::move(frames), from});
      };
      events.on_denied = [this](const std::string& why) { record_.add({"denied", {text_frame(why)}, {}}); };
      acceptor_ = side_.transport().listen("tcp://127.0.0.1:0", std::move(events));
      endpoint_ = acceptor_->endpoint();
    });
  }
  ~Guarded() {
    side_.run([this] { acceptor_.reset(); });
  }
  const std::string& endpoint() const { return endpoint_; }
  Record& record() { return record_; }
  std::vector<std::string> messages() {
    std::vector<std::string> messages;
    side_.run([this, &messages] { messages = messages_; });
    return messages;
  }

 private:
  Side side_;
  Record record_;
  std::vector<std::string> messages_;  // on the loop
  std::unique_ptr<Acceptor> acceptor_;
  std::string endpoint_;
};

class CurveTest : public ::testing::TestWithParam<Engine> {};

// The events of a dial until its end, and the time it took.
std::vector<std::string> events_of_dial(Engine engine, const char* secret, const std::string& endpoint, Nanos& took) {
  Side side(kind_of(engine, secret));
  Record record;
  std::unique_ptr<Connection> connection;
  const Nanos begun = side.loop().now();
  side.run([&side, &endpoint, &record, &connection] {
    ConnectionEvents events = recording(record);
    events.on_denied = [&record] { record.add({"denied", {}, {}}); };
    connection = side.transport().dial(endpoint, std::move(events));
  });
  record.next("dropped");
  took = side.loop().now() - begun;
  side.run([&connection] { connection.reset(); });
  return record.all();
}

// By what the handshake says, whatever engine listens.
TEST_P(CurveTest, WhoHasNotTheKeyIsDenied) {
  for (const Engine listens : {Engine::kZmtp, Engine::kZmq}) {
    for (const auto& [listener, dialler] : std::vector<std::pair<const char*, const char*>>{
             {kSecret, kOtherSecret}, {kSecret, nullptr}, {nullptr, kSecret}}) {
      Guarded guarded(listens, listener);
      Nanos took = 0;
      EXPECT_EQ(events_of_dial(GetParam(), dialler, guarded.endpoint(), took),
                (std::vector<std::string>{"denied", "dropped"}))
          << name_of(listens);
      const std::vector<std::string> events = guarded.record().all();
      EXPECT_EQ(std::count(events.begin(), events.end(), "message"), 0);
    }
  }
}

// Without a key of the group both sides of a machine speak with that of the user, which is asked for once it is needed.
TEST_P(CurveTest, LoopbackSpeaksWithTheKeyOfTheUser) {
  int asked = 0;
  Security security;
  security.user_key = [&asked] {
    ++asked;
    return group_key_of(kSecret);
  };
  const TransportKind kind{
      name_of(GetParam()),
      [engine = GetParam(), security](FdLoop& loop) { return make_sockets(engine, loop, security); },
      {},
      {},
      {},
      false};
  Side side(kind);
  {
    std::string path;
    side.run([&side, &path] { path = side.transport().private_address(); });
    Listening listening(side, path);
    Dialled dialled(side, listening.endpoint());
    dialled.record().next("connected");
    EXPECT_EQ(asked, 0);
  }
  Listening listening(side, "tcp://127.0.0.1:0");
  Dialled dialled(side, listening.endpoint());
  EXPECT_EQ(dialled.record().next("connected").what, "connected");
  EXPECT_EQ(asked, 1);
  const std::vector<std::string> denied = {"denied", "dropped"};
  Nanos took = 0;
  EXPECT_EQ(events_of_dial(GetParam(), nullptr, listening.endpoint(), took), denied);
  EXPECT_EQ(events_of_dial(GetParam(), kOtherSecret, listening.endpoint(), took), denied);
  Guarded guarded(GetParam(), kSecret);
  Dialled own(side, guarded.endpoint());
  EXPECT_EQ(own.record().next("connected").what, "connected");
}

TEST_P(CurveTest, NobodyDialsAnotherMachineWithoutAKey) {
  Side side(kind_of(GetParam(), nullptr));
  side.run([&side] {
    try {
      side.transport().dial("tcp://192.0.2.1:1", {});
      ADD_FAILURE() << "dials";
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), Status::kDenied);
      EXPECT_NE(error.message().find("DISTAG_GROUP_KEY_FILE"), std::string::npos);
    }
  });
}

TEST_P(CurveTest, TheListenerSaysWhoWasDenied) {
  Guarded guarded(GetParam(), kSecret);
  Nanos took = 0;
  events_of_dial(GetParam(), kOtherSecret, guarded.endpoint(), took);
  const std::string why = text_of(guarded.record().next("denied").frames.at(0));
  // libzmq may have closed the connection before its address was looked at.
  const bool is_known = why.rfind("a connection from tcp://127.0.0.1:", 0) == 0;
  EXPECT_TRUE(is_known || (!engine_keeps(GetParam(), "the address of a stranger is logged") &&
                           why.rfind("a connection from an address that is not known was refused", 0) == 0))
      << why;
  EXPECT_NE(why.find("does not know the key of the group"), std::string::npos) << why;
}

// libzmq greets as version 3.1, distag's own engine as 3.0.
constexpr char kMinorOfLibzmq = 1, kMinorOfZmtp = 0;
std::string greeting_of_curve(char minor = kMinorOfLibzmq) {
  return std::string("\xff\0\0\0\0\0\0\0\1\x7f\3", 11) + minor + "CURVE" + std::string(15 + 1 + 31, '\0');
}

// A port behind which a listener is not there from the first (of ssh, of kubectl): hangs up on the first connections,
// at once or once it has greeted as an engine does and heard HELLO, and passes on the others, one after the other.
class Forwarder {
 public:
  Forwarder(const std::string& target, int hang_ups, std::optional<char> greets = std::nullopt) {
    thread_ = std::thread([this, target, hang_ups, greets] {
      int client = -1;
      for (int i = 0; (client = accept(listener_.fd(), nullptr, nullptr)) >= 0; ++i) {
        if (i >= hang_ups) {
          pass_on(client, target);
        } else if (greets) {
          greet(client, *greets);
        }
        close(client);
      }
    });
  }
  ~Forwarder() {
    shutdown(listener_.fd(), SHUT_RDWR);
    thread_.join();
  }
  const std::string& endpoint() const { return listener_.endpoint(); }

 private:
  static void greet(int client, char minor) {
    const std::string greeting = greeting_of_curve(minor);
    send(client, greeting.data(), greeting.size(), MSG_NOSIGNAL);
    constexpr size_t kGreetingAndHello = 64 + 2 + 200;
    char bytes[256];
    ssize_t got = 0;
    for (size_t size = 0; size < kGreetingAndHello && (got = read(client, bytes, sizeof bytes)) > 0;) {
      size += static_cast<size_t>(got);
    }
  }
  static void pass_on(int client, const std::string& target) {
    const int server = Middle::connect_to(target);
    pollfd ends[2] = {{client, POLLIN, 0}, {server, POLLIN, 0}};
    for (bool open = true; open && poll(ends, 2, 120'000) > 0;) {
      for (int i = 0; i < 2 && open; ++i) {
        if (ends[i].revents == 0) continue;
        char bytes[4096];
        const ssize_t got = read(ends[i].fd, bytes, sizeof bytes);
        open = got > 0 && send(ends[1 - i].fd, bytes, static_cast<size_t>(got), MSG_NOSIGNAL) == got;
      }
    }
    close(server);
  }

  const LoopbackListener listener_;
  std::thread thread_;
};

// The bytes of a client that connects and sends one message, as somebody on the way sees them.
std::string bytes_of_client(Engine engine, Guarded& guarded) {
  Middle middle(guarded.endpoint(), Middle::kNone);
  {
    Side side(kind_of(engine, kSecret));
    Dialled dialled(side, middle.endpoint());
    EXPECT_EQ(dialled.record().next("connected").what, "connected");
    EXPECT_TRUE(dialled.send({text_frame("a message for the group alone")}));
    EXPECT_EQ(text_of(guarded.record().next("message").frames.at(0)), "a message for the group alone");
  }
  return middle.client_bytes();
}

TEST_P(CurveTest, NothingIsReadableOnTheWay) {
  Guarded guarded(GetParam(), kSecret);
  EXPECT_EQ(bytes_of_client(GetParam(), guarded).find("for the group"), std::string::npos);
}

// A connection that is said again, byte for byte: the listener answers with another short-term key and cookie.
TEST_P(CurveTest, AReplayedConnectionIsRefused) {
  Guarded guarded(GetParam(), kSecret);
  const std::string bytes = bytes_of_client(GetParam(), guarded);
  const int fd = Middle::connect_to(guarded.endpoint());
  ASSERT_EQ(send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  char answer[4096];
  while (read(fd, answer, sizeof answer) > 0) {
  }
  close(fd);
  const std::vector<std::string> events = guarded.record().all();
  EXPECT_EQ(std::count(events.begin(), events.end(), "message"), 1);
}

// Dials, says the text once connected, and gives the event that ended it: "answered", "dropped" or "denied".
std::string say_through(Engine engine, const std::string& endpoint, const std::string& text) {
  Side side(kind_of(engine, kSecret));
  Record record;
  std::unique_ptr<Connection> connection;
  side.run([&] {
    ConnectionEvents events;
    events.on_connected = [&connection, &text] { connection->send({text_frame(text)}); };
    events.on_message = [&record](Frames) { record.add({"end", {text_frame("answered")}, {}}); };
    events.on_denied = [&record] { record.add({"end", {text_frame("denied")}, {}}); };
    events.on_dropped = [&record](bool) { record.add({"end", {text_frame("dropped")}, {}}); };
    connection = side.transport().dial(endpoint, std::move(events));
  });
  const Record::Event end = record.next("end");
  side.run([&connection] { connection.reset(); });
  return end.frames.empty() ? "nothing" : text_of(end.frames[0]);
}

// A hang-up is a drop, however often: who is dialled again is there in the end.
TEST_P(CurveTest, AForwarderThatHangsUpIsNoDenial) {
  Guarded guarded(GetParam(), kSecret, true);
  // distag's own engine says why it refuses, and hangs up where it is short of descriptors.
  for (const auto& [hang_ups, greets] : std::vector<std::pair<int, std::optional<char>>>{{1, {}},
                                                                                         {2, {}},
                                                                                         {3, {}},
                                                                                         {4, {}},
                                                                                         {1, kMinorOfLibzmq},
                                                                                         {2, kMinorOfLibzmq},
                                                                                         {2, kMinorOfZmtp},
                                                                                         {6, kMinorOfZmtp}}) {
    Forwarder forwarder(guarded.endpoint(), hang_ups, greets);
    std::vector<std::string> ends;
    while (ends.size() < 10 && (ends.empty() || ends.back() == "dropped")) {
      ends.push_back(say_through(GetParam(), forwarder.endpoint(), "there"));
    }
    EXPECT_EQ(ends.back(), "answered") << hang_ups
                                       << (greets ? " after a greeting as 3." + std::to_string(*greets) : " at once");
  }
}

TEST_P(CurveTest, AnotherKeyBehindAForwarderIsADenial) {
  for (const Engine listens : {Engine::kZmtp, Engine::kZmq}) {
    Guarded guarded(listens, kSecret);
    Forwarder forwarder(guarded.endpoint(), 0);
    Nanos took = 0;
    EXPECT_EQ(events_of_dial(GetParam(), kOtherSecret, forwarder.endpoint(), took),
              (std::vector<std::string>{"denied", "dropped"}))
        << name_of(listens);
  }
}

// A bit that the client says is changed on the way, each time another one: the message comes as it was, where the bit
// means nothing (filler), or not at all.
TEST_P(CurveTest, AChangedBitNeverChangesAMessage) {
  const std::string text = "a message for the group alone";
  Guarded guarded(GetParam(), kSecret, true);
  const size_t size = bytes_of_client(GetParam(), guarded).size();
  size_t dropped = 0;
  for (size_t at = 0; at < size; at += at < 64 ? 8 : 23) {
    Middle middle(guarded.endpoint(), at);
    const std::string end = say_through(GetParam(), middle.endpoint(), text);
    EXPECT_NE(end, "nothing") << "byte " << at;
    dropped += end == "dropped" ? 1 : 0;
  }
  EXPECT_GT(dropped, 15u);
  for (const std::string& message : guarded.messages()) EXPECT_EQ(message, text);
}

// A box that is sent twice on its way is opened once, and ends the connection.
TEST_P(CurveTest, ARepeatedMessageIsHeardOnce) {
  Guarded guarded(GetParam(), kSecret);
  {
    Middle middle(guarded.endpoint(), Middle::kNone, true);
    EXPECT_EQ(say_through(GetParam(), middle.endpoint(), "once"), "dropped");
  }
  EXPECT_EQ(guarded.messages(), std::vector<std::string>{"once"});
}

// The others at the address go on.
TEST_P(CurveTest, ABoxThatDoesNotOpenEndsItsConnectionAlone) {
  Guarded guarded(GetParam(), kSecret, true);
  const size_t size = bytes_of_client(GetParam(), guarded).size();
  Side side(kind_of(GetParam(), kSecret));
  Dialled other(side, guarded.endpoint());
  ASSERT_EQ(other.record().next("connected").what, "connected");
  ASSERT_TRUE(other.send({text_frame("before")}));
  EXPECT_EQ(text_of(other.record().next("message").frames.at(0)), "heard");
  Middle middle(guarded.endpoint(), size - 1);
  EXPECT_EQ(say_through(GetParam(), middle.endpoint(), "a message for the group alone"), "dropped");
  ASSERT_TRUE(other.send({text_frame("after")}));
  EXPECT_EQ(text_of(other.record().next("message").frames.at(0)), "heard");
  EXPECT_EQ(other.record().all(), (std::vector<std::string>{"connected", "message", "message"}));
}

// A client that knows the public key of the group and has another key of its own.
TEST_P(CurveTest, AStrangerWhoKnowsThePublicKeyIsDenied) {
  Guarded guarded(GetParam(), kSecret);
  const CurveKeyPair own = group_key_of(kOtherSecret);
  void* const context = zmq_ctx_new();
  void* const socket = zmq_socket(context, ZMQ_DEALER);
  const int no_wait = 0;
  zmq_setsockopt(socket, ZMQ_LINGER, &no_wait, sizeof no_wait);
  zmq_setsockopt(socket, ZMQ_CURVE_SERVERKEY, group_key_of(kSecret).public_key.data(), sizeof(CurveKey));
  zmq_setsockopt(socket, ZMQ_CURVE_PUBLICKEY, own.public_key.data(), sizeof(CurveKey));
  zmq_setsockopt(socket, ZMQ_CURVE_SECRETKEY, own.secret_key.data(), sizeof(CurveKey));
  ASSERT_EQ(zmq_connect(socket, guarded.endpoint().c_str()), 0);
  ASSERT_EQ(zmq_send(socket, "x", 1, ZMQ_DONTWAIT), 1);
  const std::string why = text_of(guarded.record().next("denied").frames.at(0));
  EXPECT_NE(why.find("its key is not that of the group"), std::string::npos) << why;
  zmq_close(socket);
  zmq_ctx_term(context);
  EXPECT_TRUE(guarded.messages().empty());
}

// Bytes of somebody who has no key, after a sound greeting: never a message, never beside our memory (the sanitizers
// tell).
TEST(Curve, BytesOfStrangersAreNeverAMessage) {
  const SocketKeys key(group_key_of(kSecret));
  std::mt19937 random(11);
  for (int round = 0; round < 2000; ++round) {
    std::string stream = greeting_of_curve();
    const std::string names[] = {"\5HELLO", "\10INITIATE", "\7MESSAGE", "\5READY", ""};
    for (int i = 0; i < 3; ++i) {
      std::string body = names[random() % 5];
      const size_t size = random() % 3 == 0 ? 200 : body.size() + random() % 400;
      while (body.size() < size) body += static_cast<char>(random());
      const bool is_long = body.size() > 255;
      stream += static_cast<char>((random() % 4 == 0 ? 0 : 4) | (is_long ? 2 : 0));
      for (size_t left = is_long ? 8 : 1; left > 0; --left) {
        stream += static_cast<char>(static_cast<uint64_t>(body.size()) >> (8 * (left - 1)));
      }
      stream += body;
    }
    ZmtpReader reader(ZmtpReader::Role::kAccepts, &key);
    bool is_refused = false;
    try {
      for (size_t at = 0; at < stream.size();) {
        const std::span<std::byte> room = reader.room();
        const size_t size = std::min({room.size(), size_t{97}, stream.size() - at});
        std::memcpy(room.data(), stream.data() + at, size);
        reader.add(size);
        at += size;
        EXPECT_FALSE(reader.next().has_value());
      }
    } catch (const Error& error) {
      is_refused = true;
      EXPECT_TRUE(error.status() == Status::kProtocol || error.status() == Status::kDenied) << error.message();
    }
    EXPECT_TRUE(is_refused || !reader.is_ready());
  }
}

TEST(GroupKey, IsTheSameForTheSameSecretOnly) {
  EXPECT_EQ(group_key_of(kSecret).public_key, group_key_of(kSecret).public_key);
  EXPECT_NE(group_key_of(kSecret).public_key, group_key_of(kOtherSecret).public_key);
  EXPECT_THROW(group_key_of(std::string(31, 'x')), Error);
}

INSTANTIATE_TEST_SUITE_P(Engines, CurveTest, kBothEngines, kEngineName);

}  // namespace
}  // namespace distag::testing
