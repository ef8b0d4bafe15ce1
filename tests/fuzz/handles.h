#pragma once

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

#include "distag.h"
#include "fuzz/input.h"

namespace distag::fuzz {

// The kinds of handles that a program of calls makes by itself.
enum class Kind { kNone, kTensor, kValue, kContext, kGradients, kOptimizer, kMesh, kWorker, kRref, kFuture };

inline void end_worker(distag_worker* worker) {  // on this thread
  distag_worker_shutdown(worker, 0, nullptr, nullptr);
  distag_worker_release(worker);
}

template <typename T>
struct Traits;
template <Kind kKind, typename T, void (*kRelease)(T*)>
struct TraitsOf {
  static constexpr Kind kind = kKind;
  static void release(void* handle) { kRelease(static_cast<T*>(handle)); }
};
template <>
struct Traits<distag_tensor> : TraitsOf<Kind::kTensor, distag_tensor, distag_tensor_release> {};
template <>
struct Traits<distag_value> : TraitsOf<Kind::kValue, distag_value, distag_value_release> {};
template <>
struct Traits<distag_context> : TraitsOf<Kind::kContext, distag_context, distag_context_release> {};
template <>
struct Traits<distag_gradients> : TraitsOf<Kind::kGradients, distag_gradients, distag_gradients_release> {};
template <>
struct Traits<distag_optimizer> : TraitsOf<Kind::kOptimizer, distag_optimizer, distag_optimizer_release> {};
template <>
struct Traits<distag_mesh> : TraitsOf<Kind::kMesh, distag_mesh, distag_mesh_release> {};
template <>
struct Traits<distag_worker> : TraitsOf<Kind::kWorker, distag_worker, end_worker> {};
template <>
struct Traits<distag_rref> : TraitsOf<Kind::kRref, distag_rref, distag_rref_release> {};
template <>
struct Traits<distag_future> : TraitsOf<Kind::kFuture, distag_future, distag_future_release> {};

// With DISTAG_VALIDATE=1 a handle is there after its end, and says so.
inline bool validates() {
  static const bool is_on = std::getenv("DISTAG_VALIDATE") != nullptr;
  return is_on;
}

// Whether a call with the handle that has ended answers that.
bool is_refused(Kind kind, void* handle);

// The handles that a program holds: the latest of them, each in one reference. What is dropped is let go between two
// steps, because a step, and those around it whose callbacks it runs in, go on with what they have picked. Where calls
// are validated, those that have ended are picked too.
class Handles {
 public:
  ~Handles() {
    for (Slot& slot : slots_) empty(slot);
    for (Slot& slot : waiting_) empty(slot);
  }

  // `is_own`: it ends with its last reference here; else it may be lent.
  template <typename T>
  void keep(T* handle, bool is_own) {
    drop(next_);
    slots_[next_] = {Traits<T>::kind, handle, Traits<T>::release, is_own};
    next_ = (next_ + 1) % slots_.size();
  }
  void drop(size_t place) {
    Slot& slot = slots_[place % slots_.size()];
    if (slot.kind == Kind::kNone) return;
    waiting_.push_back(slot);
    slot = {};
    let_go();
  }
  void begin_step() { ++depth_; }
  void end_step() {
    --depth_;
    let_go();
  }
  int depth() const { return depth_; }

  // Mostly one of the type, where there is one; at times NULL, a live handle of whichever type, or one that has ended.
  template <typename T>
  T* pick(Input& input) {
    const uint8_t choice = input.byte();
    if (choice < 8) return nullptr;
    if (choice < 40 && !ended_.empty()) return static_cast<T*>(ended_[choice % ended_.size()]);
    for (size_t i = 0; i < slots_.size(); ++i) {
      const Slot& slot = slots_[(choice + i) % slots_.size()];
      if (choice >= 248 ? slot.kind != Kind::kNone : is_of<T>(slot)) return static_cast<T*>(slot.handle);
    }
    return nullptr;
  }

 private:
  struct Slot {
    Kind kind = Kind::kNone;
    void* handle = nullptr;
    void (*release)(void*) = nullptr;
    bool is_own = false;
  };

  template <typename T>
  static bool is_of(const Slot& slot) {
    const bool is_value = slot.kind == Kind::kTensor || slot.kind == Kind::kRref;
    return slot.kind == Traits<T>::kind || (std::is_same_v<T, distag_value> && is_value);
  }
  void empty(Slot& slot) {
    if (slot.kind == Kind::kNone) return;
    const Slot before = std::exchange(slot, {});
    before.release(before.handle);
    const auto is_same = [&before](const Slot& other) { return other.handle == before.handle; };
    if (!validates() || std::any_of(slots_.begin(), slots_.end(), is_same) ||
        std::any_of(waiting_.begin(), waiting_.end(), is_same)) {
      return;
    }
    ended_.push_back(before.handle);
    if (before.is_own) check_ended(before);
  }
  // An ended handle is refused, and another release of it is counted and does nothing.
  static void check_ended(const Slot& slot) {
    check(is_refused(slot.kind, slot.handle));
    const uint64_t misuses = distag_get_misuse_count();
    const uint64_t handles = distag_get_handle_count();
    slot.release(slot.handle);
    check(distag_get_misuse_count() == misuses + 1 && distag_get_handle_count() == handles);
  }
  void let_go() {
    while (depth_ == 0 && !waiting_.empty()) {
      Slot slot = waiting_.back();
      waiting_.pop_back();
      empty(slot);
    }
  }

  std::array<Slot, 24> slots_;
  std::vector<Slot> waiting_;
  std::vector<void*> ended_;
  size_t next_ = 0;
  int depth_ = 0;
};

// Makes a call with an error of its own, and checks that the two agree.
template <typename Body>
distag_status call(Body&& body) {
  distag_error err = DISTAG_ERROR_INIT;
  const distag_status status = body(&err);
  check(status == err.code && status != DISTAG_E_INTERNAL);
  check(status == DISTAG_OK ||
        (err.message[0] != '\0' && strnlen(err.message, sizeof err.message) < sizeof err.message));
  return status;
}

}  // namespace distag::fuzz
