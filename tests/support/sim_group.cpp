#include "support/sim_group.h"

#include <array>
#include <utility>

#include "group/rank_table.h"
#include "group/rendezvous.h"

namespace distag::sim {
namespace {

SimGroupOptions with_budget(SimGroupOptions options, uint64_t seed) {
  if (options.max_in_flight == 0) options.max_in_flight = seed % 3 == 0 ? 16'000 : WorkerOptions{}.max_in_flight;
  if (options.lineage) return options;
  options.lineage = LineageLimits();
  const size_t few = 1 + seed / 4 % 4;
  if (seed % 4 == 2) options.lineage = kNoLineage;
  if (seed % 4 == 3) options.lineage = {few, 2 * few, 3 * few, 4 * few};
  return options;
}

}  // namespace

// Tells each worker that joins, after a delay of its own, who is in the group.
class SimWorkerGroup::Meeting {
 public:
  Meeting(SimScheduler& scheduler, SimNetwork& network, int32_t world_size)
      : scheduler_(scheduler), network_(network), rank_table_("simulation", "default", world_size) {}

  // A member that holds the name is dead: no test restarts a living worker.
  void join(SimLoop& loop, const JoinRequest& request, Rendezvous::Callback done) {
    const wire::Member member = to_member(request.self);
    if (const Peer* rival = rank_table_.find_rival(member)) rank_table_.remove(rival->incarnation);
    rank_table_.add(member);
    waiting_.push_back({&loop, std::move(done)});
    if (!rank_table_.has_met()) return;
    for (Waiting& one : waiting_) {
      const Nanos when = scheduler_.now() + scheduler_.between(0, network_.faults.max_delay);
      scheduler_.at(when, [target = one.loop, tell = std::move(one.done), members = rank_table_.members()] {
        target->post_or_drop([tell, members] { tell(Rendezvous::Outcome{members, Error(), true}); });
      });
    }
    waiting_.clear();
  }
  void remove(Incarnation incarnation) { rank_table_.remove(incarnation); }
  // The question and the answer take one delay together.
  void look_up(SimLoop& loop, Incarnation incarnation, Rendezvous::Answer answer) {
    const Nanos when = scheduler_.now() + scheduler_.between(0, network_.faults.max_delay);
    scheduler_.at(when, [this, &loop, incarnation, tell = std::move(answer)]() mutable {
      loop.post_or_drop([tell = std::move(tell), found = rank_table_.find(incarnation)]() mutable { tell(found); });
    });
  }

 private:
  struct Waiting {
    SimLoop* loop;
    Rendezvous::Callback done;
  };
  SimScheduler& scheduler_;
  SimNetwork& network_;
  RankTable rank_table_;
  std::vector<Waiting> waiting_;
};

class SimWorkerGroup::MeetingPoint final : public Rendezvous {
 public:
  MeetingPoint(Meeting& meeting, SimLoop& loop) : meeting_(meeting), loop_(loop) {}
  ~MeetingPoint() override { meeting_.remove(self_); }
  void join(const JoinRequest& request, Callback done) override {
    self_ = request.self.incarnation;
    meeting_.join(loop_, request, [alive = std::weak_ptr<int>(alive_), done = std::move(done)](Outcome outcome) {
      if (!alive.expired()) done(std::move(outcome));
    });
  }
  void look_up(Incarnation incarnation, Answer answer) override {
    meeting_.look_up(loop_, incarnation,
                     [alive = std::weak_ptr<int>(alive_), answer = std::move(answer)](auto found) mutable {
                       if (!alive.expired()) answer(found);
                     });
  }
  uint64_t refused() const override { return 0; }

 private:
  Meeting& meeting_;
  SimLoop& loop_;
  Incarnation self_ = 0;
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);
};

struct SimWorkerGroup::Node {
  Node(SimScheduler& scheduler, const std::string& name)
      : loop(scheduler, name + " loop"),
        functions(scheduler, name + " functions"),
        compute(scheduler, name + " compute"),
        decoder(scheduler, name + " decoder"),
        random(scheduler.random().next()) {
    loop.set_host_code_executor(&functions);
    compute.set_host_code_executor(&functions);
    decoder.set_host_code_executor(&functions);
    for (SimExecutor* pool : {&functions, &compute, &decoder}) pool->set_memory(&memory);
  }

