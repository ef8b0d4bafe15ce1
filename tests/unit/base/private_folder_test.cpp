#include "base/private_folder.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <string>

#include "base/regular_file.h"

namespace distag {
namespace {

class PrivateFolderTest : public testing::Test {
 protected:
  // The folder of the test keeps its rights: without them only root could make anything in it.
  void SetUp() override {
    ASSERT_NE(mkdtemp(base_.data()), nullptr);
    before_ = umask(0777);
  }
  void TearDown() override {
    umask(before_);
    for (const auto& entry : std::filesystem::directory_iterator(base_)) {
      if (entry.is_directory() && !entry.is_symlink()) chmod(entry.path().c_str(), 0700);
    }
    std::filesystem::remove_all(base_);
  }

  static mode_t rights_of(const std::string& path) {
    struct stat found = {};
    EXPECT_EQ(lstat(path.c_str(), &found), 0) << path;
    return found.st_mode & 07777;
  }

  mode_t before_ = 0;
  std::string base_ = "/tmp/distag-folder-XXXXXX";
};

TEST_F(PrivateFolderTest, HasTheRightsOfItsUserWhateverTheUmaskTakes) {
  const std::string path = base_ + "/a";
  ASSERT_TRUE(make_private_folder(path));
  EXPECT_EQ(rights_of(path), 0700u);
  umask(0);
  ASSERT_TRUE(make_private_folder(base_ + "/b"));
  EXPECT_EQ(rights_of(base_ + "/b"), 0700u);
}

TEST_F(PrivateFolderTest, WhatIsThereStaysAsItIs) {
  const std::string path = base_ + "/a";
  ASSERT_EQ(mkdir(path.c_str(), 0700), 0);
  EXPECT_FALSE(make_private_folder(path));
  EXPECT_EQ(errno, EEXIST);
  EXPECT_EQ(rights_of(path), 0u);
}

// A process that starts beside it clears folders that are not locked yet: their makers try the next name.
TEST_F(PrivateFolderTest, OneThatIsGoneAgainIsNoFailure) { EXPECT_TRUE(keep_private_folder(base_ + "-gone")); }

TEST_F(PrivateFolderTest, ALinkInItsPlaceIsNotFollowed) {
  const std::string target = base_ + "/target";
  ASSERT_EQ(mkdir(target.c_str(), 0700), 0);
  ASSERT_EQ(symlink(target.c_str(), (base_ + "/link").c_str()), 0);
  EXPECT_FALSE(keep_private_folder(base_ + "/link"));
  EXPECT_EQ(rights_of(target), 0u);
}

TEST_F(PrivateFolderTest, APrivateFileCanBeReadByItsUserWhateverTheUmaskTakes) {
  ASSERT_TRUE(create_private_file(base_ + "/key", "secret"));
  EXPECT_EQ(rights_of(base_ + "/key"), 0600u);
}

}  // namespace
}  // namespace distag
