#pragma once

#include <map>
#include <memory>

#include "base/mutex.h"
#include "capi/invocation.h"
#include "worker/event_queue.h"

namespace distag::capi {

// The calls that were taken and are not finished. Their handles are the takers', and end with the host's last reference
// to the worker; not with the worker, since what they lend (contexts, references) may hold the worker. Any thread: the
// mutex guards the lives of handles.
class TakenCalls {
 public:
  distag_invocation* add(distag_worker& worker, const Event& event);
  void end(distag_invocation& taken);
  void end_all();

 private:
  using Calls = std::map<distag_invocation*, std::unique_ptr<Lent<distag_invocation>>>;

  Mutex mutex_;
  Calls calls_ GUARDED_BY(mutex_);
};

}  // namespace distag::capi
