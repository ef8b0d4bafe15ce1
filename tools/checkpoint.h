#pragma once

#include <string>

namespace distag_tool {

// Prints what a checkpoint holds: a line for each tensor, with dtype, shape and bytes.
int show_checkpoint(const std::string& directory);
// Reads every element of it. 0, or throws naming the file and the entry that is damaged.
int check_checkpoint(const std::string& directory);

}  // namespace distag_tool
