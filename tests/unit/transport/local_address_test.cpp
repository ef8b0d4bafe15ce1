#include "transport/socket/local_address.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>

#include "base/error.h"

namespace distag {
namespace {

// The folder lies in a directory of the test's own.
class LocalAddressTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(mkdtemp(base_.data()), nullptr);
    if (const char* const value = std::getenv("XDG_RUNTIME_DIR")) before_ = value;
    setenv("XDG_RUNTIME_DIR", base_.c_str(), 1);
  }
  void TearDown() override {
    if (before_) {
      setenv("XDG_RUNTIME_DIR", before_->c_str(), 1);
    } else {
      unsetenv("XDG_RUNTIME_DIR");
    }
    std::filesystem::remove_all(base_);
  }

  static mode_t rights_of(const std::string& path) {
    struct stat found = {};
    EXPECT_EQ(lstat(path.c_str(), &found), 0) << path;
    return found.st_mode & 0777;
  }
  std::string folder() const { return fmt::format("{}/distag-ps.{}", base_, geteuid()); }

  std::string base_ = "/tmp/distag-local-XXXXXX";
  std::optional<std::string> before_;
};

TEST_F(LocalAddressTest, TheFolderAndItsSocketsCanBeUsedWhateverTheUmaskTakes) {
  const mode_t before = umask(0777);
  {
    const LocalAddress first(1);
    const LocalAddress second(2);
    EXPECT_EQ(rights_of(folder()), 0700u);
    for (const int id : {1, 2}) EXPECT_EQ(rights_of(fmt::format("{}/{}.{:016x}", folder(), getpid(), id)), 0700u);
  }
  umask(before);
  EXPECT_FALSE(std::filesystem::exists(folder()));
}

}  // namespace
}  // namespace distag
