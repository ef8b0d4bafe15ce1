// Descriptors of connections: what libzmq and the system report of them, and what is left where they report nothing.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "contract/transport_contract.h"
#include "support/zmq_sides.h"
#include "transport/key_ring.h"
#include "transport/socket/socket_ends.h"
#include "transport/socket/worker_key.h"

namespace {

// Whether libzmq is told on its own threads that a socket has no other side, and how often it was.
std::atomic<bool> hides_other_sides{false};
std::atomic<int> hidden_count{0};
// Runs once on the loop, before the system says which user the other side of that descriptor belongs to.
std::atomic<const std::function<void(int)>*> before_credentials{nullptr};

bool is_thread_of_libzmq() {
  char name[16] = {};
  prctl(PR_GET_NAME, name);
  return std::strncmp(name, "ZMQbg", 5) == 0;
}

}  // namespace

// In the place of those of the system, for libzmq and distag in this program.
extern "C" __attribute__((visibility("default"))) int getpeername(int fd, sockaddr* address, socklen_t* size) noexcept {
  if (hides_other_sides && is_thread_of_libzmq()) {
    ++hidden_count;
    errno = ENOTCONN;
    return -1;
  }
  return static_cast<int>(syscall(SYS_getpeername, fd, address, size));
}

extern "C" __attribute__((visibility("default"))) int getsockopt(int fd, int level, int name, void* value,
                                                                 socklen_t* size) noexcept {
  if (level == SOL_SOCKET && name == SO_PEERCRED && !is_thread_of_libzmq()) {
    const auto* const before = before_credentials.exchange(nullptr);
    if (before != nullptr) (*before)(fd);
  }
  return static_cast<int>(syscall(SYS_getsockopt, fd, level, name, value, size));
}

