#pragma once

#include <utility>

namespace distag {

// Holds a T that counts its own holders, by retain() and release().
template <typename T>
class Counted {
 public:
  Counted() = default;
  explicit Counted(T* object) : object_(object) {
    if (object_ != nullptr) object_->retain();
  }
  Counted(const Counted& other) : Counted(other.object_) {}
  Counted(Counted&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Counted& operator=(Counted other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Counted() {
    if (object_ != nullptr) object_->release();
  }

  T* get() const { return object_; }
  T* operator->() const { return object_; }
  T& operator*() const { return *object_; }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  T* object_ = nullptr;
};

}  // namespace distag
