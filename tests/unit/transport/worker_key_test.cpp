// A key for each worker: at sockets, in lists and as text.
#include "transport/socket/worker_key.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "contract/transport_contract.h"
#include "support/middle.h"
#include "support/sockets.h"
#include "transport/key_ring.h"

namespace distag::testing {
namespace {

// A worker with a key of its own, and its transport.
class Keyed {
 public:
  Keyed(Engine engine, const CurveKeyPair& own, std::shared_ptr<KeyRing> ring)
      : ring_(std::move(ring)), side_(kind(engine, own, ring_)) {}
  ~Keyed() {
    side_.run([this] {
      acceptor_.reset();
      connection_.reset();
    });
  }

  // Each message that comes is kept as the name of its sender and its text.
  std::string listen(const std::string& address) {
    std::string endpoint;
    side_.run([&] {
      AcceptorEvents events;
      events.on_message = [this](const ConnectionToken& from, Frames frames) {
        record_.add({"message", {text_frame(acceptor_->name_of(from) + ": " + text_of(frames.at(0)))}, from});
      };
      events.on_denied = [this](const std::string& why) { record_.add({"denied", {text_frame(why)}, {}}); };
      acceptor_ =
          side_.transport().listen(address.empty() ? side_.transport().private_address() : address, std::move(events));
      endpoint = acceptor_->endpoint();
    });
    return endpoint;
  }
  // The first event of the dial that says how it went.
  std::string dial(const std::string& name, const std::string& endpoint) {
    side_.run([&] {
      ConnectionEvents events = recording(dialled_);
      events.on_connected = [this] { dialled_.add({"outcome", {text_frame("connected")}, {}}); };
      events.on_denied = [this] { dialled_.add({"outcome", {text_frame("denied")}, {}}); };
      connection_ = side_.transport().dial_worker(name, endpoint, std::move(events));
    });
    const Record::Event outcome = dialled_.next("outcome");
    return outcome.frames.empty() ? "nothing" : text_of(outcome.frames.at(0));
  }
  void say(const std::string& text) {
    side_.run([&] { EXPECT_TRUE(connection_->send({text_frame(text)})); });
  }
  std::string next(const std::string& what) {
    const Record::Event event = record_.next(what);
    return event.frames.empty() ? "nothing" : text_of(event.frames.at(0));
  }
  void await_end() { EXPECT_EQ(dialled_.next("dropped").what, "dropped"); }

 private:
  static TransportKind kind(Engine engine, const CurveKeyPair& own, const std::shared_ptr<KeyRing>& ring) {
    Security security;
    security.worker_keys = WorkerKeys{own, ring, "server"};
    return {name_of(engine),
            [engine, security](FdLoop& loop) { return make_sockets(engine, loop, security); },
            {},
            {},
            {},
            false};
  }

  const std::shared_ptr<KeyRing> ring_;
  Record record_;
  Record dialled_;
  Side side_;
  std::unique_ptr<Acceptor> acceptor_;
  std::unique_ptr<Connection> connection_;
};

class WorkerKeyTest : public ::testing::TestWithParam<Engine> {
 protected:
  KeyRing::Keys keys() const { return {{"server", server_.public_key}, {"a", a_.public_key}, {"b", b_.public_key}}; }
  std::shared_ptr<KeyRing> ring() const { return std::make_shared<KeyRing>(keys()); }

