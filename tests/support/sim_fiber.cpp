#include "support/sim_fiber.h"

#include <cxxabi.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <new>
#include <utility>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define DISTAG_ASAN_FIBERS 1
#endif
#if __has_feature(thread_sanitizer)
#define DISTAG_TSAN_FIBERS 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define DISTAG_ASAN_FIBERS 1
#endif
#if defined(__SANITIZE_THREAD__)
#define DISTAG_TSAN_FIBERS 1
#endif

#if DISTAG_ASAN_FIBERS
#include <sanitizer/common_interface_defs.h>
#endif
#if DISTAG_TSAN_FIBERS
#include <sanitizer/tsan_interface.h>
#endif

namespace distag::sim {
namespace {

void asan_leave([[maybe_unused]] void** save, [[maybe_unused]] const void* bottom, [[maybe_unused]] size_t size) {
#if DISTAG_ASAN_FIBERS
  __sanitizer_start_switch_fiber(save, bottom, size);
#endif
}

void asan_arrive([[maybe_unused]] void* saved, [[maybe_unused]] const void** bottom, [[maybe_unused]] size_t* size) {
#if DISTAG_ASAN_FIBERS
  __sanitizer_finish_switch_fiber(saved, bottom, size);
#endif
}

void tsan_switch([[maybe_unused]] void* to) {
#if DISTAG_TSAN_FIBERS
  __tsan_switch_to_fiber(to, 0);
#endif
}

}  // namespace

Fiber::Fiber() {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void* memory =
      mmap(nullptr, kStackBytes + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  mprotect(memory, page, PROT_NONE);  // below the stack: an overflow faults instead of writing over a neighbour
  stack_ = static_cast<std::byte*>(memory) + page;
  getcontext(&inside_);
  inside_.uc_stack.ss_sp = stack_;
  inside_.uc_stack.ss_size = kStackBytes;
  inside_.uc_link = nullptr;
  const auto self = reinterpret_cast<uintptr_t>(this);
  makecontext(&inside_, reinterpret_cast<void (*)()>(&Fiber::enter), 2, static_cast<unsigned>(self >> 32),
              static_cast<unsigned>(self & 0xFFFFFFFFu));
#if DISTAG_TSAN_FIBERS
  tsan_inside_ = __tsan_create_fiber(0);
#endif
}

Fiber::~Fiber() {
  quit_ = true;
  resume();
#if DISTAG_TSAN_FIBERS
  __tsan_destroy_fiber(tsan_inside_);
#endif
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  munmap(stack_ - page, kStackBytes + page);
}

void Fiber::assign(Task task) {
  task_ = std::move(task);
  busy_ = true;
}

void Fiber::resume() {
#if DISTAG_TSAN_FIBERS
  tsan_outside_ = __tsan_get_current_fiber();
#endif
  swap_exception_state();
  asan_leave(&fake_stack_outside_, stack_, kStackBytes);
  tsan_switch(tsan_inside_);
  swapcontext(&outside_, &inside_);
  asan_arrive(fake_stack_outside_, nullptr, nullptr);
  swap_exception_state();
  if (thrown_) std::rethrow_exception(std::exchange(thrown_, nullptr));
}

void Fiber::pause() { leave(false); }

void Fiber::leave(bool for_good) {
  asan_leave(for_good ? nullptr : &fake_stack_inside_, outside_bottom_, outside_size_);
  tsan_switch(tsan_outside_);
  swapcontext(&inside_, &outside_);
  asan_arrive(fake_stack_inside_, &outside_bottom_, &outside_size_);
}

void Fiber::enter(unsigned high, unsigned low) {
  auto* self = reinterpret_cast<Fiber*>((static_cast<uintptr_t>(high) << 32) | low);
  asan_arrive(nullptr, &self->outside_bottom_, &self->outside_size_);
  self->run();
}

void Fiber::run() {
  while (!quit_) {
    try {
      task_();
      task_.reset();
    } catch (...) {
      thrown_ = std::current_exception();
      task_.reset();
    }
    busy_ = false;
    leave(false);
  }
  leave(true);
}

void Fiber::swap_exception_state() {
  auto* state = reinterpret_cast<decltype(exception_state_)*>(abi::__cxa_get_globals());
  std::swap(*state, exception_state_);
}

}  // namespace distag::sim
