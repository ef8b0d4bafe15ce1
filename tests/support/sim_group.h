#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "support/sim_lanes.h"
#include "support/sim_network.h"
#include "support/sim_scheduler.h"
#include "worker/worker.h"

namespace distag::sim {

struct SimGroupOptions {
  int32_t size = 2;
  SimFaults faults;
  Nanos lease = 5 * kSecond;
  Nanos call_timeout = 60 * kSecond;
  size_t max_message_bytes = size_t{1} << 30;
  // None: the default; for one seed in four passes search, and for another one in four records are missing.
  std::optional<LineageLimits> lineage = std::nullopt;
  size_t max_sends = WorkerOptions{}.max_sends;
  uint64_t max_early = WorkerOptions{}.max_early;
  uint64_t max_in_flight = 0;  // 0: the default, and for every third seed so small that requests wait
  std::function<size_t(int32_t rank)> max_message_bytes_of = nullptr;  // by rank, in place of the size above
  LogLevel log_level = LogLevel::kWarning;
  // The rendezvous: a stand-in that never fails, or, by its uri, the service of rank 0 over the network.
  std::string rendezvous = "inproc://simulation";
  bool is_open = false;  // an open world, in which start() lets all workers join
  std::function<void(int32_t rank, const MemberRecord& member)> on_member = nullptr;  // the news that each gets
  std::function<std::shared_ptr<FrameMemory>(int32_t rank)> memory = nullptr;         // for payload; none: their own
};

inline constexpr LineageLimits kNoLineage{0, 0, 0, 0};

// Whole workers "w0", "w1", ... in one thread, on a scheduler and a network of their own.
class SimWorkerGroup {
 public:
  SimWorkerGroup(uint64_t seed, SimGroupOptions options);
  ~SimWorkerGroup();  // shuts workers down with timeout 0, whatever state they are in
  SimWorkerGroup(const SimWorkerGroup&) = delete;
  SimWorkerGroup& operator=(const SimWorkerGroup&) = delete;

  SimScheduler& scheduler() { return *scheduler_; }
  SimNetwork& network() { return *network_; }
  int32_t size() const { return options_.size; }
  Worker& worker(int32_t rank);
  SimLoop& loop(int32_t rank);
  size_t tasks_running(int32_t rank);  // on the pool of distag's own work
  size_t tasks_begun(int32_t rank);    // there, since the beginning
  SimMemory& memory(int32_t rank);     // of its pools; that of its loop is never short, unless this says so:
  void share_memory_with_loop(int32_t rank);
  static std::string name(int32_t rank) { return "w" + std::to_string(rank); }

  void start(Nanos timeout = 60 * kSecond);
  std::vector<ShutdownReport> shutdown(Nanos timeout = 60 * kSecond);

  // Calls and waits, on the main thread, a host thread or in a function. Throws the error of the call.
  Value call(int32_t from, CallRequest request);
  Value call(int32_t from, int32_t to, const std::string& function, Values args, const Id& context = {});

  // SIGKILL, SIGSTOP and SIGCONT; a suspended machine's clock stands as well. A killed worker stays dead, until a new
  // process takes its name and rank: restart() gives its worker, which is not started yet.
  void kill(int32_t rank);
  Worker& restart(int32_t rank);
  void freeze(int32_t rank);
  void suspend(int32_t rank);
  void thaw(int32_t rank);
  // The clock of its host: how much it gains for each second of the simulation, and how far it jumps ahead.
  void run_clock_at(int32_t rank, double rate);
  void jump_clock(int32_t rank, Nanos ahead);
  bool is_killed(int32_t rank) const;

  // The records that the workers logged, a line each: "w1: ...".
  const std::vector<std::string>& log_lines() const { return log_lines_; }

 private:
  struct Node;
  class Meeting;
  class MeetingPoint;

  std::unique_ptr<Node> make_node(int32_t rank);
  std::unique_ptr<Rendezvous> make_meeting_point(Node& node, const std::string& uri, Transport& transport);
  void take_down(Node& node);

  const SimGroupOptions options_;
  std::unique_ptr<SimScheduler> scheduler_;
  std::unique_ptr<SimNetwork> network_;
  std::unique_ptr<Meeting> meeting_;
  std::vector<std::string> log_lines_;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::vector<std::unique_ptr<Node>> dead_;  // their places are taken by restarted workers
};

// Runs `body` for the seeds 1 to `count`, up to the first that fails, and prints the line that replays it.
// DISTAG_SIM_SEED=n runs that seed alone, DISTAG_SIM_COUNT=n another number of seeds, and DISTAG_SIM_FIRST=n begins
// with seed n. Under sanitizers fewer run, a tenth of many. Returns whether it was a sweep: at least the usual number
// has run, and none has failed. Counts over all seeds, such as how many runs were cut short, are checked only then.
bool for_each_seed(uint64_t count, const std::function<void(uint64_t seed)>& body);

}  // namespace distag::sim
