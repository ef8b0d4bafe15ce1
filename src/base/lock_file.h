#pragma once

#include <cstdint>
#include <string>

namespace distag {

// A file whose bytes may be locked one by one, whether they exist or not. The system ends the locks with the object, or
// with the process that made them: a forked child does not have them. Objects exclude each other in one process, too.
class LockFile {
 public:
  LockFile() = default;
  ~LockFile() { close(); }
  LockFile(const LockFile&) = delete;
  LockFile& operator=(const LockFile&) = delete;

  // Makes the file if need be. Throws INVALID_STATE when that fails.
  void open(const std::string& path);
  void close();  // ends its locks
  bool is_open() const { return descriptor_ >= 0; }
  // Whether the path still leads to the file that was opened.
  bool is_at_its_path() const;

  // False when another object has that byte. Throws INVALID_STATE where files cannot be locked.
  bool try_lock(uint64_t byte);
  void unlock(uint64_t byte);
  bool is_locked_by_another(uint64_t byte) const;

 private:
  int descriptor_ = -1;
  std::string path_;
};

}  // namespace distag
