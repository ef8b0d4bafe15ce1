// Rows of a group of 64 worker processes: its start, its rest, and the memory of a worker.
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>

#include "bench/harness.h"

namespace bench {

namespace {

constexpr int32_t kSize = 64;

void wait_for_all(const Member& member) {
  distag_error error = DISTAG_ERROR_INIT;
  distag_value* own = nullptr;
  distag_value* all = nullptr;
  distag_value_create_int64(0, &own, &error);
  distag_worker_all_gather(member.worker, own, nullptr, 0, 60 * DISTAG_SECOND, &all, &error);
  check(error, "all_gather");
  distag_value_release(all);
  distag_value_release(own);
}

// Each worker calls each other one.
void call_all(const Member& member) {
  distag_error error = DISTAG_ERROR_INIT;
  const int64_t count = 1;
  distag_tensor* x = nullptr;
  distag_rand(7, DISTAG_FLOAT32, &count, 1, &x, &error);
  distag_value* args[] = {distag_tensor_as_value(x)};
  std::vector<distag_future*> calls;
  for (int32_t rank = 0; rank < kSize; ++rank) {
    if (rank == distag_worker_get_rank(member.worker)) continue;
    distag_future* call = nullptr;
    distag_call_async(member.worker, nullptr, ("worker" + std::to_string(rank)).c_str(), "neg", args, 1, nullptr, &call,
                      &error);
    calls.push_back(call);
  }
  for (distag_future* call : calls) {
    distag_future_wait(call, 60 * DISTAG_SECOND, &error);
    distag_future_release(call);
  }
  check(error, "calls of all");
  distag_tensor_release(x);
}

// Until the group has met and each has called each other one.
void start(const Member& member, const char* name) {
  const auto meet = [&member] {
    call_all(member);
    wait_for_all(member);
  };
  const double seconds = timed(meet, 1, 0)[0];
  if (member.reports) report(name, {member.start_seconds + seconds}, "ms");
}

// The share of a core that a worker takes where nothing is asked of it, once it has met all others.
void idle(const Member& member) {
  call_all(member);
  wait_for_all(member);
  rest(std::chrono::seconds(1));  // for the last words of the calls
  const std::clock_t used = std::clock();
  const double seconds = timed([] { rest(std::chrono::seconds(5)); }, 1, 0)[0];
  const double busy = static_cast<double>(std::clock() - used) / CLOCKS_PER_SEC;
  if (member.reports) report_value("idle_64", 100 * busy / seconds, "% of a core");
  wait_for_all(member);
}

// Memory of a worker: its own pages, and its share of the pages that it has in common with others.
void memory(const Member& member) {
  call_all(member);
  wait_for_all(member);
  std::FILE* file = std::fopen("/proc/self/smaps_rollup", "r");
  double kib = 0;
  char line[256];
  while (file != nullptr && std::fgets(line, sizeof line, file) != nullptr) {
    if (std::sscanf(line, "Pss: %lf", &kib) == 1) break;
  }
  if (file != nullptr) std::fclose(file);
  if (kib == 0) {
    std::fprintf(stderr, "memory_per_worker: /proc/self/smaps_rollup says no Pss\n");
    std::exit(1);
  }
  if (member.reports) report_value("memory_per_worker", kib / 1024, "MiB");
  wait_for_all(member);
}

}  // namespace

std::vector<MeshRow> large_group_rows() {
  return {{"start_64", kSize, [](const Member& member) { start(member, "start_64"); }},
          {"start_64_tcp", kSize, [](const Member& member) { start(member, "start_64_tcp"); }, Way::kTcp},
          {"start_64_curve", kSize, [](const Member& member) { start(member, "start_64_curve"); }, Way::kCurve},
          {"idle_64", kSize, idle},
          {"memory_per_worker", kSize, memory}};
}

}  // namespace bench
