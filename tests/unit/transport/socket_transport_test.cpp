
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>
#include <thread>

#include "contract/transport_contract.h"
#include "support/sockets.h"
#include "transport/socket/address.h"
#include "transport/socket/descriptors.h"

namespace distag::testing {
namespace {

TransportKind kind_of(Engine engine) {
  return {name_of(engine), [engine](FdLoop& loop) { return make_sockets(engine, loop); }, {}, {}, {}, false};
}

// The behaviour of every transport is tested by the conformance suite; here is the behaviour that only this one has.
class SocketTransportTest : public ::testing::TestWithParam<Engine> {
 protected:
  static TransportKind kind() { return kind_of(GetParam()); }
  static std::string private_address(Side& side) {
    std::string address;
    side.run([&side, &address] { address = side.transport().private_address(); });
    return address;
  }
  static Status status_of_listen(Side& side, const std::string& address) {
    try {
      Listening listening(side, address);
    } catch (const Error& error) {
      return error.status();
    }
    return Status::kOk;
  }
};

// A plain listener on a loopback port that the system chose.
class PlainListener {
 public:
  PlainListener() : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    if (bind(fd_, reinterpret_cast<const sockaddr*>(&address), size) != 0 || listen(fd_, 8) != 0 ||
        getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
      std::abort();
    }
    endpoint_ = fmt::format("tcp://127.0.0.1:{}", ntohs(address.sin_port));
  }
  ~PlainListener() { close(fd_); }
  int accept_one() const { return accept(fd_, nullptr, nullptr); }
  const std::string& endpoint() const { return endpoint_; }

 private:
  int fd_;
  std::string endpoint_;
};

int plain_connect(const std::string& endpoint) {
  const SocketAddress address = parse_address(endpoint, false);
  const int fd = socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address.address), address.length) != 0) std::abort();
  return fd;
}

TEST_P(SocketTransportTest, WithoutAKeyListensOnlyWhereNoOtherMachineReaches) {
  Side side(kind());
  for (const char* address : {"tcp://0.0.0.0:0", "tcp://*:0", "tcp://[::]:0", "tcp://192.0.2.1:0"}) {
    try {
      Listening listening(side, address);
      ADD_FAILURE() << "listens at " << address;
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), Status::kDenied);
      EXPECT_NE(error.message().find("DISTAG_GROUP_KEY_FILE"), std::string::npos);
    }
  }
}

TEST_P(SocketTransportTest, TcpEndpointHasThePortThatWasChosen) {
  Side side(kind());
  Listening listening(side, "tcp://localhost:0");
  EXPECT_EQ(listening.endpoint().rfind("tcp://127.0.0.1:", 0), 0u);
  EXPECT_NE(listening.endpoint(), "tcp://127.0.0.1:0");
  Dialled dialled(side, listening.endpoint());
  EXPECT_EQ(dialled.record().next("connected").what, "connected");
}

TEST_P(SocketTransportTest, ListensAtTheFirstPortOfARangeThatIsFree) {
  Side side(kind());
  Listening first(side, "tcp://127.0.0.1:0");
  const std::string taken = first.endpoint();
  const int port = std::stoi(taken.substr(taken.rfind(':') + 1));
  const std::string range = fmt::format("{}-{}", taken, std::min(port + 20, 65535));
  Listening second(side, range);
  const int chosen = std::stoi(second.endpoint().substr(second.endpoint().rfind(':') + 1));
  EXPECT_GT(chosen, port);
  EXPECT_LE(chosen, port + 20);
  Dialled dialled(side, second.endpoint());
  EXPECT_EQ(dialled.record().next("connected").what, "connected");
  try {
    Listening third(side, fmt::format("{}-{}", taken, port));
    ADD_FAILURE() << "listens";
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Status::kInvalidState);
    EXPECT_NE(error.message().find(fmt::format(":{}-{}", port, port)), std::string::npos) << error.message();
  }
}

