#include "transport/socket/user_key.h"

#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string>

#include "base/error.h"
#include "base/private_folder.h"
#include "base/regular_file.h"
#include "transport/socket/group_key.h"

namespace distag {
namespace {

bool is_absolute(const char* path) { return path != nullptr && *path == '/'; }

std::string home_of_user() {
  std::array<char, 4096> room;
  passwd entry = {};
  passwd* found = nullptr;
  if (getpwuid_r(geteuid(), &entry, room.data(), room.size(), &found) == 0 && found != nullptr &&
      is_absolute(found->pw_dir)) {
    return found->pw_dir;
  }
  fail(Status::kInvalidState, "neither XDG_STATE_HOME nor HOME names a folder, nor does the user have a home");
}

// As the XDG Base Directory Specification says, a path that is not absolute is ignored.
std::string state_folder(const std::function<const char*(const char*)>& get_environment) {
  const char* const state = get_environment("XDG_STATE_HOME");
  if (is_absolute(state)) return state;
  const char* const home = get_environment("HOME");
  return (is_absolute(home) ? std::string(home) : home_of_user()) + "/.local/state";
}

// Makes the folder and its parents, for this user alone.
void make_folder(const std::string& path) {
  for (size_t end = path.find('/', 1);; end = path.find('/', end + 1)) {
    const std::string part = path.substr(0, end);
    if (!make_private_folder(part) && errno != EEXIST) {
      fail(Status::kInvalidState, "folder \"{}\" cannot be made: {}", part, std::strerror(errno));
    }
    if (end == std::string::npos) return;
  }
}

std::string read_or_make(const std::function<const char*(const char*)>& get_environment) {
  const std::string folder = state_folder(get_environment) + "/distag";
  const std::string path = folder + "/group.key";
  if (access(path.c_str(), F_OK) != 0) {
    make_folder(folder);
    create_private_file(path, new_secret() + "\n");  // or another process did
  }
  return read_secret(path);
}

}  // namespace

CurveKeyPair user_key(const std::function<const char*(const char*)>& get_environment) {
  try {
    return group_key_of(read_or_make(get_environment));
  } catch (const Error& error) {
    if (error.status() == Status::kOutOfMemory) throw;
    fail(Status::kDenied,
         "tcp speaks with a key also on this machine, and that of this user is not to be had: {}; name another file by "
         "DISTAG_GROUP_KEY_FILE",
         error.message());
  }
}

}  // namespace distag
