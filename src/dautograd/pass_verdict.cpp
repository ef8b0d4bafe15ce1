#include "dautograd/pass_verdict.h"

#include <utility>

#include "base/each_step.h"

namespace distag {
namespace {

constexpr Nanos kTellAgain = 100 * kMillisecond;  // after a shortage of memory

}  // namespace

void PassVerdict::tell(bool commits, const Error& error, const std::shared_ptr<PassInitiator>& holder) {
  assert_on_loop(shared_.environment.loop);
  EachStep each;
  each([this, commits, &error] { tell_those_left(commits, error); });
  if (!each.has_failed()) return;
  EachStep text;
  text([this, &error] { error_ = error; });
  if (text.has_failed()) error_ = Error(Status::kOutOfMemory, "no memory");
  Loop& loop = shared_.environment.loop;
  loop.start_timer(again_, loop.now() + kTellAgain, [this, alive = shared_.weak_from_this(), holder, commits] {
    const auto shared = alive.lock();
    const Error why = std::move(error_);
    if (shared != nullptr && shared->passes != nullptr) tell(commits, why, holder);
  });
}

void PassVerdict::tell_those_left(bool commits, const Error& error) {
  const auto tell_one = [this, commits, &error](Incarnation worker) {
    if (worker == shared_.self.incarnation || shared_.is_gone(worker)) return;
    shared_.tell(worker, wire::Verdict{context_, pass_, commits, error});
  };
  while (!participants_.all().empty()) {
    const Incarnation worker = participants_.all().begin()->first;
    tell_one(worker);
    participants_.forget(worker);
  }
  while (!participants_.joined().empty()) {
    const Incarnation worker = *participants_.joined().begin();
    tell_one(worker);
    participants_.forget(worker);
  }
}

}  // namespace distag
