#pragma once

#include <array>
#include <cstring>
#include <type_traits>
#include <vector>

#include "distag.h"
#include "fuzz/input.h"

namespace distag::fuzz {

// The kinds of handles that a program of calls makes by itself.
enum class Kind { kNone, kTensor, kValue, kContext, kGradients, kOptimizer, kMesh, kWorker, kRref };

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

// The handles that a program holds: the latest of them, each in one reference. What is dropped is let go between two
// steps, because a step, and those around it whose callbacks it runs in, go on with what they have picked.
class Handles {
 public:
  ~Handles() {
    for (Slot& slot : slots_) empty(slot);
    for (Slot& slot : waiting_) empty(slot);
  }

  template <typename T>
  void keep(T* handle) {
    drop(next_);
    slots_[next_] = {Traits<T>::kind, handle, Traits<T>::release};
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

  // Mostly one of the type, where there is one; at times NULL, or a live handle of whichever type.
  template <typename T>
  T* pick(Input& input) {
    const uint8_t choice = input.byte();
    if (choice < 8) return nullptr;
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
  };

  template <typename T>
  static bool is_of(const Slot& slot) {
    const bool is_value = slot.kind == Kind::kTensor || slot.kind == Kind::kRref;
    return slot.kind == Traits<T>::kind || (std::is_same_v<T, distag_value> && is_value);
  }
  static void empty(Slot& slot) {
    if (slot.kind != Kind::kNone) slot.release(slot.handle);
    slot = {};
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
