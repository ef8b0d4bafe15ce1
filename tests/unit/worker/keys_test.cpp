#include "worker/keys.h"

#include <grp.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "transport/socket/group_key.h"
#include "transport/socket/worker_key.h"

namespace distag {
namespace {

constexpr const char* kSecret = "0123456789abcdefghijklmnopqrstuvwxyz";

// A file with a key, alone in a folder; removed at the end.
class KeyFile {
 public:
  KeyFile(const std::string& content, mode_t mode) {
    std::string folder = ::testing::TempDir() + "distag-key-XXXXXX";
    if (mkdtemp(folder.data()) == nullptr || chmod(folder.c_str(), 0711) != 0) std::abort();
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
  for (const mode_t mode : {0604u, 0620u, 0610u, 0602u, 0644u, 0666u}) {
    const KeyFile file(kSecret, mode);
    EXPECT_EQ(status_of(file.path()), Status::kDenied) << mode;
  }
  const KeyFile file(kSecret, 0400);
  EXPECT_EQ(status_of(file.path()), Status::kOk);
}

std::string failure_of(const std::string& content) {
  const KeyFile file(content, 0600);
  try {
    load({}, file.path());
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Status::kInvalidArgument);
    return error.message();
  }
  return {};
}

TEST(Keys, AFileThatIsNoPlainTextIsRefusedByName) {
  const std::string key = kSecret;
  EXPECT_NE(failure_of("\xEF\xBB\xBF" + key).find("begins with a byte order mark"), std::string::npos);
  std::string wide = "\xFF\xFE";
  for (const char letter : key) wide += {letter, '\0'};
  for (const std::string& zeros : {wide, key + '\0', std::string(64, '\0')}) {
    EXPECT_NE(failure_of(zeros).find("is no text, as it has bytes of zero"), std::string::npos);
  }
  EXPECT_EQ(failure_of(key + "\n"), "");
}

// The status as another user finds it, in a process of its own.
Status status_for(uid_t user, const std::string& path) {
  const pid_t child = fork();
  if (child == 0) {
    const bool is_other = setgroups(0, nullptr) == 0 && setgid(user) == 0 && setuid(user) == 0;
    _exit(is_other ? static_cast<int>(status_of(path)) : 255);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return static_cast<Status>(WEXITSTATUS(status));
}

// A Secret of Kubernetes (root, 0440, the group of the process) and a credential of systemd are read; what is this
// user's own is for it alone, and another user's is not taken at all.
TEST(Keys, AFileOfRootMayBeReadByItsGroup) {
  if (geteuid() != 0) GTEST_SKIP() << "not root: there is no second user to be";
  constexpr uid_t kNobody = 65534;
  const std::pair<mode_t, Status> of_root[] = {{0440, Status::kOk},
                                               {0640, Status::kOk},
                                               {0444, Status::kDenied},
                                               {0660, Status::kDenied},
                                               {0600, Status::kInvalidState}};  // it cannot be read
  for (const auto& [mode, expected] : of_root) {
    const KeyFile file(kSecret, mode);
    ASSERT_EQ(chown(file.path().c_str(), 0, kNobody), 0);
    EXPECT_EQ(status_for(kNobody, file.path()), expected) << mode;
  }
  const KeyFile own(kSecret, 0640);
  ASSERT_EQ(chown(own.path().c_str(), kNobody, kNobody), 0);
  EXPECT_EQ(status_for(kNobody, own.path()), Status::kDenied);
  ASSERT_EQ(chmod(own.path().c_str(), 0600), 0);
  EXPECT_EQ(status_for(kNobody, own.path()), Status::kOk);
  const KeyFile of_another(kSecret, 0440);
  ASSERT_EQ(chown(of_another.path().c_str(), 65533, kNobody), 0);
  EXPECT_EQ(status_for(kNobody, of_another.path()), Status::kDenied);
}

TEST(Keys, AFileWithoutAKeyFailsTheStart) {
  EXPECT_EQ(status_of("/nowhere/group.key"), Status::kInvalidState);
  const KeyFile empty("", 0600);
  EXPECT_EQ(status_of(empty.path()), Status::kInvalidArgument);
}

// A folder that stands for a home; removed at the end.
class Home {
 public:
  Home() {
    std::string folder = ::testing::TempDir() + "distag-home-XXXXXX";
    if (mkdtemp(folder.data()) == nullptr) std::abort();
    folder_ = folder;
    set("HOME", folder_);
  }
  ~Home() { std::filesystem::remove_all(folder_); }
  const std::string& folder() const { return folder_; }
  std::string key_file() const { return folder_ + "/.local/state/distag/group.key"; }
  void set(const std::string& name, const std::string& value) { variables_[name] = value; }
  Security load(const SecurityOptions& options = {}) const {
    return load_security(options, [variables = variables_](const char* name) -> const char* {
      const auto found = variables.find(name);
      return found == variables.end() ? nullptr : found->second.c_str();
    });
  }
  CurveKey user_key() const { return load().user_key().public_key; }
  Status status() const {
    try {
      user_key();
    } catch (const Error& error) {
      EXPECT_NE(error.message().find("DISTAG_GROUP_KEY_FILE"), std::string::npos) << error.message();
      return error.status();
    }
    return Status::kOk;
  }

 private:
  std::string folder_;
  std::map<std::string, std::string> variables_;
};

Status status_of(const Home& home, const SecurityOptions& options, const std::string& word) {
  try {
    home.load(options);
  } catch (const Error& error) {
    EXPECT_NE(error.message().find(word), std::string::npos) << error.message();
    return error.status();
  }
  return Status::kOk;
}

TEST(Keys, AWorkerHasItsOwnByOptionsOrFiles) {
  const CurveKeyPair own = new_key_pair(), other = new_key_pair();
  const KeyRing::Keys peers = {{"w0", other.public_key}};
  const KeyFile secret(print_key(own.secret_key) + "\n", 0600);
  const KeyFile list("w0 " + print_key(other.public_key) + "\n", 0600);
  const KeyFile group(kSecret, 0600);
  SecurityOptions options;
  options.secret_key = own.secret_key;
  options.peers = peers;
  options.rendezvous_name = "w0";
  Home home;
  home.set("DISTAG_GROUP_KEY_FILE", group.path());
  const Security by_options = home.load(options);  // before the file of a group
  ASSERT_TRUE(by_options.worker_keys.has_value());
  EXPECT_FALSE(by_options.group_key.has_value());
  EXPECT_EQ(by_options.worker_keys->own.public_key, own.public_key);
  EXPECT_EQ(by_options.worker_keys->peers->key_of("w0"), other.public_key);
  EXPECT_EQ(by_options.worker_keys->rendezvous_name, "w0");

  home.set("DISTAG_SECRET_KEY_FILE", secret.path());
  home.set("DISTAG_PEER_KEYS_FILE", list.path());
  EXPECT_EQ(status_of(home, {}, "DISTAG_GROUP_KEY_FILE is set, and so is"), Status::kInvalidArgument);
  EXPECT_TRUE(home.load({false, kSecret}).group_key.has_value());
  home.set("DISTAG_GROUP_KEY_FILE", "");
  const Security by_files = home.load();
  EXPECT_EQ(by_files.worker_keys->own.secret_key, own.secret_key);
  EXPECT_EQ(by_files.worker_keys->own.public_key, own.public_key);
  EXPECT_EQ(by_files.worker_keys->peers->name_of(other.public_key), "w0");
  EXPECT_EQ(by_files.worker_keys->rendezvous_name, "worker0");
  home.set("DISTAG_RENDEZVOUS_NAME", "w7");
  EXPECT_EQ(home.load().worker_keys->rendezvous_name, "w7");
}

TEST(Keys, HalfOfTheKeysOfAWorkerAreNone) {
  const CurveKeyPair own = new_key_pair();
  const KeyFile secret(print_key(own.secret_key), 0600);
  const KeyFile open_secret(print_key(own.secret_key), 0644);
  const KeyFile open_list("w0 " + print_key(own.public_key), 0644);
  const KeyFile bad_list("w0 key\n", 0600);
  Home home;
  SecurityOptions options;
  options.secret_key = own.secret_key;
  EXPECT_EQ(status_of(home, options, "DISTAG_PEER_KEYS_FILE"), Status::kInvalidArgument);
  options = {};
  options.peers = KeyRing::Keys{{"w0", own.public_key}};
  EXPECT_EQ(status_of(home, options, "DISTAG_SECRET_KEY_FILE"), Status::kInvalidArgument);
  home.set("DISTAG_SECRET_KEY_FILE", open_secret.path());
  EXPECT_EQ(status_of(home, options, "DISTAG_SECRET_KEY_FILE"), Status::kDenied);
  home.set("DISTAG_SECRET_KEY_FILE", secret.path());
  EXPECT_EQ(status_of(home, options, ""), Status::kOk);
  home.set("DISTAG_PEER_KEYS_FILE", open_list.path());
  EXPECT_EQ(status_of(home, {}, "DISTAG_PEER_KEYS_FILE"), Status::kDenied);
  home.set("DISTAG_PEER_KEYS_FILE", bad_list.path());
  EXPECT_EQ(status_of(home, {}, "line 1"), Status::kInvalidArgument);
}

TEST(Keys, TheUserHasOneKeyWhichTheFirstMakes) {
  const Home home;
  const CurveKey first = home.user_key();
  EXPECT_EQ(home.user_key(), first);
  struct stat file = {};
  struct stat folder = {};
  ASSERT_EQ(stat(home.key_file().c_str(), &file), 0);
  ASSERT_EQ(stat((home.folder() + "/.local/state/distag").c_str(), &folder), 0);
  EXPECT_EQ(file.st_mode & 0777, 0600u);
  EXPECT_EQ(folder.st_mode & 0777, 0700u);
  EXPECT_NE(Home().user_key(), first);
  // The file is that of any group key.
  SecurityOptions given;
  std::ifstream(home.key_file()) >> given.group_key;
  EXPECT_EQ(given.group_key.size(), 64u);
  EXPECT_EQ(home.load(given).group_key->public_key, first);
}

TEST(Keys, TheFolderOfTheKeyCanBeNamed) {
  Home home;
  home.set("XDG_STATE_HOME", home.folder() + "/elsewhere");
  home.user_key();
  EXPECT_TRUE(std::filesystem::exists(home.folder() + "/elsewhere/distag/group.key"));
  home.set("XDG_STATE_HOME", "no/absolute/path");
  home.user_key();
  EXPECT_TRUE(std::filesystem::exists(home.key_file()));
}

TEST(Keys, OfManyWhoMakeItAtOnceAllHaveTheSame) {
  constexpr int kProcesses = 64;
  const Home home;
  int start[2];
  int results[2];
  ASSERT_EQ(pipe(start), 0);
  ASSERT_EQ(pipe(results), 0);
  for (int i = 0; i < kProcesses; ++i) {
    if (fork() != 0) continue;
    close(start[1]);
    char byte = 0;
    if (read(start[0], &byte, 1) != 0) _exit(1);  // until no process can write
    const CurveKey key = home.user_key();
    _exit(write(results[1], key.data(), key.size()) == static_cast<ssize_t>(key.size()) ? 0 : 1);
  }
  close(start[0]);
  close(start[1]);
  close(results[1]);
  const CurveKey expected = home.user_key();
  for (int i = 0; i < kProcesses; ++i) {
    CurveKey key{};
    ASSERT_EQ(read(results[0], key.data(), key.size()), static_cast<ssize_t>(key.size()));
    EXPECT_EQ(key, expected);
  }
  close(results[0]);
  for (int i = 0; i < kProcesses; ++i) {
    int status = 0;
    ASSERT_GT(wait(&status), 0);
    EXPECT_EQ(status, 0);
  }
  // Whatever was written beside it is gone.
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(home.folder() + "/.local/state/distag"), {}), 1);
}

TEST(Keys, AUserWithoutAPlaceForItIsDenied) {
  const Home home;
  std::ofstream(home.folder() + "/.local") << "no folder";
  EXPECT_EQ(home.status(), Status::kDenied);
}

TEST(Keys, AKeyOfTheUserThatIsOpenToOthersOrNoneIsDenied) {
  const Home home;
  home.user_key();
  ASSERT_EQ(chmod(home.key_file().c_str(), 0644), 0);
  EXPECT_EQ(home.status(), Status::kDenied);
  ASSERT_EQ(chmod(home.key_file().c_str(), 0600), 0);
  EXPECT_EQ(home.status(), Status::kOk);
  std::ofstream(home.key_file(), std::ios::trunc) << "short";
  EXPECT_EQ(home.status(), Status::kDenied);
}

TEST(Keys, WithAKeyOfTheGroupOrWithoutAnyThatOfTheUserIsNotTouched) {
  const Home home;
  EXPECT_FALSE(home.load({false, kSecret}).user_key);
  EXPECT_FALSE(home.load({true, ""}).user_key);
  EXPECT_TRUE(home.load().user_key);
  EXPECT_FALSE(std::filesystem::exists(home.folder() + "/.local"));
}

}  // namespace
}  // namespace distag
