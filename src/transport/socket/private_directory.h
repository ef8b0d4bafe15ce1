#pragma once

#include <cstdint>
#include <string>

namespace distag {

// A directory that only this user can enter, for ipc endpoints. It lies below the first of XDG_RUNTIME_DIR, TMPDIR and
// /tmp that accepts it with a path short enough for sockets, and is named "distag." and six characters. Its maker holds
// a lock on it (flock), which ends with the process. The destructor removes it with all its sockets. A killed process
// leaves its directory; the next maker there removes directories without a holder.
class PrivateDirectory {
 public:
  // Throws INVALID_STATE when none of the three accepts a directory, OUT_OF_MEMORY when descriptors run out.
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
