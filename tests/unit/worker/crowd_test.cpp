// Many workers in one process: what they cost while they do nothing, and how long they take to leave.
#include <sys/resource.h>

#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "worker/threaded_worker.h"

namespace distag {
namespace {

#if defined(__SANITIZE_THREAD__)
constexpr int32_t kCrowd = 64;  // more threads than that do not keep their leases when each access is checked
#else
constexpr int32_t kCrowd = 256;
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr Nanos kLease = 60 * kSecond;
#else
constexpr Nanos kLease = 10 * kSecond;
#endif
constexpr Nanos kPatience = 600 * kSecond;

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

// The processor time of all threads of this process.
double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto in_seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return in_seconds(usage.ru_utime) + in_seconds(usage.ru_stime);
}

// Workers over inproc://, each with an open stream to each other.
class Crowd {
 public:
  explicit Crowd(int32_t size) {
    for (int32_t rank = 0; rank < size; ++rank) {
      ThreadedOptions options;
      options.worker.rank = rank;
      options.worker.world_size = size;
      options.worker.rendezvous = "inproc://crowd";
      options.worker.lease = kLease;
      options.thread_count = 1;
      workers_.push_back(std::make_unique<ThreadedWorker>(options));
      rpc(rank).register_function("hear", [](Invocation&) {});
    }
    std::vector<std::shared_ptr<Future<Value>>> started;
    for (const auto& worker : workers_) started.push_back(worker->start(kPatience));
    for (const auto& future : started) {
      wait(*future, kForever);
      future->value();
    }
  }

  Rpc& rpc(int32_t rank) { return workers_[static_cast<size_t>(rank)]->worker().rpc(); }

  void open_all_streams() {
    std::vector<std::shared_ptr<Future<Value>>> calls;
    for (const auto& from : workers_) {
      for (const auto& to : workers_) {
        CallRequest request;
        request.to = to->worker().name();
        request.function = "hear";
        if (from != to) calls.push_back(from->worker().rpc().call(std::move(request)));
      }
    }
    for (const auto& future : calls) {
      wait(*future, kForever);
      future->value();
    }
  }

  // How long until the last one has left.
  double shut_down() {
    const auto begin = Clock::now();
    std::vector<std::shared_ptr<Future<ShutdownReport>>> reports;
    for (const auto& worker : workers_) reports.push_back(worker->begin_shutdown(kPatience));
    for (const auto& report : reports) {
      EXPECT_TRUE(wait(*report, kPatience));
      EXPECT_TRUE(report->value().clean);
    }
    const double taken = seconds_since(begin);
    for (const auto& worker : workers_) EXPECT_TRUE(worker->finish(kPatience));
    return taken;
  }

 private:
  std::vector<std::unique_ptr<ThreadedWorker>> workers_;
};

struct Cost {
  double idle = 0;     // of a core
  double visits = 0;   // what looking at each pair once takes of a core, as often
  double leaving = 0;  // seconds
};

// Seconds to look at `kBytes` of each pair of the crowd, in no order: what a machine takes for that depends on
// what else uses its caches and its memory. A tick looks at that much of a stream that says nothing.
double visit_all_pairs() {
  constexpr size_t kBytes = 1024, kLine = 64, kStride = 7919;
  const size_t pairs = static_cast<size_t>(kCrowd) * (kCrowd - 1);
  std::vector<unsigned char> memory(pairs * kBytes, 1);
  const double before = cpu_seconds();
  unsigned sum = 0;
  for (size_t i = 0; i < pairs; ++i) {
    for (size_t byte = 0; byte < kBytes; byte += kLine) sum += memory[i * kStride % pairs * kBytes + byte];
  }
  EXPECT_EQ(sum, pairs * (kBytes / kLine));
  return cpu_seconds() - before;
}

Cost measure_crowd() {
  Cost cost;
  Crowd crowd(kCrowd);
  crowd.open_all_streams();
  // Acknowledgements and timers of the first moment are over then; leases are of 10 s, so that two turns of their
  // timers are in what is measured.
  const auto never = Future<Unit>::make();
  wait(*never, 200 * kMillisecond);
  const auto begin = Clock::now();
  const double before = cpu_seconds();
  wait(*never, 5 * kSecond);
  cost.idle = (cpu_seconds() - before) / seconds_since(begin);
  cost.visits = 2 * visit_all_pairs() / seconds_since(begin);
  const double until = cpu_seconds();
  cost.leaving = crowd.shut_down();
  std::printf(
      "%d workers: %.2f %% of a core idle, %.2f %% for the same visits alone, shutdown in %.2f s, of %.2f s of the "
      "cores until all have ended\n",
      kCrowd, 100 * cost.idle, 100 * cost.visits, cost.leaving, cpu_seconds() - until);
  return cost;
}

// Costs are reported, not judged: they depend on the machine. A fiftieth of a core is little on any, and a message for
// each pair would be ten times that; where two cores do nothing else, all leave within a second.
TEST(Crowd, MeetsIsIdleAndLeaves) {
  const Cost cost = measure_crowd();
  std::printf("figure: unit_worker.crowd_idle_percent %.2f %%_of_a_core\n", 100 * cost.idle);
  std::printf("figure: unit_worker.crowd_visits_percent %.2f %%_of_a_core\n", 100 * cost.visits);
  std::printf("figure: unit_worker.crowd_shutdown_s %.2f s\n", cost.leaving);
}

}  // namespace
}  // namespace distag
