#include "base/fork_handlers.h"

#include <pthread.h>

#include <array>

#include "base/error.h"

namespace distag {
namespace {

constexpr std::array kSteps = {&kForkGateStep, &kOwnDescriptorsStep, &kSharedMemoryStep, &kGenerationStep};

void run_step(void (*step)()) {
  if (step != nullptr) step();
}

void run_steps_before() {
  for (const ForkStep* step : kSteps) run_step(step->before);
}
void run_steps_after() {
  for (auto step = kSteps.rbegin(); step != kSteps.rend(); ++step) run_step((*step)->after);
}
void run_steps_in_child() {
  for (auto step = kSteps.rbegin(); step != kSteps.rend(); ++step) run_step((*step)->after_in_child);
}

// Before a fork the C library runs handlers from the last registered to the first. Ours are registered after those of
// the libraries that this one is linked with, or that its first constructors load (base/threaded_library.h): so ours
// run before those end their threads. Unloading this library unregisters them.
const bool are_watched = pthread_atfork(run_steps_before, run_steps_after, run_steps_in_child) == 0;

}  // namespace

std::span<const ForkStep* const> fork_steps() noexcept { return kSteps; }

bool are_forks_watched() noexcept { return are_watched; }

void check_forks_are_watched() {
  if (are_watched) return;
  fail(Status::kOutOfMemory, "the system had no memory for the handlers of forks when distag was loaded");
}

}  // namespace distag
