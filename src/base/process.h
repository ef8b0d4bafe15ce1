#pragma once

#include <cstdint>
#include <string>

namespace distag {

// Changes in a forked child, where threads, sockets and locks of the parent do not work any more: an object that keeps
// the number it was made under can tell that it is the parent's. Never 0. Any thread.
uint32_t process_generation();

// The number that the system gave this process.
int64_t process_id();

// Names the machine this process runs on, and its boot: processes with the same text are on the same machine.
std::string host_id();

}  // namespace distag
