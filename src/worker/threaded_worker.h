#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/fd_loop.h"
#include "base/host_executor.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/pool.h"
#include "worker/keys.h"
#include "worker/one_by_one.h"
#include "worker/peer_keys.h"
#include "worker/socket_engines.h"
#include "worker/worker.h"

namespace distag {

class CurlClient;
class PmixBoard;

struct ThreadedOptions {
  WorkerOptions worker;
  SecurityOptions security;
  bool host_executor = false;  // functions, callbacks and deleters run in HostExecutor::poll
  bool no_lane = false;        // no shared memory with processes of this machine
  SocketEngineKind socket_engine = SocketEngineKind::kDefault;
  size_t thread_count = 0;  // of the pool; 0: one per core
  LogLevel log_level = LogLevel::kWarning;
  std::function<void(LogLevel, const std::string&)> on_log;  // host code, run on the functions executor; may be empty
  std::function<void(const MemberRecord&)> on_member;        // likewise
  ThreadHooks hooks;                                         // host code, run on the thread itself
  FdLoop::Watchdog loop_watchdog;                            // for tests
  std::shared_ptr<FrameMemory> memory;                       // for large payloads that arrive; nullptr: distag's own
};

// A worker with its threads and sockets: one loop thread, a pool, and with the host executor a queue for host code.
// Starts no thread before start(). Thread-safe.
class ThreadedWorker {
 public:
  explicit ThreadedWorker(ThreadedOptions options);
  ~ThreadedWorker();  // shuts down with timeout 0 and joins; not on a thread of its own

  Worker& worker() { return *worker_; }
  Executor& functions() const;
  Reserve* reserve() { return reserve_.get(); }
  HostExecutor* host() { return host_.get(); }  // nullptr with the pool executor
  size_t thread_count() const;                  // of the pool

  std::shared_ptr<Future<Value>> start(Nanos timeout);
  // Leaves the group. Complete: nothing new starts, but threads still run; follow with finish().
  std::shared_ptr<Future<ShutdownReport>> begin_shutdown(Nanos timeout);
  // Joins all threads, once no function runs. False when some still run after `timeout`: call again. One thread at a
  // time; others wait for their turn, at most for their timeout. Not on a thread of the worker.
  bool finish(Nanos timeout);
  bool is_finished() const { return end_.is_done(); }

  // From now on only these workers may connect, each with that key: a peer that is connected with another key is lost.
  // Throws UNSUPPORTED for a worker without a key of its own, INVALID_ARGUMENT for a key with two names.
  void set_peers(KeyRing::Keys keys);
  // Whether each worker has a key of its own.
  std::string own_name() const;
  bool has_worker_keys() const;

 private:
  std::unique_ptr<Transport> make_transport();
  std::unique_ptr<Rendezvous> make_meeting_point(const std::string& uri, Transport& transport);
  Security load_keys();
  ThreadHooks hooks_for(bool runs_host_code) const;
  bool take_down(Nanos deadline, Nanos latest);
  Nanos end_http(Nanos latest);
  void run_what_waits(Nanos deadline);
  std::shared_ptr<void> open_server(Incarnation incarnation);

  const ThreadedOptions options_;
  const std::shared_ptr<Reserve> reserve_;  // for all threads of the worker
  // Both are made before any thread starts: the hooks read them on their threads.
  std::unique_ptr<HostExecutor> host_;
  std::unique_ptr<Pool> pool_;
  std::unique_ptr<Pool> decoder_;  // one thread, started by the first message that needs it
  std::unique_ptr<FdLoop> loop_;
  std::unique_ptr<PmixBoard> board_;  // for pmix://; used like http_
  std::unique_ptr<CurlClient> http_;  // for a rendezvous that needs it; used on the loop, then after its end
  std::unique_ptr<Random> random_;
  PeerKeys peer_keys_;
  std::unique_ptr<Log> log_;
  std::unique_ptr<Worker> worker_;

  Mutex mutex_;
  bool loop_runs_ GUARDED_BY(mutex_) = false;
  bool is_ending_ GUARDED_BY(mutex_) = false;  // cannot be started any more
  OneByOne end_;                               // for the threads
};

}  // namespace distag
