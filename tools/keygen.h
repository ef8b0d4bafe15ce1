#pragma once

namespace distag_tool {

// Prints a new group key. 0, or 1 when the system gives no random numbers.
int print_key();

}  // namespace distag_tool
