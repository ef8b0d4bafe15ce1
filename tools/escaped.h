#pragma once

#include <string>
#include <string_view>

namespace distag_tool {

// A text of others on one line of a terminal: control characters are told by their numbers, and each of `also` has a
// backslash before it.
std::string escaped(std::string_view text, std::string_view also = "\"\\");

}  // namespace distag_tool
