#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "distag.h"

namespace distag::capi {

// What a handle of the C API is; the value stands in the object, so a wrong or released one can be told.
enum class Kind : uint32_t {
  kReleased = 0xD157A600,
  kValue,
  kTensor,  // is a value too
  kRref,    // likewise
  kWorker,
  kInvocation,
  kReply,
  kFuture,
  kContext,
  kGradients,
  kOptimizer,
};

// Base of all handles: counted, thread-safe. With DISTAG_VALIDATE=1 the memory of a handle is kept after its end, and
// says so. A handle of the parent process does nothing in a forked child.
class Handle {
 public:
  explicit Handle(Kind kind);
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  Kind kind() const { return kind_; }
  // Whether it was made before this process was forked.
  bool is_of_parent() const;

  void retain() { references_.fetch_add(1, std::memory_order_relaxed); }
  // False when it has ended.
  bool try_retain() {
    uint32_t now = references_.load(std::memory_order_relaxed);
    while (now != 0 && !references_.compare_exchange_weak(now, now + 1, std::memory_order_relaxed)) {
    }
    return now != 0;
  }
  void release() noexcept;

  // From now on one reference is its lender's: what the host releases beyond its own is ignored.
  void mark_lent() { is_lent_.store(true, std::memory_order_relaxed); }
  void release_by_lender() noexcept {
    is_lent_.store(false, std::memory_order_relaxed);
    release();
  }
  void release_by_caller() noexcept;

 protected:
  virtual ~Handle() = default;

  // Whether its end does no more than to free memory, also in a forked child.
  virtual bool is_plain_memory() const { return false; }

 private:
  void end() noexcept;

  const Kind kind_;
  const uint32_t generation_;
  std::atomic<uint32_t> references_{1};
  std::atomic<bool> is_lent_{false};
};

// One reference to a handle.
template <typename T>
class Ref {
 public:
  Ref() = default;
  // Takes over the reference that the caller has.
  static Ref take(T* handle) {
    Ref ref;
    ref.handle_ = handle;
    return ref;
  }
  static Ref share(T* handle) {
    if (handle != nullptr) handle->retain();
    return take(handle);
  }
  Ref(const Ref& other) : Ref(share(other.handle_)) {}
  Ref(Ref&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Ref& operator=(Ref other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Ref() {
    if (handle_ != nullptr) handle_->release();
  }

  T* get() const { return handle_; }
  T* operator->() const { return handle_; }
  T& operator*() const { return *handle_; }
  explicit operator bool() const { return handle_ != nullptr; }
  T* leave() { return std::exchange(handle_, nullptr); }

 private:
  T* handle_ = nullptr;
};

// A handle that its parent lends: made when first asked for, released with the parent. Thread-safe.
template <typename T>
class Lent {
 public:
  Lent() = default;
  Lent(const Lent&) = delete;
  Lent& operator=(const Lent&) = delete;
  ~Lent() {
    if (T* handle = handle_.load(std::memory_order_relaxed)) handle->release_by_lender();
  }

  // `make` gives a reference, or nullptr when there is nothing to lend.
  template <typename Make>
  T* get(Make&& make) {
    T* handle = handle_.load(std::memory_order_acquire);
    if (handle != nullptr) return handle;
    T* fresh = make();
    if (fresh == nullptr) return nullptr;
    fresh->mark_lent();
    if (handle_.compare_exchange_strong(handle, fresh, std::memory_order_acq_rel, std::memory_order_acquire)) {
      return fresh;
    }
    fresh->release();
    return handle;
  }

 private:
  std::atomic<T*> handle_{nullptr};
};

// Handles of this process that are not released yet.
uint64_t handle_count();

}  // namespace distag::capi
