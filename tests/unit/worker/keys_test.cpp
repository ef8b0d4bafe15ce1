#include "worker/keys.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "base/error.h"
#include "transport/zmq/group_key.h"

namespace distag {
namespace {

constexpr const char* kSecret = "0123456789abcdefghijklmnopqrstuvwxyz";

// A file with a key, alone in a folder; removed at the end.
class KeyFile {
 public:
  KeyFile(const std::string& content, mode_t mode) {
    std::string folder = ::testing::TempDir() + "distag-key-XXXXXX";
    if (mkdtemp(folder.data()) == nullptr) std::abort();
    folder_ = folder;
    std::ofstream(path()) << content;
    if (chmod(path().c_str(), mode) != 0) std::abort();
  }
  ~KeyFile() {
    unlink(path().c_str());
    rmdir(folder_.c_str());
  }
  std::string path() const { return folder_ + "/key"; }

 private:
  std::string folder_;
};

Security load(const SecurityOptions& options, const std::string& file) {
  return load_security(options, [&file](const char* name) -> const char* {
    return std::string(name) == "DISTAG_GROUP_KEY_FILE" && !file.empty() ? file.c_str() : nullptr;
  });
}

Status status_of(const std::string& file) {
  try {
    load({}, file);
  } catch (const Error& error) {
    EXPECT_NE(error.message().find("DISTAG_GROUP_KEY_FILE"), std::string::npos) << error.message();
    return error.status();
  }
  return Status::kOk;
}

TEST(Keys, ThereIsNoneUnlessOneIsGiven) {
  EXPECT_FALSE(load({}, "").group_key.has_value());
  EXPECT_FALSE(load({}, "").allow_insecure);
  EXPECT_TRUE(load({true, ""}, "").allow_insecure);
}

TEST(Keys, AFileHoldsTheSameAsTheOption) {
  const KeyFile file(std::string(kSecret) + "\r\n", 0600);
  const CurveKey expected = group_key_of(kSecret).public_key;
  EXPECT_EQ(load({false, kSecret}, "").group_key->public_key, expected);
  EXPECT_EQ(load({}, file.path()).group_key->public_key, expected);
}

TEST(Keys, TheOptionCountsBeforeTheFile) {
  const KeyFile file("another key, which nobody is to use here", 0600);
  EXPECT_EQ(load({false, kSecret}, file.path()).group_key->public_key, group_key_of(kSecret).public_key);
}

TEST(Keys, AFileThatOthersCanReadOrWriteIsDenied) {
  for (const mode_t mode : {0640u, 0604u, 0620u, 0602u, 0666u}) {
    const KeyFile file(kSecret, mode);
    EXPECT_EQ(status_of(file.path()), Status::kDenied) << mode;
  }
  const KeyFile file(kSecret, 0400);
  EXPECT_EQ(status_of(file.path()), Status::kOk);
}

TEST(Keys, AFileWithoutAKeyFailsTheStart) {
  EXPECT_EQ(status_of("/nowhere/group.key"), Status::kInvalidState);
  const KeyFile empty("", 0600);
  EXPECT_EQ(status_of(empty.path()), Status::kInvalidArgument);
}

}  // namespace
}  // namespace distag