namespace distag::testing {
namespace {

int option_of(int fd, int level, int name) {
  int value = -1;
  socklen_t size = sizeof value;
  return getsockopt(fd, level, name, &value, &size) == 0 ? value : -1;
}

uint16_t port_at(int fd, int (*look)(int, sockaddr*, socklen_t*) noexcept) {
  sockaddr_in address{};
  socklen_t size = sizeof address;
  const bool is_there = look(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0 && address.sin_family == AF_INET;
  return is_there ? ntohs(address.sin_port) : uint16_t{0};
}

// A machine that died says nothing: the system finds out, at both ends.
TEST(ZmqDescriptors, BothEndsOfAConnectionAreKeptAlive) {
  Served served(nullptr);
  Side side(zmq_kind(nullptr));
  Dialled dialled(side, served.endpoint());
  ASSERT_EQ(dialled.record().next("connected").what, "connected");
  ASSERT_TRUE(dialled.send({text_frame("hello")}));
  ASSERT_EQ(served.record().next("message").what, "message");
  const auto port = static_cast<uint16_t>(std::stoi(served.endpoint().substr(served.endpoint().rfind(':') + 1)));
  std::vector<std::string> ends;
  for (int fd = 0; fd < 4096; ++fd) {
    const uint16_t own = port_at(fd, &getsockname), other = port_at(fd, &getpeername);
    if (other == 0 || (own != port && other != port)) continue;
    ends.push_back(own == port ? "accepted" : "dialled");
    EXPECT_EQ(option_of(fd, SOL_SOCKET, SO_KEEPALIVE), 1) << ends.back();
    EXPECT_EQ(option_of(fd, IPPROTO_TCP, TCP_KEEPIDLE), 60) << ends.back();
    EXPECT_EQ(option_of(fd, IPPROTO_TCP, TCP_KEEPINTVL), 10) << ends.back();
    EXPECT_EQ(option_of(fd, IPPROTO_TCP, TCP_KEEPCNT), 3) << ends.back();
  }
  std::sort(ends.begin(), ends.end());
  EXPECT_EQ(ends, (std::vector<std::string>{"accepted", "dialled"}));
}

// The connection ends while the system is asked which user the other side belongs to, and its number may be another's:
// whatever the answer is, it counts for nothing.
TEST(ZmqDescriptors, AUserThatIsAskedForAfterTheEndIsNotDenied) {
  Side side(zmq_kind(nullptr));
  std::string address;
  side.run([&] { address = side.transport().private_address(); });
  const SocketAddress at = parse_address(address, false);
  int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ASSERT_EQ(bind(listener, reinterpret_cast<const sockaddr*>(&at.address), at.length), 0);
  ASSERT_EQ(listen(listener, 8), 0);
  bool has_ended = false;
  const std::function<void(int)> hang_up = [&](int fd) {
    const ino_t before = distag::inode_of_socket(fd);
    close(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
    close(listener);
    const SteadyClock clock;
    for (const Nanos until = clock.now() + kPatience; !has_ended && clock.now() < until; poll(nullptr, 0, 1)) {
      has_ended = distag::inode_of_socket(fd) != before;
    }
  };
  before_credentials = &hang_up;
  Record record;
  std::unique_ptr<Connection> connection;
  side.run([&] {
    ConnectionEvents events = recording(record);
    events.on_denied = [&record] { record.add({"denied", {}, {}}); };
    events.on_dropped = [&record](bool is_refused) {
      record.add({is_refused ? "refused" : "dropped", {}, {}});
      record.add({"over", {}, {}});
    };
    connection = side.transport().dial(address, std::move(events));
  });
  EXPECT_EQ(record.next("over").what, "over");
  EXPECT_TRUE(has_ended) << "libzmq has closed the descriptor";
  EXPECT_EQ(record.all(), (std::vector<std::string>{"refused", "over"}));
  side.run([&] { connection.reset(); });
  unlink(at.path());
}

// libzmq has no descriptor for a message (ZMQ_SRCFD) where the other side was gone when it looked, and a version to
// come may have none at all.
class ZmqWithoutDescriptorsTest : public ::testing::Test {
 protected:
  ZmqWithoutDescriptorsTest() {
    hidden_count = 0;
    hides_other_sides = true;
  }
  ~ZmqWithoutDescriptorsTest() override {
    hides_other_sides = false;
    EXPECT_GT(hidden_count, 0);
  }
};

TEST_F(ZmqWithoutDescriptorsTest, MembersAreHeardAndAnswered) {
  Served served(kSecret);
  Side side(zmq_kind(kSecret));
  std::vector<std::unique_ptr<Dialled>> members;
  std::vector<ConnectionToken> tokens;
  for (int i = 0; i < 3; ++i) {
    members.push_back(std::make_unique<Dialled>(side, served.endpoint()));
    ASSERT_EQ(members.back()->record().next("connected").what, "connected");
    ASSERT_TRUE(members.back()->send({text_frame("hello")}));
    tokens.push_back(served.record().next("message").from);
  }
  for (size_t i = 0; i < members.size(); ++i) {
    EXPECT_TRUE(served.reply(tokens[i], "answer " + std::to_string(i)));
    EXPECT_EQ(text_of(members[i]->record().next("message").frames.at(0)), "answer " + std::to_string(i));
  }
}

TEST_F(ZmqWithoutDescriptorsTest, AMemberThatEndsIsNoStrangerAndAStrangerIsStillTold) {
  Served served(nullptr);
  const Raw member(served.endpoint());
  member.shake("");
  member.say(std::string("\0\2hi", 4));
  ASSERT_EQ(served.record().next("message").what, "message");
  served.pass(100 * kMillisecond);  // the monitor has reported it
  member.hang_up();
  const Raw stranger(served.endpoint());
  stranger.say(greeting_of("PLAIN"));
  stranger.await_end();
  const std::string text = text_of(served.record().next("denied").frames.at(0));
  EXPECT_NE(text.find("it has a key, and this worker has none"), std::string::npos) << text;
  served.pass(100 * kMillisecond);
  EXPECT_EQ(served.count("denied"), 1u);
}

// Bytes cannot be counted here: there is no sign of life while the message comes, and the message arrives.
TEST_F(ZmqWithoutDescriptorsTest, PartsOfAMessageAreNotToldOf) {
  Served served(nullptr);
  const Raw raw(served.endpoint());
  raw.shake("");
  raw.say(std::string("\0\5hello", 7));
  ASSERT_EQ(served.record().next("message").what, "message");
  raw.say(std::string("\2\0\0\0\0\0\0\x40\0", 9) + std::string(1000, 'x'));  // of 16,384 bytes
  served.pass(5 * kLook);
  EXPECT_EQ(served.count("part"), 0u);
  raw.say(std::string(16'384 - 1000, 'x'));
  EXPECT_EQ(served.record().next("message").frames.at(0).size(), 16'384u);
}

// The connection of that key cannot be ended here, and its messages are ignored all the same.
TEST_F(ZmqWithoutDescriptorsTest, AKeyThatIsTakenAwayIsHeardNoMore) {
  const CurveKeyPair server_key = new_key_pair(), a = new_key_pair(), b = new_key_pair();
  const KeyRing::Keys keys = {{"server", server_key.public_key}, {"a", a.public_key}, {"b", b.public_key}};
  const auto ring = std::make_shared<KeyRing>(keys);
  const auto kind = [](const CurveKeyPair& own, std::shared_ptr<KeyRing> list) {
    Security security;
    security.worker_keys = WorkerKeys{own, std::move(list), "server"};
    return TransportKind{"zmq", [security](FdLoop& loop) { return make_zmq(loop, security); }, {}, {}, {}, false};
  };
  Side server(kind(server_key, ring));
  Side side_a(kind(a, std::make_shared<KeyRing>(keys))), side_b(kind(b, std::make_shared<KeyRing>(keys)));
  Listening listening(server, "tcp://127.0.0.1:0");
  Dialled from_a(side_a, listening.endpoint()), from_b(side_b, listening.endpoint());
  for (Dialled* const one : {&from_a, &from_b}) {
    ASSERT_EQ(one->record().next("connected").what, "connected");
    ASSERT_TRUE(one->send({text_frame("before")}));
    ASSERT_EQ(listening.record().next("message").what, "message");
  }
  EXPECT_EQ(ring->replace({{"server", server_key.public_key}, {"b", b.public_key}}), std::vector<std::string>{"a"});
  ASSERT_TRUE(from_a.send({text_frame("after")}));
  const std::string text = text_of(listening.record().next("denied").frames.at(0));
  EXPECT_NE(text.find("its key may connect no more"), std::string::npos) << text;
  ASSERT_TRUE(from_b.send({text_frame("still here")}));
  EXPECT_EQ(text_of(listening.record().next("message").frames.at(0)), "still here");
}

}  // namespace
}  // namespace distag::testing
