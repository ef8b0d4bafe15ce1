#include "base/folder_lock.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "support/expect.h"

namespace distag {
namespace {

class FolderLockTest : public ::testing::Test {
 protected:
  FolderLockTest() {
    EXPECT_NE(mkdtemp(name_.data()), nullptr);
    path_ = name_.data();
  }
  ~FolderLockTest() override { std::filesystem::remove_all(path_); }

  std::string name_ = "/tmp/distag-folder-XXXXXX";
  std::string path_;
};

TEST_F(FolderLockTest, IsOfOneAtATimeAndLeavesNothing) {
  auto first = FolderLock::try_take(path_);
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(FolderLock::try_take(path_), nullptr);
  EXPECT_EQ(FolderLock::try_take(path_ + "/."), nullptr);
  first.reset();
  EXPECT_NE(FolderLock::try_take(path_), nullptr);
  EXPECT_TRUE(std::filesystem::is_empty(path_));
}

TEST_F(FolderLockTest, AForkedChildDoesNotHaveIt) {
  auto first = FolderLock::try_take(path_);
  int wait_here[2] = {};
  ASSERT_EQ(pipe(wait_here), 0);
  const pid_t child = fork();
  if (child == 0) {
    char byte = 0;
    close(wait_here[1]);
    _exit(read(wait_here[0], &byte, 1) == 0 ? 0 : 1);
  }
  ASSERT_GT(child, 0);
  first.reset();
  EXPECT_NE(FolderLock::try_take(path_), nullptr);
  close(wait_here[0]);
  close(wait_here[1]);
  int status = 1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(FolderLockTest, IsOfFoldersAlone) {
  EXPECT_EQ(testing::status_of([&] { FolderLock::try_take(path_ + "/none"); }), Status::kInvalidState);
  EXPECT_EQ(testing::status_of([&] { FolderLock::try_take("/dev/null"); }), Status::kInvalidState);
}

}  // namespace
}  // namespace distag
