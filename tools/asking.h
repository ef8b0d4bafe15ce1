#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace distag_tool {

// A worker of this user on this machine, by its socket. What it answers is made by somebody else: nothing is believed.
struct LocalWorker {
  std::string path;
  std::string id;         // its incarnation in hexadecimal digits
  int64_t process = 0;    // as the system tells it, else as the name of the socket has it
  nlohmann::json answer;  // an object, or null
  std::string silent;     // why there is none
  bool is_gone = false;   // it has left its socket, or just closed it
};

// By their sockets, ordered by process.
std::vector<LocalWorker> find_workers();

// Asks all at once. Those that have not answered after `timeout_ms` are silent. Leaves out those that are gone, and
// removes what they left.
void ask(std::vector<LocalWorker>& workers, const std::string& question, int timeout_ms);

}  // namespace distag_tool
