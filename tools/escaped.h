#pragma once

#include <string>
#include <string_view>

namespace distag_tool {

// A foreign text on one line of a terminal: control characters are printed as their numbers, and each character of
// `also` gets a backslash before it.
std::string escaped(std::string_view text, std::string_view also = "\"\\");

}  // namespace distag_tool
