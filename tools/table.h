#pragma once

#include <string>
#include <vector>

namespace distag_tool {

using Table = std::vector<std::vector<std::string>>;  // rows of cells, the head first

// Prints to standard output, with columns as wide as needed.
void print_table(const Table& table);

}  // namespace distag_tool
