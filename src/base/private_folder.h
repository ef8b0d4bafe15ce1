#pragma once

#include <string>

namespace distag {

// Makes a folder that this user alone can enter (0700). Without one there is no folder; the reason is in errno.
bool make_private_folder(const std::string& path);
// The same of one that was made just now with these rights, of which the process's umask may have taken some. True also
// where another process has removed it meanwhile.
bool keep_private_folder(const std::string& path);

}  // namespace distag
