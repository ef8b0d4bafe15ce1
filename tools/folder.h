#pragma once

#include <string>

namespace distag_tool {

// A folder that only this user can enter, below XDG_RUNTIME_DIR, TMPDIR or /tmp, where the library makes its own, too.
class Folder {
 public:
  explicit Folder(const std::string& name);  // throws std::runtime_error when none of the three works
  ~Folder();                                 // removes it with all its contents
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace distag_tool
