#include "worker/member_news.h"

#include <utility>

#include "base/mutex.h"

namespace distag {

void MemberNews::post(MemberRecord record) {
  bool is_first = false;
  {
    MutexLock lock(mutex_);
    is_first = waiting_.empty();
    waiting_.push_back(std::move(record));
  }
  if (is_first) post_step();
}

void MemberNews::post_step() {
  functions_.post_or_drop([self = shared_from_this()] { self->step(); });
}

void MemberNews::step() {
  const MemberRecord* first = nullptr;
  {
    MutexLock lock(mutex_);
    first = &waiting_.front();
  }
  if (!rpc_.run_host_code("on_member", [this, first] { tell_(*first); })) return;
  bool is_last = false;
  {
    MutexLock lock(mutex_);
    waiting_.pop_front();
    is_last = waiting_.empty();
  }
  if (!is_last) post_step();
}

}  // namespace distag