TEST_P(SocketTransportTest, PrivateAddressesAreDifferentAndGoWithTheTransport) {
  std::string directory;
  {
    Side side(kind());
    const std::string first = private_address(side);
    EXPECT_NE(first, private_address(side));
    directory = first.substr(std::strlen("ipc://"), first.rfind('/') - std::strlen("ipc://"));
    Listening listening(side, first);
    EXPECT_EQ(access(directory.c_str(), F_OK), 0);
  }
  EXPECT_NE(access(directory.c_str(), F_OK), 0);
}

TEST_P(SocketTransportTest, PathOfADeadListenerIsTakenOver) {
  Side side(kind());
  const std::string address = private_address(side);
  const SocketAddress parsed = parse_address(address, true);
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ASSERT_EQ(bind(fd, reinterpret_cast<const sockaddr*>(&parsed.address), parsed.length), 0);
  close(fd);
  Listening listening(side, address);
  Dialled dialled(side, address);
  EXPECT_EQ(dialled.record().next("connected").what, "connected");
}

TEST_P(SocketTransportTest, FileThatIsNoSocketIsLeftAlone) {
  Side side(kind());
  const std::string address = private_address(side);
  const std::string path = address.substr(std::strlen("ipc://"));
  std::ofstream(path) << "precious";
  EXPECT_EQ(status_of_listen(side, address), Status::kInvalidState);
  std::string content;
  std::ifstream(path) >> content;
  EXPECT_EQ(content, "precious");
  unlink(path.c_str());
}

TEST_P(SocketTransportTest, FrameAboveTheLimitCutsTheConnectionAndNothingElse) {
  Side server(kind());
  Side client(kind());
  Listening listening(server, private_address(server));
  Dialled good(client, listening.endpoint());
  Dialled bad(client, listening.endpoint());
  good.record().next("connected");
  bad.record().next("connected");
  ASSERT_TRUE(bad.send({text_frame("head"), make_frame(kMaxMessageBytes + 1, 1)}));
  EXPECT_EQ(bad.record().next("dropped").what, "dropped");
  ASSERT_TRUE(good.send({make_frame(kMaxMessageBytes, 2)}));
  EXPECT_EQ(listening.record().next("message").frames.at(0).size(), kMaxMessageBytes);
}

TEST_P(SocketTransportTest, StrangersBytesDisturbNobody) {
  Side side(kind());
  Listening listening(side, "tcp://127.0.0.1:0");
  for (const std::string& bytes : {std::string("GET / HTTP/1.1\r\n\r\n"), std::string(3000, '\xff'),
                                   std::string("\xff\0\0\0\0\0\0\0\x01\x7f\x03", 11), std::string(1, '\0')}) {
    const int fd = plain_connect(listening.endpoint());
    EXPECT_GT(send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL), 0);
    close(fd);
  }
  Dialled dialled(side, listening.endpoint());
  dialled.record().next("connected");
  ASSERT_TRUE(dialled.send({text_frame("hello")}));
  EXPECT_EQ(text_of(listening.record().next("message").frames.at(0)), "hello");
}

TEST_P(SocketTransportTest, ListenerThatHangsUpIsADropAndNoRefusal) {
  Side side(kind());
  const PlainListener plain;
  Dialled dialled(side, plain.endpoint());
  close(plain.accept_one());
  EXPECT_EQ(dialled.record().next("dropped").what, "dropped");
  EXPECT_EQ(dialled.record().all().size(), 1u);
}

TEST_P(SocketTransportTest, ListenerThatDoesNotAgreeIsADrop) {
  Side side(kind());
  const PlainListener plain;
  Dialled dialled(side, plain.endpoint());
  const int fd = plain.accept_one();
  // A greeting of ZMTP 3.0 with a mechanism that no peer has.
  const std::string bytes = std::string("\xff\0\0\0\0\0\0\0\0\x7f\x03\0BOGUS", 17) + std::string(15 + 1 + 31, '\0');
  EXPECT_GT(send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL), 0);
  EXPECT_EQ(dialled.record().next("dropped").what, "dropped");
  close(fd);
}

