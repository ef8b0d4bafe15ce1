#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "base/mutex.h"
#include "rpc/answer.h"
#include "rpc/call_stage.h"

namespace distag {

// The reply that a function gives while it runs. Any thread.
//
//   none     -> set        set()
//   none     -> deferred   defer()
//   deferred -> dropped    drop(): the deferred reply was destroyed unfinished
//   any      -> failed     note_failed(): the function threw
//
// A function replies once, and not after it has returned.
class FunctionReply {
 public:
  enum class Kind : uint8_t { kNone, kSet, kDeferred, kDropped, kFailed };

  // Both belong to the call that has this as a member.
  FunctionReply(const std::string& function, CallStage& stage) : function_(function), stage_(stage) {}

  // Both throw INVALID_STATE if there is a reply already.
  void set(Answer answer) {
    MutexLock lock(mutex_);
    check_none("return");
    kind_ = Kind::kSet;
    answer_ = std::move(answer);
  }
  template <typename Make>
  auto defer(Make make) {
    MutexLock lock(mutex_);
    check_none("defer");
    auto deferred = make();
    kind_ = Kind::kDeferred;
    return deferred;
  }
  // Returns false if the function still runs: it may fail by itself, and checks for the drop when it returns.
  bool drop() {
    MutexLock lock(mutex_);
    kind_ = Kind::kDropped;
    return !stage_.is_running();
  }
  // The function has failed by itself, and its failure is about to be the answer.
  void note_failed() {
    MutexLock lock(mutex_);
    kind_ = Kind::kFailed;
  }
  bool has_failed() const {
    MutexLock lock(mutex_);
    return kind_ == Kind::kFailed;
  }
  // The function has returned.
  Kind take(Answer& answer) {
    MutexLock lock(mutex_);
    stage_.note_returned();
    answer = std::move(answer_);
    return kind_;
  }

 private:
  void check_none(const char* what) const REQUIRES(mutex_) {
    if (kind_ == Kind::kNone && !stage_.has_returned()) return;
    const char* state = kind_ == Kind::kSet ? "was set" : kind_ == Kind::kDeferred ? "was deferred" : "went out";
    fail(Status::kInvalidState, "{}: the answer of call \"{}\" {} before", what, function_, state);
  }

  const std::string& function_;
  CallStage& stage_;
  mutable Mutex mutex_;
  Kind kind_ GUARDED_BY(mutex_) = Kind::kNone;
  Answer answer_ GUARDED_BY(mutex_);
};

}  // namespace distag
