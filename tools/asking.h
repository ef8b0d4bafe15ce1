#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace distag_tool {

// A worker of this user on this machine, by its socket. Another program may have made the answer: nothing is trusted.
struct LocalWorker {
  std::string path;
  std::string id;         // its incarnation in hexadecimal digits
  int64_t process = 0;    // according to the system, else to the name of the socket
  nlohmann::json answer;  // an object, or null
  std::string silent;     // why there is no answer
  bool is_gone = false;   // its socket is gone, or was just closed
};

// Finds workers by their sockets, ordered by process.
std::vector<LocalWorker> find_workers();

// Asks all workers at once. Workers that have not answered after `timeout_ms` are silent. Leaves out workers that are
// gone, and removes their sockets.
void ask(std::vector<LocalWorker>& workers, const std::string& question, int timeout_ms);

}  // namespace distag_tool
