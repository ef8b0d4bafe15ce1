#include "worker/start_gate.h"

namespace distag {

namespace {

constexpr size_t kMostMessages = 65536;
constexpr size_t kMostStrangers = 4096;

}  // namespace

void StartGate::pass(Task event) {
  if (is_open_) return event();
  events_.push_back(std::move(event));
}

bool StartGate::pass_message(Task event, size_t bytes, size_t most_bytes) {
  if (messages_ >= kMostMessages || bytes > most_bytes - bytes_) return false;
  events_.push_back(std::move(event));
  ++messages_;
  bytes_ += bytes;
  return true;
}

bool StartGate::admit_stranger() { return strangers_++ < kMostStrangers; }

}  // namespace distag