// Long before its end.
TEST_P(SocketTransportTest, BytesOfAHandshakeThatGoesOnAreCounted) {
  Side side(kind());
  const PlainListener plain;
  Record record;
  std::unique_ptr<Connection> connection;
  side.run([&] { connection = side.transport().dial(plain.endpoint(), recording(record)); });
  const auto heard = [&] {
    uint64_t bytes = 0;
    side.run([&] { bytes = connection->heard_bytes(); });
    return bytes;
  };
  const int fd = plain.accept_one();
  EXPECT_EQ(heard(), 0u);
  const std::string part = std::string("\xff\0\0\0\0\0\0\0\0\x7f", 10);
  EXPECT_EQ(send(fd, part.data(), part.size(), MSG_NOSIGNAL), static_cast<ssize_t>(part.size()));
  const Nanos begin = side.loop().now();
  while (heard() < part.size() && side.loop().now() - begin < kPatience) std::this_thread::yield();
  EXPECT_EQ(heard(), part.size());
  EXPECT_TRUE(record.all().empty());
  side.run([&] { connection.reset(); });
  close(fd);
}

// More than a socket takes at once, and then the next one.
TEST_P(SocketTransportTest, LargeAnswersComeWhole) {
  Side side(kind());
  Listening listening(side, private_address(side));
  Dialled dialled(side, listening.endpoint());
  dialled.record().next("connected");
  for (unsigned i = 0; i < 5; ++i) {
    ASSERT_TRUE(dialled.send({text_frame("ask")}));
    const ConnectionToken from = listening.record().next("message").from;
    ASSERT_TRUE(listening.reply(from, {text_frame("head"), make_frame(kMaxMessageBytes, i)}));
    const Frames answer = dialled.record().next("message").frames;
    ASSERT_EQ(answer.size(), 2u);
    EXPECT_TRUE(text_of(answer[1]) == text_of(make_frame(kMaxMessageBytes, i)));
  }
}

