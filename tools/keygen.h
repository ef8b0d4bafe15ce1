#pragma once

#include <string>

namespace distag_tool {

// Prints a new group key. 0, or 1 when the system gives no random numbers or takes no output.
int print_key();

// Makes a key for the worker of that name: its secret in the new file NAME.key of the folder, for this user alone; and
// prints its line of a list of keys. 0, or 1 for another name or where the line cannot be printed. Throws
// std::runtime_error when there is such a file already or it cannot be made: then nothing is left.
int make_worker_key(const std::string& name, const std::string& folder);

}  // namespace distag_tool
