#include "base/lock_file.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "base/error.h"
#include "base/random.h"

namespace distag {
namespace {

namespace fs = std::filesystem;

class LockFileTest : public testing::Test {
 protected:
  void TearDown() override { fs::remove(path_); }
  const std::string path_ =
      (fs::temp_directory_path() / fmt::format("distag_lock_{:x}", SystemRandom().next())).string();
};

TEST_F(LockFileTest, EachByteHasOneHolder) {
  LockFile one;
  LockFile two;
  one.open(path_);
  two.open(path_);
  EXPECT_TRUE(one.try_lock(3));
  EXPECT_TRUE(one.try_lock(3)) << "it has it already";
  EXPECT_FALSE(two.try_lock(3));
  EXPECT_TRUE(two.try_lock(4));
  EXPECT_TRUE(two.is_locked_by_another(3));
  EXPECT_FALSE(one.is_locked_by_another(3));
  one.unlock(3);
  EXPECT_FALSE(two.is_locked_by_another(3));
  EXPECT_TRUE(two.try_lock(3));
}

TEST_F(LockFileTest, LocksEndWithTheObject) {
  LockFile two;
  two.open(path_);
  {
    LockFile one;
    one.open(path_);
    EXPECT_TRUE(one.try_lock(0));
    LockFile third;
    third.open(path_);  // whose end changes nothing for others
  }
  EXPECT_TRUE(two.try_lock(0));
  LockFile passing;
  passing.open(path_);
  passing.close();
  EXPECT_TRUE(LockFile().is_open() == false);
  LockFile one;
  one.open(path_);
  EXPECT_FALSE(one.try_lock(0));
}

// A fork while the descriptor is being closed leaves it to the child; _Fork() does so at any time.
TEST_F(LockFileTest, LocksEndWithTheObjectThoughAChildHasItsDescriptor) {
  LockFile one;
  LockFile two;
  one.open(path_);
  two.open(path_);
  ASSERT_TRUE(one.try_lock(0));
  ASSERT_TRUE(one.try_lock(uint64_t{1} << 40));
  int over[2];
  ASSERT_EQ(pipe(over), 0);
  const pid_t child = _Fork();
  if (child == 0) {
    char byte = 0;
    close(over[1]);
    _exit(read(over[0], &byte, 1) == 0 ? 0 : 1);
  }
  ASSERT_GT(child, 0);
  one.close();
  EXPECT_TRUE(two.try_lock(0));
  EXPECT_TRUE(two.try_lock(uint64_t{1} << 40));
  close(over[0]);
  close(over[1]);
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(LockFileTest, KnowsThatItsFileWasReplaced) {
  LockFile one;
  one.open(path_);
  EXPECT_TRUE(one.is_at_its_path());
  fs::remove(path_);
  EXPECT_FALSE(one.is_at_its_path());
  LockFile two;
  two.open(path_);
  EXPECT_FALSE(one.is_at_its_path());
  EXPECT_TRUE(two.is_at_its_path());
}

TEST_F(LockFileTest, NamesAPathThatCannotBeOpened) {
  LockFile file;
  try {
    file.open(path_ + "/not/there");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Status::kInvalidState);
    EXPECT_NE(error.message().find("/not/there"), std::string::npos);
  }
}

}  // namespace
}  // namespace distag
