#pragma once

#include <deque>
#include <functional>
#include <memory>

#include "base/executor.h"
#include "base/loop.h"
#include "base/mutex.h"
#include "group/membership.h"

namespace distag {

// Tells the host about members, one record at a time and in order; none after the shutdown. Shared with the task that
// it has posted.
class MemberNews : public std::enable_shared_from_this<MemberNews> {
 public:
  using Tell = std::function<void(const MemberRecord&)>;
  // Runs host code; false: no host code runs any more.
  using RunHostCode = std::function<bool(const std::function<void()>& code)>;

  MemberNews(Loop& loop, Executor& functions, RunHostCode run, Tell tell)
      : loop_(loop), functions_(functions), run_(std::move(run)), tell_(std::move(tell)) {}

  bool is_wanted() const { return tell_ != nullptr; }
  // On the loop. Throws bad_alloc if there is no room for the record.
  void post(MemberRecord record);

 private:
  void post_step();
  void post_step_later() noexcept;
  void step();
  bool tell_first();

  Loop& loop_;
  Executor& functions_;
  const RunHostCode run_;
  const Tell tell_;
  TaskPlace again_;  // while a step could not be posted
  Mutex mutex_;
  std::deque<MemberRecord> waiting_ GUARDED_BY(mutex_);  // the first one also while it is told
};

}  // namespace distag
