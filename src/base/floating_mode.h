#pragma once

#include <cstdint>

#if !defined(__x86_64__)
#include <cfenv>
#endif

namespace distag {

// How a thread computes with floating-point numbers: how it rounds, whether it takes subnormal numbers as 0, and what
// raises SIGFPE. Each thread has its own mode, and a new thread inherits that of its creator.
class FloatingMode {
 public:
#if defined(__x86_64__)
  static FloatingMode of_this_thread() noexcept {
    FloatingMode mode;
    mode.vectors_ = __builtin_ia32_stmxcsr();
    asm volatile("fnstcw %0" : "=m"(mode.x87_));
    return mode;
  }
  // The mode in which a process starts: to the nearest, half to even, subnormal numbers count, nothing traps.
  bool is_default() const noexcept {
    return (vectors_ & ~kVectorFlags) == kVectorDefault && (x87_ & kX87Control) == kX87Default;
  }
  bool is_like(const FloatingMode& other) const noexcept {
    return ((vectors_ ^ other.vectors_) & ~kVectorFlags) == 0 && ((x87_ ^ other.x87_) & kX87Control) == 0;
  }
#else
  static FloatingMode of_this_thread() noexcept {
    FloatingMode mode;
    std::fegetenv(&mode.environment_);
    mode.rounding_ = std::fegetround();
    return mode;
  }
  bool is_default() const noexcept { return rounding_ == FE_TONEAREST; }
  bool is_like(const FloatingMode& other) const noexcept { return rounding_ == other.rounding_; }
#endif
  void set() const noexcept;
  static void set_default() noexcept;

 private:
#if defined(__x86_64__)
  static constexpr uint32_t kVectorFlags = 0x3F;  // raised by operations, no part of the mode
  static constexpr uint32_t kVectorDefault = 0x1F80;
  static constexpr uint16_t kX87Control = 0x0F3F;  // rounding, precision, traps
  static constexpr uint16_t kX87Default = 0x033F;
  uint32_t vectors_ = kVectorDefault;
  uint16_t x87_ = kX87Default;
#else
  std::fenv_t environment_;
  int rounding_ = FE_TONEAREST;
#endif
};

// The calling thread has the default mode as long as this lives, and afterwards its own again. Nests.
class DefaultFloatingMode {
 public:
  DefaultFloatingMode() noexcept : before_(FloatingMode::of_this_thread()) {
    if (!before_.is_default()) [[unlikely]]
      enter();
  }
  ~DefaultFloatingMode() {
    if (is_entered_) [[unlikely]]
      leave();
  }
  DefaultFloatingMode(const DefaultFloatingMode&) = delete;
  DefaultFloatingMode& operator=(const DefaultFloatingMode&) = delete;

 private:
  void enter() noexcept;
  void leave() noexcept;

  const FloatingMode before_;
  bool is_entered_ = false;
  const FloatingMode* outer_ = nullptr;
};

// Around host code: the thread has the mode with which it entered distag. A mode that host code sets ends with this.
class HostFloatingMode {
 public:
  HostFloatingMode() noexcept;
  ~HostFloatingMode();
  HostFloatingMode(const HostFloatingMode&) = delete;
  HostFloatingMode& operator=(const HostFloatingMode&) = delete;

 private:
  const FloatingMode before_;
  const FloatingMode* const of_host_;
};

}  // namespace distag
