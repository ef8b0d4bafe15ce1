#pragma once

#include <string>

namespace distag_tool {

// A folder that only this user can enter, below XDG_RUNTIME_DIR, TMPDIR or /tmp, where the library makes its own, too.
class Folder {
 public:
  explicit Folder(const std::string& name);  // throws std::runtime_error when none of the three takes one
  ~Folder();                                 // removes it with all that is in it
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace distag_tool
