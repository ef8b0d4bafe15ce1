#include "worker/start_gate.h"

namespace distag {

namespace {

constexpr size_t kMostMessages = 65536;
constexpr size_t kMostStrangers = 4096;
constexpr Nanos kLeadAgain = 100 * kMillisecond;  // after a shortage of memory

}  // namespace

void StartGate::pass(Task event) {
  assert_on_loop(loop_);
  if (is_open_) return event();
  hold([event = std::move(event)]() mutable {
    event();
    return true;
  });
}

void StartGate::hold(UniqueFunction<bool()> event) {
  if (retry_ == nullptr) retry_ = std::make_shared<Retry>();
  held_.push_back(std::move(event));
}

bool StartGate::hold_message(UniqueFunction<bool()> lead, size_t bytes, size_t most_bytes) {
  assert_on_loop(loop_);
  if (messages_ >= kMostMessages || bytes > most_bytes - bytes_) return false;
  hold(std::move(lead));
  ++messages_;
  bytes_ += bytes;
  return true;
}

bool StartGate::admit_stranger() {
  assert_on_loop(loop_);
  return strangers_++ < kMostStrangers;
}

// An event may close the gate.
void StartGate::let_through() {
  const std::shared_ptr<Retry> retry = retry_;
  while (!held_.empty()) {
    std::list<UniqueFunction<bool()>> first;
    first.splice(first.begin(), held_, held_.begin());
    const bool is_through = first.front()();
    if (retry->is_over) return;
    if (is_through) continue;
    held_.splice(held_.begin(), first);
    loop_.start_timer(retry->place, loop_.now() + kLeadAgain, [this, retry] {
      if (!retry->is_over) let_through();
    });
    return;
  }
  is_open_ = true;
}

void StartGate::close() noexcept {
  if (retry_ != nullptr) retry_->is_over = true;
  retry_.reset();
  is_open_ = false;
  held_.clear();
  messages_ = 0;
  bytes_ = 0;
  strangers_ = 0;
  refused_.clear();
}

}  // namespace distag
