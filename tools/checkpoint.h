#pragma once

#include <string>

namespace distag_tool {

// Prints the contents of a checkpoint: a line for each tensor, with dtype, shape and bytes.
int show_checkpoint(const std::string& directory);
// Reads every element of a checkpoint, in pieces. Gives 0, or throws naming the damaged file and entry. Names from the
// files are printed with their control characters escaped.
int check_checkpoint(const std::string& directory);
// Writes all tensors of a checkpoint, each whole, to one safetensors file, with memory for the largest of them. Other
// values become texts in the file's "__metadata__". Gives 0, or throws, and then the file is as it was before.
int merge_checkpoint(const std::string& directory, const std::string& file);

}  // namespace distag_tool