TEST_P(SocketTransportTest, ReceivedFramesAreAligned) {
  Side side(kind());
  Listening listening(side, private_address(side));
  Dialled dialled(side, listening.endpoint());
  dialled.record().next("connected");
  ASSERT_TRUE(dialled.send({make_frame(33, 1), make_frame(7, 2), make_frame(8000, 3), make_frame(100'000, 4)}));
  const Frames got = listening.record().next("message").frames;
  ASSERT_EQ(got.size(), 4u);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(reinterpret_cast<uintptr_t>(got[i].data()) % 64, 0u) << i;
  EXPECT_EQ(reinterpret_cast<uintptr_t>(got[3].data()) % 8, 0u);
}

// An acceptor that also records the parts it hears about: of zmtp. libzmq looks for them from time to time, see
// ZmqAcceptor.PartsOfAMessageAreToldOf.
class PartsTest : public ::testing::Test {
 protected:
  PartsTest() : side_(kind_of(Engine::kZmtp)) {
    side_.run([this] {
      AcceptorEvents events = recording_acceptor(record_);
      events.on_part = [this](const ConnectionToken& from) { record_.add({"part", {}, from}); };
      acceptor_ = side_.transport().listen(side_.transport().private_address(), std::move(events));
    });
    dialled_.emplace(side_, acceptor_->endpoint());
    dialled_->record().next("connected");
  }
  ~PartsTest() override {
    dialled_.reset();
    side_.run([this] { acceptor_.reset(); });
  }

  Side side_;
  Record record_;
  std::unique_ptr<Acceptor> acceptor_;
  std::optional<Dialled> dialled_;
};

// Over a slow link the receiver hears of the sender long before a message is whole.
TEST_F(PartsTest, AreToldOfBeforeTheMessage) {
  ASSERT_TRUE(dialled_->send({make_frame(1, 1)}));
  const ConnectionToken first = record_.next("message").from;
  ASSERT_TRUE(dialled_->send({text_frame("head"), make_frame(kMaxMessageBytes, 1)}));
  EXPECT_EQ(record_.next("part").from, first);
  EXPECT_EQ(record_.next("message").frames.size(), 2u);
}

// Else each acknowledgement would call for another one.
TEST_F(PartsTest, AreNoWholeMessages) {
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(dialled_->send({make_frame(200, 1), make_frame(30, 2)}));
    EXPECT_EQ(record_.next("message").frames.size(), 2u);
  }
  EXPECT_EQ(record_.all(), std::vector<std::string>(20, "message"));
}

// The host's deleters hang on it.
TEST_P(SocketTransportTest, OwnersOfLentFramesGoOnTheLoop) {
  std::vector<std::byte> bytes(200'000);
  auto released = Future<bool>::make();
  Side server(kind());
  Side client(kind());
  Listening listening(server, private_address(server));
  Dialled dialled(client, listening.endpoint());
  dialled.record().next("connected");
  Frames frames = {
      Frame(bytes.data(), bytes.size(), std::shared_ptr<const void>(&bytes, [&client, released](const void*) {
              released->complete(client.loop().is_current());
            }))};
  client.run([&dialled, &frames, released] {
    EXPECT_TRUE(dialled.connection().send(frames));
    frames.clear();
    EXPECT_FALSE(released->is_done()) << "it was copied";
  });
  ASSERT_TRUE(wait(*released, kPatience));
  EXPECT_TRUE(released->value());
  listening.record().next("message");
}

// More than a socket of the system takes, and a reader who comes late: what was sent before the end still comes.
TEST_P(SocketTransportTest, LastWordsGoBeforeTheEnd) {
  Side server(kind());
  Side client(kind());
  Listening listening(server, private_address(server));
  for (int round = 0; round < 20; ++round) {
    Dialled dialled(client, listening.endpoint());
    dialled.record().next("connected");
    client.run([&dialled] {
      for (int i = 0; i < 3; ++i) EXPECT_TRUE(dialled.connection().send({text_frame("word")}));
    });
    dialled.close();
    for (int i = 0; i < 3; ++i) ASSERT_EQ(listening.record().next("message").what, "message") << round;
  }
}

// The limit is lowered for this process alone, and given back.
class FewDescriptors {
 public:
  explicit FewDescriptors(unsigned left = 4) {
    getrlimit(RLIMIT_NOFILE, &before_);
    const int next = dup(0);
    close(next);
    rlimit few = before_;
    few.rlim_cur = static_cast<rlim_t>(next) + left;
    setrlimit(RLIMIT_NOFILE, &few);
  }
  ~FewDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

TEST_P(SocketTransportTest, WithoutDescriptorsItRefusesAndLives) {
  Side side(kind());
  Listening listening(side, private_address(side));
  const std::string other = private_address(side);
  {
    const FewDescriptors few;
    EXPECT_EQ(status_of_listen(side, other), Status::kOutOfMemory);
    try {
      Dialled dialled(side, listening.endpoint());
      ADD_FAILURE() << "dials without descriptors";
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), Status::kOutOfMemory);
      EXPECT_NE(error.message().find("ulimit"), std::string::npos);
    }
  }
  Dialled dialled(side, listening.endpoint());
  EXPECT_EQ(dialled.record().next("connected").what, "connected");
}

int connect_to(const std::string& endpoint) {
  const SocketAddress address = parse_address(endpoint, false);
  const int fd = socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC, 0);
  EXPECT_EQ(connect(fd, reinterpret_cast<const sockaddr*>(&address.address), address.length), 0);
  return fd;
}

// The bytes that come until the other side hangs up.
std::string read_all(int fd) {
  std::string all;
  char piece[256];
  for (ssize_t got = 0; (got = read(fd, piece, sizeof piece)) > 0;) all.append(piece, static_cast<size_t>(got));
  return all;
}

// Bounds that SECURITY.md promises of the engine zmtp alone: libzmq accepts by itself.
class DescriptorsRunOutTest : public SocketTransportTest {};
class SilentConnectionsTest : public SocketTransportTest {};

// The process has plenty when they connect, and nothing but its reserve from then on.
TEST_P(DescriptorsRunOutTest, WithoutDescriptorsItAcceptsNobodyAndThoseWhoAreSilentGiveWay) {
  for (const bool is_ipc : {true, false}) {
    Side side(kind());
    Listening listening(side, is_ipc ? private_address(side) : "tcp://127.0.0.1:0");
    Dialled friendly(side, listening.endpoint());
    ASSERT_EQ(friendly.record().next("connected").what, "connected");
    const int silent = connect_to(listening.endpoint());
    char first = 0;
    ASSERT_EQ(read(silent, &first, 1), 1) << "it was accepted and greeted";
    {
      const FewDescriptors few;
      pollfd waiting{};
      {
        const int fd = dup(0);  // the client's end has to come from somewhere
        close(fd);
        waiting = {connect_to(listening.endpoint()), POLLIN, 0};
      }
      read_all(silent);  // it gives way, which is not enough for another one
      EXPECT_EQ(poll(&waiting, 1, 100), 0) << "accepted from the reserve";
      EXPECT_NE(text_of(listening.record().next("lack").frames.at(0)).find("ulimit -n"), std::string::npos);
      ASSERT_TRUE(friendly.send({text_frame("hello")}));
      EXPECT_EQ(text_of(listening.record().next("message").frames.at(0)), "hello");
      close(waiting.fd);
    }
    close(silent);
    Dialled late(side, listening.endpoint());
    EXPECT_EQ(late.record().next("connected").what, "connected");
  }
}

// Strangers may take all descriptors but kAcceptReserve: a member comes back with those.
TEST_P(DescriptorsRunOutTest, ARedialGetsByWithWhatStrangersLeave) {
  Side side(kind());
  Listening listening(side, private_address(side));
  const FewDescriptors few(kAcceptReserve);
  const auto dial = [&](bool is_redial) {
    side.run([&] {
      ConnectionEvents events;
      events.is_redial = is_redial;
      side.transport().dial(listening.endpoint(), std::move(events));
    });
  };
  EXPECT_THROW(dial(false), Error) << "a first dial leaves room for the peer's own";
  EXPECT_NO_THROW(dial(true));
}

// Room for two or three at a time, and 200 before the one that means it.
TEST_P(DescriptorsRunOutTest, ThoseWhoHungUpHoldUpNobody) {
  for (const bool is_ipc : {true, false}) {
    Side side(kind());
    Listening listening(side, is_ipc ? private_address(side) : "tcp://127.0.0.1:0");
    pollfd waiting{-1, POLLIN, 0};
    std::optional<FewDescriptors> few;
    side.run([&] {
      std::vector<int> gone;
      for (int i = 0; i < 200; ++i) gone.push_back(connect_to(listening.endpoint()));
      for (const int fd : gone) close(fd);
      waiting.fd = connect_to(listening.endpoint());
      few.emplace(kAcceptReserve + 2);
    });
    const Nanos begin = SteadyClock().now();
    EXPECT_EQ(poll(&waiting, 1, static_cast<int>(kPatience / kMillisecond)), 1) << "no greeting";
    std::printf("figure: unit_transport.greeting_behind_200_%s_ms %.1f ms\n", is_ipc ? "ipc" : "tcp",
                1e-6 * static_cast<double>(SteadyClock().now() - begin));
    few.reset();
    close(waiting.fd);
  }
}

// Clients that have said something stay.
TEST_P(SilentConnectionsTest, OfManyWhoSayNothingTheOldestGiveWay) {
  constexpr size_t kMost = 1024, kMore = 10;
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit all{before.rlim_max, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &all), 0);
  {
    Side side(kind());
    Listening listening(side, "tcp://127.0.0.1:0");
    Dialled friendly(side, listening.endpoint());
    friendly.record().next("connected");
    ASSERT_TRUE(friendly.send({text_frame("hello")}));
    listening.record().next("message");
    std::vector<int> silent;
    for (size_t i = 0; i < kMost + kMore; ++i) {
      silent.push_back(connect_to(listening.endpoint()));
      char first = 0;
      ASSERT_EQ(read(silent.back(), &first, 1), 1) << "it was accepted and greeted";
    }
    for (size_t i = 0; i < kMore; ++i) read_all(silent[i]);
    pollfd oldest{silent[kMore], POLLIN, 0};
    recv(oldest.fd, std::string(256, 0).data(), 256, 0);
    EXPECT_EQ(poll(&oldest, 1, 100), 0) << "it was closed, too";
    for (size_t i = 0; i < kMore; ++i) {
      const std::string why = text_of(listening.record().next("denied").frames.at(0));
      EXPECT_NE(why.find("too many have come after it in its handshake"), std::string::npos) << why;
    }
    ASSERT_TRUE(friendly.send({text_frame("hello again")}));
    EXPECT_EQ(text_of(listening.record().next("message").frames.at(0)), "hello again");
    for (const int fd : silent) close(fd);
  }
  EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
}

// A runtime that stops threads by a signal interrupts whatever they wait in.
TEST_P(SocketTransportTest, SignalsDisturbNobody) {
  struct sigaction action = {};
  struct sigaction before = {};
  action.sa_handler = [](int) {};
  ASSERT_EQ(sigaction(SIGUSR1, &action, &before), 0);
  {
    Side server(kind());
    Side client(kind());
    pthread_t threads[2];
    server.run([&threads] { threads[0] = pthread_self(); });
    client.run([&threads] { threads[1] = pthread_self(); });
    std::atomic<bool> is_over{false};
    std::thread storm([&] {
      while (!is_over) {
        for (const pthread_t thread : threads) pthread_kill(thread, SIGUSR1);
        sched_yield();
      }
    });
    for (int round = 0; round < 20; ++round) {
      Listening listening(server, private_address(server));
      Dialled dialled(client, listening.endpoint());
      EXPECT_EQ(dialled.record().next("connected").what, "connected");
      for (int i = 0; i < 10; ++i) {
        ASSERT_TRUE(dialled.send({make_frame(100, 1), make_frame(100'000, 2)}));
        EXPECT_EQ(listening.record().next("message").frames.size(), 2u);
      }
    }
    is_over = true;
    storm.join();
  }
  sigaction(SIGUSR1, &before, nullptr);
}

TEST_P(SocketTransportTest, SixtyFourPeersEachWay) {
  std::vector<std::unique_ptr<Side>> sides;
  for (int i = 0; i < 2; ++i) sides.push_back(std::make_unique<Side>(kind()));
  std::vector<std::unique_ptr<Listening>> listening;
  std::vector<std::unique_ptr<Dialled>> dialled;
  for (int i = 0; i < 64; ++i) {
    Side& side = *sides[static_cast<size_t>(i) % 2];
    listening.push_back(std::make_unique<Listening>(side, private_address(side)));
  }
  for (int i = 0; i < 64; ++i) {
    dialled.push_back(std::make_unique<Dialled>(*sides[static_cast<size_t>(i + 1) % 2],
                                                listening[static_cast<size_t>(i)]->endpoint()));
  }
  for (size_t i = 0; i < dialled.size(); ++i) {
    ASSERT_EQ(dialled[i]->record().next("connected").what, "connected");
    ASSERT_TRUE(dialled[i]->send({text_frame(std::to_string(i))}));
    ASSERT_EQ(text_of(listening[i]->record().next("message").frames.at(0)), std::to_string(i));
  }
}

INSTANTIATE_TEST_SUITE_P(Engines, SocketTransportTest, kBothEngines, kEngineName);
INSTANTIATE_TEST_SUITE_P(Engines, DescriptorsRunOutTest, engines_that_keep("descriptors run out"), kEngineName);
INSTANTIATE_TEST_SUITE_P(Engines, SilentConnectionsTest, engines_that_keep("silent connections"), kEngineName);

}  // namespace
}  // namespace distag::testing