  const CurveKeyPair server_ = new_key_pair();
  const CurveKeyPair a_ = new_key_pair();
  const CurveKeyPair b_ = new_key_pair();
  const CurveKeyPair stranger_ = new_key_pair();
};

TEST_P(WorkerKeyTest, IsAskedForAtEachDoorAndSaysTheName) {
  for (const char* address : {"tcp://127.0.0.1:0", ""}) {
    Keyed server(GetParam(), server_, ring());
    const std::string endpoint = server.listen(address);
    Keyed a(GetParam(), a_, ring());
    ASSERT_EQ(a.dial("server", endpoint), "connected") << endpoint;
    a.say("hello");
    EXPECT_EQ(server.next("message"), "a: hello");
    Keyed stranger(GetParam(), stranger_, ring());
    EXPECT_EQ(stranger.dial("server", endpoint), "denied") << endpoint;
    EXPECT_NE(server.next("denied").find("its key is not that of a worker that may connect"), std::string::npos);
  }
}

// At once, at each door; an engine may end other connections to it, which can be dialled again.
TEST_P(WorkerKeyTest, ABoxThatDoesNotOpenEndsItsConnection) {
  for (const char* address : {"tcp://127.0.0.1:0", ""}) {
    Keyed server(GetParam(), server_, ring());
    const std::string endpoint = server.listen(address);
    const auto say_through = [this, &server](const Middle& middle, const std::string& end) {
      Keyed a(GetParam(), a_, ring());
      ASSERT_EQ(a.dial("server", middle.endpoint()), "connected");
      a.say("hello");
      if (end == "dropped") return a.await_end();
      EXPECT_EQ(server.next("message"), "a: hello");
    };
    Middle true_one(endpoint, Middle::kNone);
    say_through(true_one, "heard");
    const size_t size = true_one.client_bytes().size();
    for (int round = 0; round < 5; ++round) {
      Middle middle(endpoint, size - 1);
      say_through(middle, "dropped");
    }
    Keyed b(GetParam(), b_, ring());
    ASSERT_EQ(b.dial("server", endpoint), "connected");
    b.say("still heard");
    EXPECT_EQ(server.next("message"), "b: still heard");
  }
}

TEST_P(WorkerKeyTest, OnlyTheWorkerOfThatNameAnswers) {
  Keyed server(GetParam(), server_, ring());
  const std::string endpoint = server.listen("tcp://127.0.0.1:0");
  Keyed a(GetParam(), a_, ring());
  EXPECT_EQ(a.dial("b", endpoint), "denied");
  EXPECT_NE(server.next("denied").find("it does not know the key of this worker"), std::string::npos);
  try {
    a.dial("nobody", endpoint);
    ADD_FAILURE() << "dials";
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Status::kDenied);
    EXPECT_NE(error.message().find("\"nobody\""), std::string::npos) << error.message();
  }
}

TEST_P(WorkerKeyTest, OneThatIsTakenAwayIsHeardNoMore) {
  const auto list = ring();
  Keyed server(GetParam(), server_, list);
  const std::string endpoint = server.listen("tcp://127.0.0.1:0");
  Keyed a(GetParam(), a_, ring());
  Keyed b(GetParam(), b_, ring());
  ASSERT_EQ(a.dial("server", endpoint), "connected");
  ASSERT_EQ(b.dial("server", endpoint), "connected");
  a.say("before");
  EXPECT_EQ(server.next("message"), "a: before");
  KeyRing::Keys fewer = keys();
  fewer.erase("a");
  EXPECT_EQ(list->replace(fewer), std::vector<std::string>{"a"});
  a.say("after");
  EXPECT_NE(server.next("denied").find("its key may connect no more"), std::string::npos);
  a.await_end();
  b.say("still here");
  EXPECT_EQ(server.next("message"), "b: still here");
  Keyed again(GetParam(), a_, ring());
  EXPECT_EQ(again.dial("server", endpoint), "denied");
  EXPECT_EQ(list->replace(keys()), std::vector<std::string>());
  Keyed once_more(GetParam(), a_, ring());
  EXPECT_EQ(once_more.dial("server", endpoint), "connected");
}

TEST_P(WorkerKeyTest, OneThatGoesToAnotherNameIsHeardNoMore) {
  const auto list = ring();
  Keyed server(GetParam(), server_, list);
  const std::string endpoint = server.listen("tcp://127.0.0.1:0");
  Keyed a(GetParam(), a_, ring());
  ASSERT_EQ(a.dial("server", endpoint), "connected");
  EXPECT_EQ(list->replace({{"b", a_.public_key}}), (std::vector<std::string>{"a", "b", "server"}));
  a.say("who am I");
  EXPECT_NE(server.next("denied").find("its key may connect no more"), std::string::npos);
}

TEST_P(WorkerKeyTest, HasOneNameAlone) {
  EXPECT_THROW(KeyRing({{"a", a_.public_key}, {"b", a_.public_key}}), Error);
  const auto list = ring();
  EXPECT_THROW(list->replace({{"a", a_.public_key}, {"b", a_.public_key}}), Error);
  EXPECT_EQ(list->name_of(b_.public_key), "b");
}

Status status_of(const std::string& list, const std::string& word) {
  try {
    parse_key_list(list);
  } catch (const Error& error) {
    EXPECT_NE(error.message().find(word), std::string::npos) << error.message();
    return error.status();
  }
  return Status::kOk;
}

TEST_P(WorkerKeyTest, IsReadFromText) {
  EXPECT_EQ(pair_of(a_.secret_key).public_key, a_.public_key);
  const std::string a = print_key(a_.public_key), b = print_key(b_.public_key);
  EXPECT_EQ(a.size(), 40u);
  EXPECT_EQ(parse_key(a, "a"), a_.public_key);
  const KeyRing::Keys keys = {{"a", a_.public_key}, {"b", b_.public_key}};
  EXPECT_EQ(parse_key_list("# workers\n\na " + a + "\r\n\t b \t" + b), keys);
  EXPECT_EQ(status_of("a " + a + "\na " + b, "line 2"), Status::kInvalidArgument);
  EXPECT_EQ(status_of("a " + a + " b", "line 1"), Status::kInvalidArgument);
  EXPECT_EQ(status_of("\na", "line 2"), Status::kInvalidArgument);
  for (const std::string& bad : {std::string(), a.substr(1), a + "0", std::string(40, '~'), std::string(40, '#')}) {
    EXPECT_THROW(parse_key(bad, "it"), Error) << bad;
  }
}

INSTANTIATE_TEST_SUITE_P(Engines, WorkerKeyTest, kBothEngines, kEngineName);

}  // namespace
}  // namespace distag::testing
