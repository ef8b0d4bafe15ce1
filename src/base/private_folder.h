#pragma once

#include <string>

namespace distag {

// Makes a folder that this user alone can enter (0700). False: there is no folder; the reason is in errno.
bool make_private_folder(const std::string& path);
// Restores these rights of a folder made just now, of which the process's umask may have taken some. True also if
// another process has removed the folder meanwhile.
bool keep_private_folder(const std::string& path);

}  // namespace distag
