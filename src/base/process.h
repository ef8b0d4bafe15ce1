#pragma once

#include <cstdint>
#include <string>

namespace distag {

// Changes in a forked child, where threads, sockets and locks of the parent do not work any more: who keeps the number
// it was made under can tell that it belongs to the parent. Never 0. Any thread.
uint32_t process_generation();

// The number that the system gave this process.
int64_t process_id();

// The machine this process runs on, since its start: processes with the same text are near each other.
std::string host_id();

}  // namespace distag
