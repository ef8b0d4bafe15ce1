#include "capi/taken_calls.h"

namespace distag::capi {

distag_invocation* TakenCalls::add(distag_worker& worker, const Event& event) {
  auto lent = std::make_unique<Lent<distag_invocation>>();
  distag_invocation* const taken =
      lent->get([&worker, &event] { return new distag_invocation(worker, event.call, event.reply); });
  MutexLock lock(mutex_);
  calls_.emplace(taken, std::move(lent));
  return taken;
}

void TakenCalls::end(distag_invocation& taken) {
  std::unique_ptr<Lent<distag_invocation>> ended;
  MutexLock lock(mutex_);
  const auto found = calls_.find(&taken);
  if (found == calls_.end()) return;
  ended = std::move(found->second);
  calls_.erase(found);
}

void TakenCalls::end_all() {
  Calls ended;
  MutexLock lock(mutex_);
  ended.swap(calls_);
}

}  // namespace distag::capi
