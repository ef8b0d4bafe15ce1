#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

namespace distag {

template <typename Signature>
class UniqueFunction;

// A callable that can be moved and called, with room for small ones. Unlike std::function it may own move-only things,
// so a task carries buffers and handles without sharing them.
template <typename R, typename... Args>
class UniqueFunction<R(Args...)> {
 public:
  UniqueFunction() = default;
  UniqueFunction(std::nullptr_t) {}

  template <typename F, typename D = std::decay_t<F>>
  requires(!std::is_same_v<D, UniqueFunction> && std::is_invocable_r_v<R, D&, Args...>) UniqueFunction(F&& f) {
    if constexpr (sizeof(D) <= kRoom && alignof(D) <= alignof(std::max_align_t) &&
                  std::is_nothrow_move_constructible_v<D>) {
      ::new (static_cast<void*>(room_)) D(std::forward<F>(f));
      operations_ = &kInline<D>;
    } else {
      ::new (static_cast<void*>(room_)) D*(new D(std::forward<F>(f)));
      operations_ = &kHeap<D>;
    }
  }

  UniqueFunction(UniqueFunction&& other) noexcept { take(other); }
  UniqueFunction& operator=(UniqueFunction&& other) noexcept {
    if (this != &other) {
      reset();
      take(other);
    }
    return *this;
  }
  UniqueFunction(const UniqueFunction&) = delete;
  UniqueFunction& operator=(const UniqueFunction&) = delete;
  ~UniqueFunction() { reset(); }

  explicit operator bool() const { return operations_ != nullptr; }
  R operator()(Args... args) { return operations_->call(room_, std::forward<Args>(args)...); }

  // The type of the callable that it holds, which names where it was written; for people to read.
  const char* type_name() const { return operations_ == nullptr ? "nothing" : operations_->type_name(); }

  void reset() {
    if (operations_ != nullptr) std::exchange(operations_, nullptr)->destroy(room_);
  }

 private:
  static constexpr size_t kRoom = 6 * sizeof(void*);

  struct Operations {
    R (*call)(void*, Args&&...);
    void (*move)(void* from, void* to) noexcept;
    void (*destroy)(void*) noexcept;
    const char* (*type_name)();
  };

  template <typename D>
  static const char* name_of() {
    return __PRETTY_FUNCTION__;
  }

  template <typename D>
  static constexpr Operations kInline = {
      [](void* room, Args&&... args) -> R { return (*static_cast<D*>(room))(std::forward<Args>(args)...); },
      [](void* from, void* to) noexcept {
        ::new (to) D(std::move(*static_cast<D*>(from)));
        static_cast<D*>(from)->~D();
      },
      [](void* room) noexcept { static_cast<D*>(room)->~D(); }, &UniqueFunction::template name_of<D>};

  template <typename D>
  static constexpr Operations kHeap = {
      [](void* room, Args&&... args) -> R { return (**static_cast<D**>(room))(std::forward<Args>(args)...); },
      [](void* from, void* to) noexcept { ::new (to) D*(*static_cast<D**>(from)); },
      [](void* room) noexcept { delete *static_cast<D**>(room); }, &UniqueFunction::template name_of<D>};

  void take(UniqueFunction& other) noexcept {
    operations_ = std::exchange(other.operations_, nullptr);
    if (operations_ != nullptr) operations_->move(other.room_, room_);
  }

  const Operations* operations_ = nullptr;
  alignas(std::max_align_t) std::byte room_[kRoom];
};

using Task = UniqueFunction<void()>;

}  // namespace distag
