#pragma once

#include <distag.h>

#include <condition_variable>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "processes/handles.h"

namespace distag::testing {

// A process of a test group. Names are "A", "B", ... "Z", "P26", "P27", ... by rank.
struct ParticipantOptions {
  int rank = 0;
  int world_size = 0;      // 0: rank, size and rendezvous come from the environment; -1: an open world
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
//   started()                    null, and counts who says so: each process of an open world once its start is done
//   leave()                      null, and a process of an open world shuts down
//   call_all()                   how many living members answered a noop() of this one, all called at once
class Participant {
 public:
  static std::string name_of(int rank);

  explicit Participant(const ParticipantOptions& options);
  ~Participant();  // forgets and releases; shut down first

  distag_worker* worker() { return worker_.get(); }
  distag_status start(int64_t timeout_ns, distag_error* err);
  // Forgets, then shuts down.
  distag_status shutdown(int64_t timeout_ns, distag_value** out_report, distag_error* err);

  void remember(distag_context* context);
  distag_status describe_context(distag_value** out_info, distag_error* err);
  void keep(distag_reply* reply);

  // Until it has been told `times` times that a worker of that name is alive. False after a while.
  bool wait_until_seen(const std::string& name, int times);
  void note_start();
  bool wait_until_started(int others);
  void release();
  void wait_until_released();

 private:
  static void note_member(void* user_data, distag_worker* worker, const distag_member* member);
  void register_all(distag_error* err);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, int> seen_;
  int starts_ = 0;
  bool is_released_ = false;
  Worker worker_;
  Context context_;
  std::vector<Reply> replies_;
  distag_error create_error_ = DISTAG_ERROR_INIT;
};

// The main program of the other processes: serves until the group shuts down, in an open world until it is told to
// leave. 0 when all went well.
int run_participant(const ParticipantOptions& options);

}  // namespace distag::testing
