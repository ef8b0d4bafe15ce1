// Rows of collectives among 2 and 4 worker processes on this machine: all run one program, the one of rank 0 reports.
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "bench/harness.h"

extern char** environ;

namespace bench {

namespace {

struct Collective {
  const char* name;
  uint32_t kind;
  int32_t members;
  int64_t count;  // float32 of the result
  int runs;
};

constexpr Collective kRows[] = {
    {"all_reduce_4B_2", DISTAG_ALL_REDUCE, 2, 1, 1000},
    {"all_reduce_4B_4", DISTAG_ALL_REDUCE, 4, 1, 500},
    {"all_reduce_64KB_2", DISTAG_ALL_REDUCE, 2, 1 << 14, 500},
    {"all_reduce_64KB_4", DISTAG_ALL_REDUCE, 4, 1 << 14, 300},
    {"all_reduce_1MB_2", DISTAG_ALL_REDUCE, 2, 1 << 18, 100},
    {"all_reduce_1MB_4", DISTAG_ALL_REDUCE, 4, 1 << 18, 100},
    {"all_reduce_25MB_2", DISTAG_ALL_REDUCE, 2, 25 << 18, 20},
    {"all_reduce_25MB_4", DISTAG_ALL_REDUCE, 4, 25 << 18, 10},
    {"all_reduce_64MB_2", DISTAG_ALL_REDUCE, 2, 64 << 18, 10},
    {"all_reduce_64MB_4", DISTAG_ALL_REDUCE, 4, 64 << 18, 6},
    {"all_gather_64MB_2", DISTAG_ALL_GATHER, 2, 64 << 18, 10},
    {"all_gather_64MB_4", DISTAG_ALL_GATHER, 4, 64 << 18, 6},
};

const Collective& row_of(const std::string& name) {
  for (const Collective& row : kRows) {
    if (row.name == name) return row;
  }
  std::fprintf(stderr, "there is no row %s\n", name.c_str());
  std::exit(1);
}

void run_row(distag_mesh* mesh, const Collective& row, bool reports) {
  distag_error error = DISTAG_ERROR_INIT;
  distag_tensor* x = nullptr;
  const int64_t count = row.kind == DISTAG_ALL_GATHER ? row.count / row.members : row.count;
  distag_rand(7, DISTAG_FLOAT32, &count, 1, &x, &error);
  const auto call = [&] {
    distag_tensor* y = nullptr;
    distag_collective(mesh, row.kind, nullptr, x, nullptr, &y, &error);
    distag_tensor_release(y);
    check(error, row.name);
  };
  const std::vector<double> samples = timed(call, row.runs, 5);
  if (reports) report(row.name, samples, row.count <= 1 << 14 ? "us" : "ms");
  distag_tensor_release(x);
}

void run_program(const char* rendezvous, int32_t rank, int32_t size, const std::vector<std::string>& names) {
  distag_error error = DISTAG_ERROR_INIT;
  distag_worker_options options = DISTAG_WORKER_OPTIONS_INIT;
  options.rank = rank;
  options.world_size = size;
  options.rendezvous = rendezvous;
  distag_worker* worker = nullptr;
  distag_mesh* mesh = nullptr;
  distag_worker_create(&options, &worker, &error);
  distag_worker_start(worker, 30 * DISTAG_SECOND, &error);
  distag_mesh_create(worker, nullptr, 0, nullptr, nullptr, 0, nullptr, &mesh, &error);
  check(error, "a mesh");
  for (const std::string& name : names) run_row(mesh, row_of(name), rank == 0);
  distag_mesh_release(mesh);
  distag_worker_shutdown(worker, 30 * DISTAG_SECOND, nullptr, &error);
  check(error, "shutdown");
  distag_worker_release(worker);
}

void run_group(int32_t size, const std::vector<std::string>& names) {
  char directory[] = "/tmp/distag-bench-XXXXXX";
  if (mkdtemp(directory) == nullptr) std::exit(1);
  const std::string rendezvous = std::string("file://") + directory;
  std::vector<pid_t> others;
  for (int32_t rank = 1; rank < size; ++rank) {
    std::vector<std::string> words = {"distag_bench", "--member", rendezvous, std::to_string(rank),
                                      std::to_string(size)};
    words.insert(words.end(), names.begin(), names.end());
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    pid_t child = 0;
    if (posix_spawn(&child, "/proc/self/exe", nullptr, nullptr, arguments.data(), environ) != 0) std::exit(1);
    others.push_back(child);
  }
  run_program(rendezvous.c_str(), 0, size, names);
  for (const pid_t other : others) waitpid(other, nullptr, 0);
  const std::string clean = "rm -rf '" + std::string(directory) + "'";
  if (std::system(clean.c_str()) != 0) std::fprintf(stderr, "could not remove %s\n", directory);
}

}  // namespace

void run_collectives(const std::vector<std::string>& wanted) {
  for (const int32_t size : {2, 4}) {
    std::vector<std::string> names;
    for (const Collective& row : kRows) {
      const bool is_wanted = wanted.empty() || std::find(wanted.begin(), wanted.end(), row.name) != wanted.end();
      if (row.members == size && is_wanted) names.emplace_back(row.name);
    }
    if (!names.empty()) run_group(size, names);
  }
}

int run_member(int count, char** words) {
  run_program(words[0], std::atoi(words[1]), std::atoi(words[2]), {words + 3, words + count});
  return 0;
}

}  // namespace bench
