#include "folder.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <system_error>

namespace distag_tool {

Folder::Folder(const std::string& name) {
  for (const char* base : {std::getenv("XDG_RUNTIME_DIR"), std::getenv("TMPDIR"), const_cast<char*>("/tmp")}) {
    if (base == nullptr || base[0] != '/') continue;
    std::string path = std::string(base) + "/" + name + ".XXXXXX";
    if (mkdtemp(path.data()) == nullptr) continue;
    path_ = path;
    return;
  }
  throw std::runtime_error(std::string("no folder can be made in XDG_RUNTIME_DIR, TMPDIR or /tmp: ") +
                           std::strerror(errno) + "; set TMPDIR to one that you can write to");
}

Folder::~Folder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace distag_tool
