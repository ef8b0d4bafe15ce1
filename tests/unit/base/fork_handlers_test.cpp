#include "base/fork_handlers.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <future>
#include <optional>
#include <thread>

#include "base/fork_gate.h"
#include "base/own_descriptors.h"
#include "base/shared_memory.h"

namespace distag {
namespace {

// Against hanging.
constexpr std::chrono::seconds kPatience{60};

// Makes the calls that a loop may make at any time.
void use_what_loops_use() {
  const shared_memory::Use use;
  for (int turn = 0; turn < 1000; ++turn) {
    std::byte* const place = shared_memory::allocate(shared_memory::kLeastBytes);
    shared_memory::find(place, 1);
    shared_memory::free(place);
    OwnDescriptors::close(OwnDescriptors::open([] { return open("/dev/null", O_RDONLY | O_CLOEXEC); }));
    std::this_thread::yield();
  }
}

TEST(ForkHandlersTest, TheGateIsFirst) { EXPECT_EQ(fork_steps().front(), &kForkGateStep); }

TEST(ForkHandlersTest, NoOtherStepWaitsForAProduct) {
  std::optional<NoFork> product(std::in_place);
  const auto steps = fork_steps().subspan(1);
  auto done = std::async(std::launch::async, [steps] {
    for (const ForkStep* step : steps) {
      if (step->before != nullptr) step->before();
    }
    for (size_t i = steps.size(); i-- > 0;) {
      if (steps[i]->after != nullptr) steps[i]->after();
    }
  });
  EXPECT_EQ(done.wait_for(kPatience), std::future_status::ready);
  product.reset();
}

// The host's handlers may run after the steps, and take as long as they like.
TEST(ForkHandlersTest, NothingThatLoopsUseWaitsBetweenTheStepsAndTheFork) {
  const auto steps = fork_steps().subspan(1);
  for (const ForkStep* step : steps) {
    if (step->before != nullptr) step->before();
  }
  auto done = std::async(std::launch::async, use_what_loops_use);
  EXPECT_EQ(done.wait_for(kPatience), std::future_status::ready);
  for (size_t i = steps.size(); i-- > 0;) {
    if (steps[i]->after != nullptr) steps[i]->after();
  }
}

std::atomic<int> forks{0};

TEST(ForkHandlersTest, NothingThatLoopsUseWaitsForAForkThatWaitsForAProduct) {
  std::optional<NoFork> product(std::in_place);
  ASSERT_EQ(pthread_atfork([] { ++forks; }, nullptr, nullptr), 0);  // runs before those of distag
  std::atomic<bool> is_forked{false};
  std::thread forker([&is_forked] {
    const pid_t child = fork();
    if (child == 0) _exit(0);
    is_forked = true;
    int status = -1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  });
  while (forks == 0) std::this_thread::yield();
  auto done = std::async(std::launch::async, use_what_loops_use);
  EXPECT_EQ(done.wait_for(kPatience), std::future_status::ready);
  EXPECT_FALSE(is_forked);
  product.reset();
  forker.join();
}

}  // namespace
}  // namespace distag
