#pragma once

#include <cstdint>
#include <string>

namespace distag {

// A directory that only this user can enter, for ipc endpoints: under the first of XDG_RUNTIME_DIR, TMPDIR and /tmp
// that takes it and whose path is short enough for sockets, by the name "distag." and six characters. Its maker holds a
// lock on it (flock), which the system ends with the process; at its end it removes the directory with all sockets in
// it. A process that was killed leaves it, and who makes the next one beside it clears those that no process holds.
class PrivateDirectory {
 public:
  // Throws INVALID_STATE when none of the three takes a directory, OUT_OF_MEMORY when descriptors run out.
  PrivateDirectory();
  ~PrivateDirectory();
  PrivateDirectory(const PrivateDirectory&) = delete;
  PrivateDirectory& operator=(const PrivateDirectory&) = delete;

  const std::string& path() const { return path_; }

 private:
  bool make_in(const std::string& base, int& error);

  std::string path_;
  int descriptor_ = -1;  // holds the lock
  int64_t maker_ = 0;
};

}  // namespace distag
