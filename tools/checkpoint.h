#pragma once

#include <string>

namespace distag_tool {

// Prints what a checkpoint holds: a line for each tensor, with dtype, shape and bytes.
int show_checkpoint(const std::string& directory);
// Reads every element of it, in pieces. 0, or throws naming the file and the entry that is damaged. Names of others are
// printed with their control characters escaped.
int check_checkpoint(const std::string& directory);
// Writes its tensors, each whole, to one safetensors file, in memory for the largest of them. What is no tensor becomes
// a text of the file's "__metadata__". 0, or throws; the file is there then as it was before.
int merge_checkpoint(const std::string& directory, const std::string& file);

}  // namespace distag_tool
