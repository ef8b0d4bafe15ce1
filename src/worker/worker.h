#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "autograd/context.h"
#include "base/executor.h"
#include "base/log.h"
#include "base/pool.h"
#include "base/timings.h"
#include "coll/meshes.h"
#include "dautograd/dautograd.h"
#include "group/group.h"
#include "group/launchers.h"
#include "group/rendezvous.h"
#include "optim/optim.h"
#include "rpc/rpc.h"
#include "rref/rrefs.h"
#include "session/session.h"
#include "spmd/program_table.h"
#include "transport/transport.h"
#include "worker/report.h"

namespace distag {

class HostExecutor;

struct WorkerOptions {
  int32_t rank = -1;
  int32_t world_size = 0;  // 0: from env://; -1: an open world
  std::string name;        // empty: "worker<rank>", with the rank that the group gives if need be
  std::string rendezvous = "env://";
  std::string job = "default";
  std::string bind;       // empty: a private address of the transport
  std::string advertise;  // empty: as bound
  Nanos call_timeout = 60 * kSecond;
  Nanos lease = 5 * kSecond;
  size_t max_message_bytes = size_t{1} << 30;
  uint64_t max_in_flight = RpcConfig{}.max_in_flight;
  LineageLimits lineage = {};
  size_t max_sends = size_t{1} << 20;        // in one context
  uint64_t max_early = uint64_t{1} << 30;    // for one mesh
  std::vector<std::string> initiators = {};  // the only other workers whose passes this one takes part in; empty: all
};

struct WorkerStats {
  RpcStats rpc;
  DautogradStats dautograd;
  RrefStats rrefs;
  SessionStats session;
  RequestBytes requests;
  uint64_t callbacks_waiting = 0;
};

// Counters that only the loop knows.
struct LoopStats {
  SessionStats session;
  RequestBytes requests;
};

// The functions by which a worker learns its place in the group and its addresses.
struct PlaceTools {
  EnvironmentReader get_environment;  // of the process, for env://
  // Turns an address that the host gave into numbers; may take long, so it runs on `compute`. nullptr: addresses stay
  // as given.
  std::function<std::string(const std::string& address)> resolve_address = nullptr;
  // "tcp://10.0.0.2:0", the address of this machine from which that one is reached; empty: it is on this machine.
  // nullptr: all are on this machine.
  std::function<std::string(const std::string& address)> own_address_towards = nullptr;
  // The place of this process according to a launcher, by PMIx; may take long, so it runs on `compute`.
  std::function<PmixPlace()> ask_pmix = nullptr;
};

// The environment of a worker: threads and sockets in production, the scheduler in the simulator.
struct WorkerEnvironment {
  Loop& loop;
  Executor& functions;
  Executor& compute;
  Executor& decoder;  // decodes long messages; runs nothing else, so that no host code delays them
  Random& random;
  Log& log;
  // Made at the start, on the loop, as sockets belong there. Depends on the rendezvous: inproc:// is in-process.
  std::function<std::unique_ptr<Transport>(const std::string& rendezvous)> make_transport;
  std::function<std::unique_ptr<Rendezvous>(const std::string& uri, Transport& transport)> make_rendezvous;
  PlaceTools places;
  std::shared_ptr<FrameMemory> memory = nullptr;                 // for large payload that arrives; nullptr: our own
  std::function<void(const MemberRecord&)> on_member = nullptr;  // host code, run on `functions`, one at a time
  std::string host = {};         // the machine: members with equal texts are near each other
  HostExecutor* pump = nullptr;  // the same as `functions`, if a host polls it
  // Called on the loop, when the worker begins to look for its group under this incarnation: a server at which
  // processes of this machine can ask for its state, until its end. nullptr: no server.
  std::function<std::shared_ptr<void>(Incarnation)> make_server = nullptr;
  uint64_t process = 0;  // the id of this process, which peers that refuse this worker can name; 0: none
};

// The composition root: builds the layers, and the parts that pass messages and losses to them. Thread-safe.
class Worker {
 public:
  Worker(WorkerEnvironment environment, WorkerOptions options);
  ~Worker();  // only after shutdown has completed, or before start

  Group& group();
  Rpc& rpc();
  spmd::ProgramTable& programs();
  Rrefs& rrefs();
  Meshes& meshes();
  Dautograd& dautograd();
  optim::Optim& optim();
  Log& log();
  Loop& loop();
  const WorkerOptions& options() const;

  // After a failure, also a cancel, the worker can be started again. The value is null.
  std::shared_ptr<Future<Value>> start(Nanos timeout);
  std::shared_ptr<Future<ShutdownReport>> shutdown(Nanos timeout);      // the same outcome for every call
  const std::shared_ptr<Future<ShutdownReport>>& when_stopped() const;  // also by a failure of its loop; any thread
  // On the loop: one of its tasks threw, and may have left work undone. A start fails with the error; a started worker
  // leaves its group, operations that are open end with the error, and its report is not clean.
  void on_loop_failure(const Error& error) noexcept;
  // Any thread. This worker then takes the living members of these names for lost.
  void lose_members(std::vector<std::string> names, const Error& why);

  bool is_started() const;
  std::string name() const;    // empty as long as it depends on the rank
  int32_t rank() const;        // -1 before the start
  int32_t world_size() const;  // of an open world, its living members; 0 before the start, if need be
  // `session` is as it was at the shutdown and `requests` is 0; while started, fetch_loop_stats asks the loop.
  WorkerStats stats() const;
  const Timings& timings() const;  // any thread; lives as long as this
  std::shared_ptr<Future<LoopStats>> fetch_loop_stats();
  // The snapshot that reports are written from; the loop has to run.
  std::shared_ptr<Future<WorkerSnapshot>> fetch_snapshot();
  std::shared_ptr<Future<ContextSnapshot>> fetch_snapshot(const Id& context);
  // The worker's state, as members ask each other for it: in JSON, short, on the loop.
  std::string look() const;
  // The state of all members, each asked for as long as `timeout`; the loop has to run.
  std::shared_ptr<Future<std::string>> fetch_group_report(Nanos timeout);
  // The snapshot of a worker that is not started or shut down: its identity, and the group that it knew.
  WorkerSnapshot snapshot_at_rest() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace distag
