#include "transport/socket/descriptors.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <string>
#include <utility>

namespace distag {
namespace {

TEST(OwnLackTest, NamesWhatIsUsedUpHereAndTheCure) {
  for (const auto& [error, cure] :
       {std::pair(EADDRNOTAVAIL, "net.ipv4.ip_local_port_range"), std::pair(EMFILE, "ulimit -n"),
        std::pair(ENFILE, "ulimit -n"), std::pair(ENOBUFS, "memory"), std::pair(ENOMEM, "memory")}) {
    const auto lack = own_lack(error, "tcp://127.0.0.1:1");
    ASSERT_TRUE(lack) << error;
    EXPECT_EQ(lack->status(), Status::kOutOfMemory);
    EXPECT_NE(lack->message().find(cure), std::string::npos) << lack->message();
    EXPECT_NE(lack->message().find("tcp://127.0.0.1:1"), std::string::npos) << lack->message();
  }
}

TEST(OwnLackTest, IsNothingThatTheOtherSideDoes) {
  for (const int error : {0, ECONNREFUSED, ECONNRESET, ENOENT, EAGAIN, ETIMEDOUT, EHOSTUNREACH, EACCES}) {
    EXPECT_FALSE(own_lack(error, "ipc:///tmp/x")) << error;
  }
}

}  // namespace
}  // namespace distag
