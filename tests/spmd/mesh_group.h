#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "spmd/program.h"
#include "worker/threaded_worker.h"

namespace distag::testing {

// A member of a mesh, for the program that it runs.
struct Member {
  spmd::Line line;
  Worker& worker;

  int64_t position() const { return line.program->position(); }
  const layout::MeshShape& mesh() const { return line.program->shape(); }
};

// Workers in one process, and a mesh of all of them: each member runs its program on a thread of its own.
class MeshGroup {
 public:
  explicit MeshGroup(const Dims& sizes, MeshPolicy policy = {}, Nanos timeout = 60 * kSecond);
  ~MeshGroup();

  size_t size() const { return workers_.size(); }
  ThreadedWorker& worker(size_t rank) { return *workers_[rank]; }
  // Throws what the program of a member threw; if several threw, the error of the lowest rank.
  void run(const std::function<void(Member&)>& program);
  // The same, but returns the error of each member, or nothing.
  std::vector<std::optional<Error>> try_run(const std::function<void(Member&)>& program);
  MeshStats stats(size_t rank);
  spmd::Program& program(size_t rank) { return *programs_[rank]; }

 private:
  std::vector<std::unique_ptr<ThreadedWorker>> workers_;
  std::vector<std::shared_ptr<spmd::Program>> programs_;
};

}  // namespace distag::testing
