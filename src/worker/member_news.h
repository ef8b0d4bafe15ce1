#pragma once

#include <deque>
#include <functional>
#include <memory>

#include "base/executor.h"
#include "base/mutex.h"
#include "rpc/rpc.h"

namespace distag {

// Tells the host of members, one record at a time and in order; none after the shutdown. Shared with the task it has
// posted.
class MemberNews : public std::enable_shared_from_this<MemberNews> {
 public:
  using Tell = std::function<void(const MemberRecord&)>;

  MemberNews(Executor& functions, Rpc& rpc, Tell tell) : functions_(functions), rpc_(rpc), tell_(std::move(tell)) {}

  bool is_wanted() const { return tell_ != nullptr; }
  void post(MemberRecord record);  // on the loop

 private:
  void post_step();
  void step();

  Executor& functions_;
  Rpc& rpc_;
  const Tell tell_;
  Mutex mutex_;
  std::deque<MemberRecord> waiting_ GUARDED_BY(mutex_);  // the first one while it is told, too
};

}  // namespace distag
