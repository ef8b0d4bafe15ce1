#include "faults/handshake.h"

#include <iterator>

namespace distag::faults {
namespace {

// The size of the name of a command, and the name; of the steps behind the greeting.
constexpr std::string_view kCommands[] = {"\5HELLO", "\7WELCOME", "\10INITIATE", "\5READY"};

// The first bytes of a connection: the signature of ZMTP, which libzmq sends before the rest of its greeting.
bool begins_connection(std::string_view bytes) {
  return bytes.size() >= 10 && bytes[0] == '\xff' && bytes[9] == '\x7f';
}

// In the order in which they come in the bytes.
template <typename Take>
void for_each_step(std::string_view bytes, const Take& take) {
  if (begins_connection(bytes)) take(kHandshakeSteps[0]);
  for (size_t i = 0; i < std::size(kCommands); ++i) {
    if (bytes.find(kCommands[i]) != std::string_view::npos) take(kHandshakeSteps[i + 1]);
  }
}

}  // namespace

bool Handshakes::lose(int fd, Way way, std::string_view bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (begins_connection(bytes)) lost_.erase({fd, way});
  bool is_lost = lost_.contains({fd, way});
  for_each_step(bytes, [&](const char* step) { is_lost = fault_points().loses(step, way) || is_lost; });
  if (is_lost) lost_.emplace(fd, way);
  return is_lost;
}

void Handshakes::reach(Way way, std::string_view bytes) {
  for_each_step(bytes, [way](const char* step) { fault_points().reach(step, way); });
}

void Handshakes::forget(int closed_fd) {
  const std::lock_guard<std::mutex> lock(mutex_);
  lost_.erase({closed_fd, Way::kSent});
  lost_.erase({closed_fd, Way::kArrived});
}

Handshakes& handshakes() {
  static Handshakes all;
  return all;
}

}  // namespace distag::faults
