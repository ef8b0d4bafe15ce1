#pragma once

#include <string>
#include <vector>

namespace distag_tool {

using Table = std::vector<std::vector<std::string>>;  // rows of cells, the head first

// To standard output, its columns as wide as they need to be.
void print_table(const Table& table);

}  // namespace distag_tool
