// Groups of worker processes on this machine: all run one program on a mesh of all, and the one of rank 0 reports.
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

#include "bench/harness.h"

extern char** environ;

namespace bench {

namespace {

std::vector<MeshRow> mesh_rows() {
  std::vector<MeshRow> rows;
  for (const auto& part : {collective_rows, sharded_rows, planned_rows, feeding_rows, store_rows, large_group_rows}) {
    for (MeshRow& row : part()) rows.push_back(std::move(row));
  }
  return rows;
}

MeshRow row_of(const std::string& name) {
  for (MeshRow& row : mesh_rows()) {
    if (row.name == name) return std::move(row);
  }
  std::fprintf(stderr, "there is no row %s\n", name.c_str());
  std::exit(1);
}

using Clock = std::chrono::steady_clock;

void run_program(const char* rendezvous, int32_t rank, int32_t size, const Sockets& sockets,
                 const std::vector<std::string>& names, Clock::time_point begin) {
  distag_error error = DISTAG_ERROR_INIT;
  distag_worker* worker = make_worker(rendezvous, rank, size, sockets);
  distag_mesh* mesh = nullptr;
  distag_worker_start(worker, 60 * DISTAG_SECOND, &error);
  const double start_seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  distag_mesh_create(worker, nullptr, 0, nullptr, nullptr, 0, nullptr, &mesh, &error);
  check(error, "a mesh");
  for (const std::string& name : names) row_of(name).run({worker, mesh, rank == 0, start_seconds});
  distag_mesh_release(mesh);
  distag_worker_shutdown(worker, 60 * DISTAG_SECOND, nullptr, &error);
  check(error, "shutdown");
  distag_worker_release(worker);
}

void run_group(int32_t size, Way way, const std::vector<std::string>& names) {
  char directory[] = "/tmp/distag-bench-XXXXXX";
  if (mkdtemp(directory) == nullptr) std::exit(1);
  const std::string rendezvous = std::string("file://") + directory;
  const Sockets sockets = make_sockets(way);
  const Clock::time_point begin = Clock::now();
  std::vector<pid_t> others;
  for (int32_t rank = 1; rank < size; ++rank) {
    std::vector<std::string> words = {"distag_bench",       "--member",   rendezvous,       std::to_string(rank),
                                      std::to_string(size), sockets.bind, sockets.group_key};
    words.insert(words.end(), names.begin(), names.end());
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    pid_t child = 0;
    if (posix_spawn(&child, "/proc/self/exe", nullptr, nullptr, arguments.data(), environ) != 0) std::exit(1);
    others.push_back(child);
  }
  run_program(rendezvous.c_str(), 0, size, sockets, names, begin);
  for (const pid_t other : others) waitpid(other, nullptr, 0);
  const std::string clean = "rm -rf '" + std::string(directory) + "'";
  if (std::system(clean.c_str()) != 0) std::fprintf(stderr, "could not remove %s\n", directory);
}

}  // namespace

void run_groups(const std::vector<std::string>& wanted) {
  const std::pair<int32_t, Way> groups[] = {
      {2, Way::kPrivate}, {4, Way::kPrivate}, {64, Way::kPrivate}, {64, Way::kTcp}, {64, Way::kCurve}};
  for (const auto& [size, way] : groups) {
    std::vector<std::string> names;
    for (const MeshRow& row : mesh_rows()) {
      const bool is_wanted = wanted.empty() || std::find(wanted.begin(), wanted.end(), row.name) != wanted.end();
      if (row.members == size && row.way == way && is_wanted) names.emplace_back(row.name);
    }
    if (!names.empty()) run_group(size, way, names);
  }
}

int run_member(int count, char** words) {
  run_program(words[0], std::atoi(words[1]), std::atoi(words[2]), {words[3], words[4]}, {words + 5, words + count},
              Clock::now());
  return 0;
}

}  // namespace bench
