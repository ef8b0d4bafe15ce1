#pragma once

#include <ucontext.h>

#include <cstddef>
#include <exception>

#include "base/task.h"

namespace distag::sim {

// A stack of its own for a task that may pause in the middle. Single-threaded: it runs only inside resume().
class Fiber {
 public:
  Fiber();
  ~Fiber();  // only while idle
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Gives an idle fiber its next task; resume() begins it.
  void assign(Task task);
  bool is_idle() const { return !busy_; }

  // Runs until the task pauses or ends. Rethrows what the task threw.
  void resume();

  // From inside the task: goes back to the caller of resume().
  void pause();

 private:
  static constexpr size_t kStackBytes = size_t{1} << 20;

  static void enter(unsigned high, unsigned low);
  void run();
  void leave(bool for_good);
  void swap_exception_state();

  std::byte* stack_ = nullptr;
  ucontext_t inside_;
  ucontext_t outside_;
  Task task_;
  std::exception_ptr thrown_;
  bool busy_ = false;
  bool quit_ = false;

  // The C++ runtime keeps caught exceptions per thread; here they belong to the stack that handles them.
  struct {
    void* caught = nullptr;
    unsigned int uncaught = 0;
  } exception_state_;

  // The values that sanitizers have to be told about stacks.
  void* fake_stack_inside_ = nullptr;
  void* fake_stack_outside_ = nullptr;
  const void* outside_bottom_ = nullptr;
  size_t outside_size_ = 0;
  void* tsan_inside_ = nullptr;
  void* tsan_outside_ = nullptr;
};

}  // namespace distag::sim
