// Processes of another user at sockets of this machine, over which no key says who they are.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "contract/transport_contract.h"
#include "support/sockets.h"
#include "transport/shm/shm_transport.h"
#include "transport/socket/address.h"

namespace distag::testing {
namespace {

constexpr uid_t kOther = 65534;

// The calling thread acts for the other user meanwhile; the other threads stay as they are.
class AsOtherUser {
 public:
  AsOtherUser() { become(kOther); }
  ~AsOtherUser() { become(0); }
  AsOtherUser(const AsOtherUser&) = delete;
  AsOtherUser& operator=(const AsOtherUser&) = delete;

 private:
  static void become(uid_t user) {
    if (syscall(SYS_setresuid, -1, user, -1) != 0) std::abort();
  }
};

class Socket {
 public:
  Socket(const std::string& path, int type) : address_(parse_address("ipc://" + path, false)), fd_(make(type)) {}
  ~Socket() {
    close(fd_);
    if (accepted_ >= 0) close(accepted_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  bool dial() { return connect(fd_, at(), address_.length) == 0; }
  bool listen() { return bind(fd_, at(), address_.length) == 0 && ::listen(fd_, 8) == 0; }
  // Whoever was refused at once may have hung up.
  void say(const std::string& bytes) { send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL); }
  // To the first one that has dialled, which may have hung up.
  void answer(const std::string& bytes) {
    accepted_ = accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC);
    send(accepted_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  // The bytes that come until the other side hangs up.
  std::string read_all() {
    std::string all;
    char bytes[256];
    for (ssize_t got = 0; (got = recv(fd_, bytes, sizeof bytes, 0)) > 0;) all.append(bytes, static_cast<size_t>(got));
    return all;
  }

 private:
  static int make(int type) {
    const int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
    const timeval patience = {120, 0};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    return fd;
  }
  const sockaddr* at() const { return reinterpret_cast<const sockaddr*>(&address_.address); }

  const SocketAddress address_;
  const int fd_;
  int accepted_ = -1;
};

class OtherUserTest : public ::testing::TestWithParam<Engine> {
 protected:
  void SetUp() override {
    if (geteuid() == 0) {
      make_directory();
    } else if (std::getenv("DISTAG_CI") != nullptr) {
      FAIL() << "only root can act for another user";
    } else {
      GTEST_SKIP() << "only root can act for another user";
    }
  }
  ~OtherUserTest() override {
    if (directory_.empty()) return;
    for (const std::string& path : {path_, path_ + ".lane"}) unlink(path.c_str());
    rmdir(directory_.c_str());
  }

  static TransportKind sockets() {
    return {name_of(GetParam()),
            [engine = GetParam()](FdLoop& loop) { return make_sockets(engine, loop); },
            {},
            {},
            {},
            false};
  }
  static TransportKind shm() {
    return {"shm",
            [engine = GetParam()](FdLoop& loop) {
              return std::make_unique<ShmTransport>(loop, make_sockets(engine, loop), "");
            },
            {},
            {},
            {},
            false};
  }
  std::string endpoint() const { return "ipc://" + path_; }
  void open_to_all(const std::string& path) { ASSERT_EQ(chmod(path.c_str(), 0777), 0); }

  std::string path_;

 private:
  void make_directory() {
    char directory[] = "/tmp/distag-user-XXXXXX";
    if (mkdtemp(directory) == nullptr || chmod(directory, 0777) != 0) std::abort();
    directory_ = directory;
    path_ = directory_ + "/socket";
  }

  std::string directory_;
};

TEST_P(OtherUserTest, WhoDialsIsRefusedAndTold) {
  Side side(sockets());
  Record record;
  std::unique_ptr<Acceptor> acceptor;
  side.run([&] {
    AcceptorEvents events = recording_acceptor(record);
    events.on_denied = [&record](const std::string& why) { record.add({"denied", {text_frame(why)}, {}}); };
    acceptor = side.transport().listen(endpoint(), std::move(events));
  });
  open_to_all(path_);
  Socket dialler(path_, SOCK_STREAM);
  {
    const AsOtherUser other;
    ASSERT_TRUE(dialler.dial());
  }
  // libzmq asks who it is once it has said that it speaks ZMTP.
  dialler.say(std::string("\xff\0\0\0\0\0\0\0\1\x7f\3\0NULL", 16) + std::string(48, '\0'));
  const Record::Event denied = record.next("denied");
  ASSERT_EQ(denied.frames.size(), 1u);
  EXPECT_EQ(text_of(denied.frames[0]), fmt::format("a connection from process {} of user 65534 was refused: it is of "
                                                   "another user, and over ipc:// workers without "
                                                   "keys of their own are of one",
                                                   getpid()));
  EXPECT_NE(dialler.read_all().find("ERROR"), std::string::npos);
  Dialled own(side, endpoint());
  EXPECT_EQ(own.record().next("connected").what, "connected");
  side.run([&acceptor] { acceptor.reset(); });
}

TEST_P(OtherUserTest, WhoListensIsNotSpokenTo) {
  Socket listener(path_, SOCK_STREAM);
  {
    const AsOtherUser other;
    ASSERT_TRUE(listener.listen());
  }
  Side side(sockets());
  Record record;
  std::unique_ptr<Connection> connection;
  side.run([&] {
    ConnectionEvents events = recording(record);
    events.on_denied = [&record] { record.add({"denied", {}, {}}); };
    connection = side.transport().dial(endpoint(), std::move(events));
  });
  // The handshake of a ROUTER, which libzmq takes to its end.
  listener.answer(std::string("\xff\0\0\0\0\0\0\0\1\x7f\3\0NULL", 16) + std::string(48, '\0') +
                  std::string("\4\x1c\5READY\13Socket-Type\0\0\0\6ROUTER", 30));
  EXPECT_EQ(record.next("dropped").what, "dropped");
  EXPECT_EQ(record.all(), (std::vector<std::string>{"denied", "dropped"}));
  side.run([&connection] { connection.reset(); });
}

TEST_P(OtherUserTest, GetsNoLane) {
  Side side(shm());
  Listening listening(side, endpoint());
  open_to_all(path_ + ".lane");
  // The best of several, as the machine may stop for a while: an offer is late after two seconds, and none is made.
  Nanos least = kForever;
  uint64_t dialled = 0, refused = 0;
  while (dialled < 20 && (least < 0 || least >= kSecond)) {
    Socket dialler(path_ + ".lane", SOCK_SEQPACKET);
    {
      const AsOtherUser other;
      ASSERT_TRUE(dialler.dial());
    }
    const Nanos dialled_at = side.loop().clock().now();
    EXPECT_EQ(dialler.read_all(), "");
    least = side.loop().clock().now() - dialled_at;
    ++dialled;
  }
  EXPECT_LT(least, kSecond) << "it is hung up on at once, not when its offer is late";
  side.run([&] { refused = side.transport().lane_report().refused; });
  EXPECT_EQ(refused, dialled);
}

TEST_P(OtherUserTest, WhoTakesLanesIsOfferedNone) {
  Side below(sockets());
  Listening listening(below, endpoint());
  Socket listener(path_ + ".lane", SOCK_SEQPACKET);
  {
    const AsOtherUser other;
    ASSERT_TRUE(listener.listen());
  }
  open_to_all(path_ + ".lane");
  Side side(shm());
  Dialled dialled(side, endpoint());
  EXPECT_EQ(dialled.record().next("connected").what, "connected");
  std::string way;
  side.run([&] { way = side.transport().lane_report().ways[endpoint()]; });
  EXPECT_NE(way.find("another user takes lanes"), std::string::npos) << way;
}

INSTANTIATE_TEST_SUITE_P(Engines, OtherUserTest, kBothEngines, kEngineName);

}  // namespace
}  // namespace distag::testing
