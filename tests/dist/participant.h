#pragma once

#include <distag.h>

#include <mutex>
#include <string>
#include <vector>

#include "dist/handles.h"

namespace distag_test {

// What one process of a test group is. Names are "A", "B", "C" ... by rank.
struct ParticipantOptions {
  int rank = 0;
  int world_size = 0;      // 0: rank, size and rendezvous come from the environment
  std::string rendezvous;  // empty: env://
  unsigned thread_count = 0;
  int64_t lease_ns = 0;
  std::string job;
};

// A worker with the functions that the tests call; the same in every process of a group. Each remembers the context of
// the last function that ran here, so that "info" can be asked without touching it.
//   add(a, b)                    a + b, recorded in the context of the call
//   relay(to, function, ...)     what `function` of `to` answers to the other arguments, in the same context
//   info()                       [send, recv, known ranks...] of the remembered context; [-1] without one
//   noop()                       null
//   forget()                     drops the remembered context
//   contexts()                   how many contexts the worker has
//   descend(depth, other)        depth, counted by calling descend(depth - 1) of `other`, which calls back
//   die()                        the process is killed
//   deadly(x)                    x, and the process is killed in its backward
//   silence()                    never answers
class Participant {
 public:
  explicit Participant(const ParticipantOptions& options);
  ~Participant();  // forgets and releases; shut down first

  distag_worker* worker() { return worker_.get(); }
  distag_status start(int64_t timeout_ns, distag_error* err);
  // Forgets, then shuts down.
  distag_status shutdown(int64_t timeout_ns, distag_value** out_report, distag_error* err);

  void remember(distag_context* context);
  distag_status describe_context(distag_value** out_info, distag_error* err);
  void keep(distag_reply* reply);

 private:
  void register_all(distag_error* err);

  std::mutex mutex_;
  Worker worker_;
  Context context_;
  std::vector<Reply> replies_;
  distag_error create_error_ = DISTAG_ERROR_INIT;
};

// The main program of the other processes: serves until the group shuts down. 0 when all went well.
int run_participant(const ParticipantOptions& options);

}  // namespace distag_test
