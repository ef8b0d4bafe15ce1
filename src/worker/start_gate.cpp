#include "worker/start_gate.h"

#include "base/each_step.h"

namespace distag {

namespace {

constexpr size_t kMostMessages = 65536;
constexpr Nanos kLeadAgain = 100 * kMillisecond;  // after a shortage of memory

}  // namespace

void StartGate::pass(Task event) {
  assert_on_loop(loop_);
  if (is_open_) return event();
  hold({[event = std::move(event)]() mutable {
          event();
          return true;
        },
        0, false});
}

void StartGate::hold(Held held) {
  if (retry_ == nullptr) retry_ = std::make_shared<Retry>();
  held_.push_back(std::move(held));
}

bool StartGate::hold_message(UniqueFunction<bool()> lead, size_t bytes, size_t most_bytes) {
  assert_on_loop(loop_);
  if (messages_ >= kMostMessages || bytes > most_bytes - bytes_) return false;
  hold({std::move(lead), bytes, true});
  ++messages_;
  bytes_ += bytes;
  return true;
}

// An event may close the gate. An event that throws counts as done, and those behind it have their turn.
void StartGate::let_through() {
  const std::shared_ptr<Retry> retry = retry_;
  EachStep each;
  while (!held_.empty()) {
    std::list<Held> first;
    first.splice(first.begin(), held_, held_.begin());
    Held& held = first.front();
    bool is_through = true;
    each([&held, &is_through] { is_through = held.event(); });
    if (retry->is_over) break;
    if (is_through) {
      bytes_ -= held.bytes;
      messages_ -= held.is_message ? 1 : 0;
      continue;
    }
    held_.splice(held_.begin(), first);
    loop_.start_timer(retry->place, loop_.now() + kLeadAgain, [this, retry] {
      if (!retry->is_over) let_through();
    });
    break;
  }
  is_open_ = held_.empty() && (retry == nullptr || !retry->is_over);
  each.check();
}

void StartGate::close() noexcept {
  if (retry_ != nullptr) retry_->is_over = true;
  retry_.reset();
  is_open_ = false;
  held_.clear();
  messages_ = 0;
  bytes_ = 0;
  refused_.clear();
}

}  // namespace distag
