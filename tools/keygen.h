#pragma once

#include <string>

namespace distag_tool {

// Prints a new group key. Gives 0, or 1 when the system gives no random numbers or takes no output.
int print_key();

// Makes a key for the worker of that name: its secret in the new file NAME.key of the folder, for this user alone; and
// prints its line for a list of keys. Gives 0, or 1 for an invalid name or if the line cannot be printed. Throws
// std::runtime_error when the file exists already or cannot be made: then nothing is left.
int make_worker_key(const std::string& name, const std::string& folder);

}  // namespace distag_tool
