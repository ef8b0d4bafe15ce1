#include "transport/socket/descriptors.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <utility>

namespace distag {
namespace {

TEST(OwnLackTest, NamesWhatIsUsedUpHereAndTheCure) {
  for (const auto& [error, cure] :
       {std::pair(EADDRNOTAVAIL, "net.ipv4.ip_local_port_range"), std::pair(EMFILE, "ulimit -n"),
        std::pair(ENFILE, "fs.file-max"), std::pair(ENOBUFS, "control group"), std::pair(ENOMEM, "control group")}) {
    const auto lack = own_lack(error, parse_address("tcp://127.0.0.1:1", false));
    ASSERT_TRUE(lack) << error;
    EXPECT_EQ(lack->status(), Status::kOutOfMemory);
    EXPECT_NE(lack->message().find(cure), std::string::npos) << lack->message();
    EXPECT_NE(lack->message().find("tcp://127.0.0.1:1"), std::string::npos) << lack->message();
  }
}

TEST(OwnLackTest, IsNothingThatTheOtherSideDoes) {
  for (const int error : {0, ECONNREFUSED, ECONNRESET, ENOENT, EAGAIN, ETIMEDOUT, EHOSTUNREACH, EACCES}) {
    EXPECT_FALSE(own_lack(error, parse_address("ipc:///tmp/x", false))) << error;
  }
}

// In a process with a network of its own, in which nothing is on at first. 2: it may not make one.
int has_lack_for(const char* endpoint) {
  const pid_t child = fork();
  if (child == 0) {
    if (unshare(CLONE_NEWNET) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) _exit(2);
    const SocketAddress address = parse_address(endpoint, false);
    const int fd = socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    const bool is_refused =
        connect(fd, reinterpret_cast<const sockaddr*>(&address.address), address.length) != 0 && errno == EADDRNOTAVAIL;
    _exit(is_refused ? own_lack(errno, address).has_value() : 3);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 4;
}

TEST(OwnLackTest, IsNoFamilyThatIsSwitchedOff) {
  const int has_lack = has_lack_for("tcp://[::1]:1");
  if (has_lack == 2) GTEST_SKIP() << "this process may not make a network of its own";
  EXPECT_EQ(has_lack, 0);
}

}  // namespace
}  // namespace distag
