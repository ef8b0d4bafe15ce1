#pragma once

#include <cstdint>
#include <string>

namespace distag {

// A directory that only this user can enter, for ipc endpoints: under XDG_RUNTIME_DIR, TMPDIR or /tmp. Removed with all
// sockets in it at the end, by the process that made it.
class PrivateDirectory {
 public:
  // Throws INVALID_STATE when none of the three takes a directory.
  PrivateDirectory();
  ~PrivateDirectory();
  PrivateDirectory(const PrivateDirectory&) = delete;
  PrivateDirectory& operator=(const PrivateDirectory&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
  int64_t maker_ = 0;
};

}  // namespace distag