  SimMemory memory;
  SimLoop loop;
  SimExecutor functions;
  SimExecutor compute;
  SimExecutor decoder;
  SeededRandom random;
  Log log;
  std::unique_ptr<Worker> worker;
  double clock_rate = 1;
  bool suspended = false;
  bool killed = false;
  bool down = false;

  void freeze() {
    for (Lane* lane : lanes()) lane->freeze();
  }
  void thaw() {
    for (Lane* lane : lanes()) lane->thaw();
    if (std::exchange(suspended, false)) loop.set_clock(0, clock_rate);
  }

 private:
  std::array<Lane*, 4> lanes() { return {&loop, &functions, &compute, &decoder}; }
};

SimWorkerGroup::SimWorkerGroup(uint64_t seed, SimGroupOptions options)
    : options_(with_budget(std::move(options), seed)),
      scheduler_(std::make_unique<SimScheduler>(seed)),
      network_(std::make_unique<SimNetwork>(*scheduler_, options_.faults)),
      meeting_(std::make_unique<Meeting>(*scheduler_, *network_, options_.is_open ? -1 : options_.size)) {
  for (int32_t rank = 0; rank < options_.size; ++rank) nodes_.push_back(make_node(rank));
}

std::unique_ptr<SimWorkerGroup::Node> SimWorkerGroup::make_node(int32_t rank) {
  auto node = std::make_unique<Node>(*scheduler_, name(rank));
  node->log = Log(options_.log_level, [this, rank](LogLevel, std::string text) {
    const MemoryScope own(nullptr);
    log_lines_.push_back(name(rank) + ": " + std::move(text));
  });
  WorkerOptions options;
  options.rank = rank;
  options.world_size = options_.is_open ? -1 : options_.size;
  options.name = name(rank);
  options.rendezvous = options_.rendezvous;
  options.lease = options_.lease;
  options.call_timeout = options_.call_timeout;
  options.max_in_flight = options_.max_in_flight;
  options.lineage = *options_.lineage;
  options.max_sends = options_.max_sends;
  options.max_early = options_.max_early;
  options.max_message_bytes =
      options_.max_message_bytes_of ? options_.max_message_bytes_of(rank) : options_.max_message_bytes;
  WorkerEnvironment environment{node->loop,
                                node->functions,
                                node->compute,
                                node->decoder,
                                node->random,
                                node->log,
                                [this, rank, loop = &node->loop](const std::string&) -> std::unique_ptr<Transport> {
                                  return std::make_unique<SimTransport>(*network_, *loop, name(rank));
                                },
                                [this, made = node.get()](const std::string& uri, Transport& transport) {
                                  return make_meeting_point(*made, uri, transport);
                                },
                                {[](const char*) -> const char* { return nullptr; }}};
  if (options_.on_member) {
    environment.on_member = [this, rank](const MemberRecord& member) { options_.on_member(rank, member); };
  }
  if (options_.memory) environment.memory = options_.memory(rank);
  node->worker = std::make_unique<Worker>(std::move(environment), std::move(options));
  return node;
}

std::unique_ptr<Rendezvous> SimWorkerGroup::make_meeting_point(Node& node, const std::string& uri,
                                                               Transport& transport) {
  if (uri.starts_with("inproc://")) return std::make_unique<MeetingPoint>(*meeting_, node.loop);
  return make_rendezvous(uri, {node.loop, transport, node.log});
}

SimWorkerGroup::~SimWorkerGroup() {
  scheduler_->stop_host_threads();
  for (auto& node : dead_) nodes_.push_back(std::move(node));
  for (auto& node : nodes_) take_down(*node);
  for (auto& node : nodes_) {
    node->functions.stop();
    node->compute.stop();
    node->decoder.stop();
    node->loop.stop();
  }
}

