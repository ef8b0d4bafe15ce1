// The part that all handles share: they count references.
#ifndef DISTAG_HANDLE_HPP
#define DISTAG_HANDLE_HPP

#include <cstddef>
#include <utility>

#include "status.hpp"

namespace distag {
namespace detail {

// A reference to a handle of C. Its size is that of a pointer, so that an array of these is an array of handles.
template <class Raw, void (*Retain)(Raw*), void (*Release)(Raw*)>
class handle {
 public:
  handle() noexcept = default;
  explicit handle(Raw* owned) noexcept : raw_(owned) {}
  static handle retained(Raw* lent) noexcept {
    if (lent != nullptr) Retain(lent);
    return handle(lent);
  }
  handle(const handle& other) noexcept : raw_(other.raw_) {
    if (raw_ != nullptr) Retain(raw_);
  }
  handle(handle&& other) noexcept : raw_(std::exchange(other.raw_, nullptr)) {}
  handle& operator=(handle other) noexcept {
    std::swap(raw_, other.raw_);
    return *this;
  }
  ~handle() {
    if (raw_ != nullptr) Release(raw_);
  }

  explicit operator bool() const noexcept { return raw_ != nullptr; }
  Raw* get() const noexcept { return raw_; }                        // lent
  Raw* release() noexcept { return std::exchange(raw_, nullptr); }  // the caller's, to be released
  void close() noexcept { *this = handle(); }                       // releases now; twice is allowed
  Raw** put() noexcept {                                            // for an out_ parameter
    close();
    return &raw_;
  }

 private:
  Raw* raw_ = nullptr;
};

}  // namespace detail
}  // namespace distag

#endif
