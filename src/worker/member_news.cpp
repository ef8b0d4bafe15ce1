#include "worker/member_news.h"

#include <utility>

#include "base/mutex.h"

namespace distag {
namespace {

constexpr Nanos kPostAgain = 100 * kMillisecond;  // after a shortage of memory or threads

}  // namespace

void MemberNews::post(MemberRecord record) {
  assert_on_loop(loop_);
  bool is_first = false;
  {
    MutexLock lock(mutex_);
    is_first = waiting_.empty();
    waiting_.push_back(std::move(record));
  }
  if (is_first) post_step();
}

// Records that come meanwhile wait for this step. Without memory for its task, the step is posted later.
void MemberNews::post_step() {
  assert_on_loop(loop_);
  try {
    functions_.post_or_drop([self = shared_from_this()] { self->step(); });
  } catch (...) {
    post_step_later();
  }
}

void MemberNews::post_step_later() noexcept {
  loop_.start_timer(again_, loop_.now() + kPostAgain, [self = shared_from_this()] { self->post_step(); });
}

// A task for each record, so that other host code runs in between.
void MemberNews::step() {
  try {
    if (tell_first()) functions_.post_or_drop([self = shared_from_this()] { self->step(); });
  } catch (...) {
    loop_.post_or_drop(again_, [self = shared_from_this()] { self->post_step_later(); });
  }
}

// Whether another record waits behind the first. A record that could not be told stays the first.
bool MemberNews::tell_first() {
  const MemberRecord* first = nullptr;
  {
    MutexLock lock(mutex_);
    first = &waiting_.front();
  }
  if (!run_([this, first] { tell_(*first); })) return false;
  MutexLock lock(mutex_);
  waiting_.pop_front();
  return !waiting_.empty();
}

}  // namespace distag
