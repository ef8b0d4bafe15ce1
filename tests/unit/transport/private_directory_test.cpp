#include "transport/zmq/private_directory.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

namespace distag {
namespace {

bool exists(const std::string& path) {
  struct stat status {};
  return lstat(path.c_str(), &status) == 0;
}

TEST(PrivateDirectory, OnlyThisUserMayEnter) {
  const PrivateDirectory directory;
  struct stat status {};
  ASSERT_EQ(stat(directory.path().c_str(), &status), 0);
  EXPECT_TRUE(S_ISDIR(status.st_mode));
  EXPECT_EQ(status.st_mode & 0777u, 0700u);
  EXPECT_EQ(status.st_uid, geteuid());
}

TEST(PrivateDirectory, IsRemovedWithTheSocketsInIt) {
  std::string path;
  {
    const PrivateDirectory directory;
    path = directory.path();
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, (path + "/left").c_str(), sizeof address.sun_path - 1);
    ASSERT_EQ(bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    close(fd);
    EXPECT_TRUE(exists(path + "/left"));
  }
  EXPECT_FALSE(exists(path));
}

TEST(PrivateDirectory, TwoAreDifferent) { EXPECT_NE(PrivateDirectory().path(), PrivateDirectory().path()); }

TEST(PrivateDirectory, AForkedChildLeavesItToItsMaker) {
  const PrivateDirectory directory;
  const pid_t child = fork();
  if (child == 0) {
    directory.~PrivateDirectory();
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(exists(directory.path()));
}

}  // namespace
}  // namespace distag
