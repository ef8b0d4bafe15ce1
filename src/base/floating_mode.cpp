#include "base/floating_mode.h"

#include <utility>

namespace distag {
namespace {

// The mode that the innermost effective DefaultFloatingMode replaced; nullptr: the thread has its own.
thread_local const FloatingMode* t_of_host = nullptr;

}  // namespace

#if defined(__x86_64__)

void FloatingMode::set() const noexcept {
  // A flag that the x87 has raised traps as soon as the mode lets it.
  uint16_t raised = 0;
  asm volatile("fnstsw %0" : "=m"(raised));
  if ((raised & ~x87_ & 0x3F) != 0) asm volatile("fnclex");
  asm volatile("fldcw %0" : : "m"(x87_));
  __builtin_ia32_ldmxcsr(vectors_);
}

void FloatingMode::set_default() noexcept {
  constexpr uint16_t kX87 = 0x037F;
  asm volatile("fldcw %0" : : "m"(kX87));
  __builtin_ia32_ldmxcsr(kVectorDefault);
}

#else

void FloatingMode::set() const noexcept { std::fesetenv(&environment_); }

void FloatingMode::set_default() noexcept { std::fesetenv(FE_DFL_ENV); }

#endif

void DefaultFloatingMode::enter() noexcept {
  is_entered_ = true;
  outer_ = std::exchange(t_of_host, &before_);
  FloatingMode::set_default();
}

void DefaultFloatingMode::leave() noexcept {
  t_of_host = outer_;
  before_.set();
}

HostFloatingMode::HostFloatingMode() noexcept
    : before_(FloatingMode::of_this_thread()), of_host_(std::exchange(t_of_host, nullptr)) {
  if (of_host_ != nullptr) of_host_->set();
}

HostFloatingMode::~HostFloatingMode() {
  t_of_host = of_host_;
  if (!FloatingMode::of_this_thread().is_like(before_)) before_.set();
}

}  // namespace distag