// ThreadedWorker does the same. A shutdown that hangs here would hang in production, but a test that failed already
// should end.
void SimWorkerGroup::take_down(Node& node) {
  if (std::exchange(node.down, true)) return;
  node.thaw();
  auto report = node.worker->shutdown(0);
  scheduler_->run_until([&report] { return report->is_done(); }, 60 * kSecond);
}

Worker& SimWorkerGroup::worker(int32_t rank) { return *nodes_.at(static_cast<size_t>(rank))->worker; }
SimMemory& SimWorkerGroup::memory(int32_t rank) { return nodes_.at(static_cast<size_t>(rank))->memory; }
void SimWorkerGroup::share_memory_with_loop(int32_t rank) {
  Node& node = *nodes_.at(static_cast<size_t>(rank));
  node.loop.set_memory(&node.memory, [&node](const Error& error) { node.worker->on_loop_failure(error); });
}

size_t SimWorkerGroup::tasks_running(int32_t rank) { return nodes_[static_cast<size_t>(rank)]->compute.running(); }

size_t SimWorkerGroup::tasks_begun(int32_t rank) { return nodes_[static_cast<size_t>(rank)]->compute.begun(); }

SimLoop& SimWorkerGroup::loop(int32_t rank) { return nodes_.at(static_cast<size_t>(rank))->loop; }

void SimWorkerGroup::start(Nanos timeout) {
  std::vector<std::shared_ptr<Future<Value>>> started;
  for (auto& node : nodes_) started.push_back(node->worker->start(timeout));
  for (auto& future : started) {
    wait(*future, kForever);
    future->value();
  }
}

std::vector<ShutdownReport> SimWorkerGroup::shutdown(Nanos timeout) {
  std::vector<std::shared_ptr<Future<ShutdownReport>>> reports;
  for (auto& node : nodes_) {
    if (!node->killed) reports.push_back(node->worker->shutdown(timeout));
  }
  std::vector<ShutdownReport> result;
  for (auto& report : reports) {
    wait(*report, kForever);
    result.push_back(report->value());
  }
  for (auto& node : nodes_) node->down = node->down || !node->killed;
  return result;
}

Value SimWorkerGroup::call(int32_t from, CallRequest request) {
  auto future = worker(from).rpc().call(std::move(request));
  wait(*future, kForever);
  return future->value();
}

Value SimWorkerGroup::call(int32_t from, int32_t to, const std::string& function, Values args, const Id& context) {
  CallRequest request;
  request.context = context;
  request.to = name(to);
  request.function = function;
  request.args = std::move(args);
  return call(from, std::move(request));
}

void SimWorkerGroup::kill(int32_t rank) {
  nodes_.at(static_cast<size_t>(rank))->killed = true;
  freeze(rank);
  network_->kill(name(rank));
}

Worker& SimWorkerGroup::restart(int32_t rank) {
  auto& place = nodes_.at(static_cast<size_t>(rank));
  if (!place->killed) kill(rank);
  dead_.push_back(std::exchange(place, make_node(rank)));
  return *place->worker;
}

void SimWorkerGroup::freeze(int32_t rank) { nodes_.at(static_cast<size_t>(rank))->freeze(); }

void SimWorkerGroup::suspend(int32_t rank) {
  Node& node = *nodes_.at(static_cast<size_t>(rank));
  node.freeze();
  node.suspended = true;
  node.loop.set_clock(0, 0);
}

void SimWorkerGroup::thaw(int32_t rank) {
  Node& node = *nodes_.at(static_cast<size_t>(rank));
  if (!node.killed) node.thaw();
}

void SimWorkerGroup::run_clock_at(int32_t rank, double rate) {
  Node& node = *nodes_.at(static_cast<size_t>(rank));
  node.clock_rate = rate;
  if (!node.suspended) node.loop.set_clock(0, rate);
}

void SimWorkerGroup::jump_clock(int32_t rank, Nanos ahead) {
  Node& node = *nodes_.at(static_cast<size_t>(rank));
  node.loop.set_clock(ahead, node.suspended ? 0 : node.clock_rate);
}

bool SimWorkerGroup::is_killed(int32_t rank) const { return nodes_.at(static_cast<size_t>(rank))->killed; }

}  // namespace distag::sim
