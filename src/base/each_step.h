#pragma once

#include <exception>

namespace distag {

// Tries every step, whatever earlier steps have thrown: a teardown that runs out of memory half way still does the
// other half.
class EachStep {
 public:
  template <typename Step>
  void operator()(Step&& step) noexcept {
    try {
      step();
    } catch (...) {
      if (!first_) first_ = std::current_exception();
    }
  }

  bool has_failed() const { return static_cast<bool>(first_); }

  // Throws what the first failed step has thrown.
  void check() const {
    if (first_) std::rethrow_exception(first_);
  }

 private:
  std::exception_ptr first_;
};

}  // namespace distag
