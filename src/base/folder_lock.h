#pragma once

#include <memory>
#include <string>

namespace distag {

// An exclusive lock on a folder. The lock lies on the folder itself, without a file, and the system ends it with the
// object or with the process; a forked child does not have it. Objects exclude each other within one process, too. Any
// thread.
class FolderLock {
 public:
  // nullptr: another object has it. Throws INVALID_STATE naming the path, OUT_OF_MEMORY where descriptors run out.
  static std::unique_ptr<FolderLock> try_take(const std::string& path);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  // False where the file system has no locks, or may have them for this machine alone, as NFS does for folders.
  bool keeps_others_out() const { return keeps_others_out_; }

 private:
  FolderLock(int descriptor, bool keeps_others_out) : descriptor_(descriptor), keeps_others_out_(keeps_others_out) {}

  const int descriptor_;
  const bool keeps_others_out_;
};

}  // namespace distag
