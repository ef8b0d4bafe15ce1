#include "transport/socket/private_directory.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <thread>
#include <vector>

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

// A base directory of the test's own.
class PrivateDirectoriesAtTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(mkdtemp(base_.data()), nullptr);
    for (const char* name : kNames) {
      const char* value = std::getenv(name);
      before_.emplace_back(value == nullptr ? std::optional<std::string>() : value);
      setenv(name, base_.c_str(), 1);
    }
  }
  void TearDown() override {
    for (size_t i = 0; i < before_.size(); ++i) {
      if (before_[i]) {
        setenv(kNames[i], before_[i]->c_str(), 1);
      } else {
        unsetenv(kNames[i]);
      }
    }
    std::filesystem::remove_all(base_);
  }

  static constexpr const char* kNames[] = {"XDG_RUNTIME_DIR", "TMPDIR"};
  std::string base_ = (std::filesystem::temp_directory_path() / "distag-test-XXXXXX").string();
  std::vector<std::optional<std::string>> before_;
};

TEST_F(PrivateDirectoriesAtTest, ABaseWithTooLongAPathForSocketsIsPassedOver) {
  const std::string deep = base_ + "/" + std::string(80, 'd');
  std::filesystem::create_directory(deep);
  setenv("XDG_RUNTIME_DIR", deep.c_str(), 1);
  const PrivateDirectory directory;
  EXPECT_EQ(std::filesystem::path(directory.path()).parent_path(), base_);
  EXPECT_TRUE(std::filesystem::is_empty(deep));
}

void leave_socket(const std::string& path) {
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
  ASSERT_EQ(bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  close(fd);
}

TEST_F(PrivateDirectoriesAtTest, AKilledProcessLeavesNothingForLong) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    const PrivateDirectory directory;
    leave_socket(directory.path() + "/1");
    const std::string path = directory.path();
    if (write(ready[1], path.c_str(), path.size() + 1) < 0) _exit(1);
    for (;;) pause();
  }
  char path[256] = {};
  ASSERT_GT(read(ready[0], path, sizeof path - 1), 0);
  close(ready[0]);
  close(ready[1]);
  { const PrivateDirectory beside; }
  EXPECT_TRUE(exists(std::string(path) + "/1")) << "its maker lives";
  kill(child, SIGKILL);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_TRUE(exists(path));
  { const PrivateDirectory next; }
  EXPECT_FALSE(exists(path));
  EXPECT_TRUE(std::filesystem::is_empty(base_));
}

TEST_F(PrivateDirectoriesAtTest, ClearsNothingThatIsNotItsKind) {
  namespace fs = std::filesystem;
  const fs::path target = fs::path(base_) / "target";
  fs::create_directory(target);
  fs::permissions(target, fs::perms::owner_all);
  leave_socket(target / "1");
  fs::create_directory_symlink(target, fs::path(base_) / "distag.link00");
  fs::create_directory(fs::path(base_) / "distag.opened");
  fs::permissions(fs::path(base_) / "distag.opened", fs::perms::owner_all | fs::perms::group_read);
  fs::create_directory(fs::path(base_) / "distag.longer-name");
  fs::permissions(fs::path(base_) / "distag.longer-name", fs::perms::owner_all);
  ASSERT_EQ(mkfifo((base_ + "/distag.fifo00").c_str(), 0600), 0);
  const fs::path full = fs::path(base_) / "distag.full00";
  fs::create_directory(full);
  fs::permissions(full, fs::perms::owner_all);
  std::ofstream(full / "file") << "of somebody";
  { const PrivateDirectory directory; }
  for (const char* name :
       {"target/1", "distag.link00", "distag.opened", "distag.longer-name", "distag.fifo00", "distag.full00/file"}) {
    EXPECT_TRUE(exists(base_ + "/" + name)) << name;
  }
}

// Each clears what the others have just made and not locked yet; no thread may be left without a directory.
TEST_F(PrivateDirectoriesAtTest, ManyStartAtOnce) {
  std::atomic<int> lost{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 6; ++i) {
    threads.emplace_back([&lost] {
      for (int round = 0; round < 150; ++round) {
        const PrivateDirectory directory;
        if (!exists(directory.path())) ++lost;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(lost, 0);
  EXPECT_TRUE(std::filesystem::is_empty(base_));
}

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
