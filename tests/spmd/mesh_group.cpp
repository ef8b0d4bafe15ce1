#include "spmd/mesh_group.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "base/executor.h"

namespace distag::testing {
namespace {

// Groups of one process that run at the same time have places of their own.
std::atomic<int> g_groups{0};

}  // namespace

MeshGroup::MeshGroup(const Dims& sizes, MeshPolicy policy, Nanos timeout) {
  const auto count = static_cast<int32_t>(element_count(sizes));
  const std::string place = "inproc://spmd" + std::to_string(++g_groups);
  std::vector<std::shared_ptr<Future<Value>>> started;
  for (int32_t rank = 0; rank < count; ++rank) {
    ThreadedOptions threaded;
    threaded.worker.rank = rank;
    threaded.worker.world_size = count;
    threaded.worker.rendezvous = place;
    threaded.worker.lease = 60 * kSecond;
    threaded.thread_count = 1;
    workers_.push_back(std::make_unique<ThreadedWorker>(threaded));
  }
  for (const auto& worker : workers_) started.push_back(worker->start(120 * kSecond));
  for (const auto& future : started) {
    wait(*future, kForever);
    future->value();
  }
  layout::MeshRequest request;
  request.name = "train";
  request.shape = sizes;
  for (size_t i = 0; i < sizes.size(); ++i) request.axis_names.emplace_back(1, static_cast<char>("xyzuvwab"[i]));
  std::vector<std::shared_ptr<Future<std::shared_ptr<Mesh>>>> made;
  for (const auto& worker : workers_) made.push_back(worker->worker().meshes().create(request, timeout, policy));
  for (const auto& future : made) {
    wait(*future, kForever);
    programs_.push_back(std::make_shared<spmd::Program>(std::make_shared<MeshUse>(future->value())));
  }
}

MeshGroup::~MeshGroup() {
  programs_.clear();
  std::vector<std::shared_ptr<Future<ShutdownReport>>> left;
  for (const auto& worker : workers_) left.push_back(worker->begin_shutdown(120 * kSecond));
  for (const auto& future : left) wait(*future, kForever);
  for (const auto& worker : workers_) EXPECT_TRUE(worker->finish(120 * kSecond));
}

std::vector<std::optional<Error>> MeshGroup::try_run(const std::function<void(Member&)>& program) {
  std::vector<std::optional<Error>> errors(size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < size(); ++i) {
    threads.emplace_back([&, i] {
      Member member{{programs_[i], ""}, workers_[i]->worker()};
      try {
        program(member);
      } catch (...) {
        errors[i] = current_error();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

void MeshGroup::run(const std::function<void(Member&)>& program) {
  for (const auto& error : try_run(program)) {
    if (error) throw *error;
  }
}

MeshStats MeshGroup::stats(size_t rank) { return programs_[rank]->mesh().stats(); }

}  // namespace distag::testing
