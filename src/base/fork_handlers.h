#pragma once

#include <span>

namespace distag {

// How one source file keeps its process-wide state consistent when the host forks. Each function runs on the forking
// thread: before the fork, after it in the parent, and after it in the child. nullptr: nothing to do. None throws.
// State that a child just begins anew needs no step: base/process_state.h.
struct ForkStep {
  void (*before)() = nullptr;
  void (*after)() = nullptr;
  void (*after_in_child)() = nullptr;
};

// Each is defined in the file of its state.
extern const ForkStep kForkGateStep;
extern const ForkStep kOwnDescriptorsStep;
extern const ForkStep kSharedMemoryStep;
extern const ForkStep kGenerationStep;

// The only fork handlers of distag, in their order: steps before a fork run from the first to the last, steps after it
// from the last to the first. The first may wait for long, while nothing is held that a loop needs; the others wait for
// no more than a lock that is held briefly.
std::span<const ForkStep* const> fork_steps() noexcept;

// False where the system had no memory for them when distag was loaded. Any thread.
bool are_forks_watched() noexcept;
void check_forks_are_watched();  // throws OUT_OF_MEMORY then

}  // namespace distag
