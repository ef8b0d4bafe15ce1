#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

namespace distag::capi {

// The kind of a handle of the C API. The value is stored in the object, so that a wrong or released one is noticed.
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
  kMesh,
  kLoader,
  kPlan,
  kStandIn,  // for a handle of another kind; not counted
};

// DISTAG_VALIDATE of the environment, as it was when first asked for.
enum class Validation : int { kUnknown, kOff, kOn };
inline std::atomic<Validation> validation{Validation::kUnknown};
bool read_validation();
inline bool validates() {
  const Validation now = validation.load(std::memory_order_relaxed);
  return now == Validation::kUnknown ? read_validation() : now == Validation::kOn;
}

// The birth of a handle, for the report; kept for ever, as the handle's memory is. With DISTAG_VALIDATE=1 only.
struct HandleRecord;

// Base of all handles. References of the host and of the library are counted apart, so that the host never drops one of
// the library; the handle ends with the last of both. Thread-safe. With DISTAG_VALIDATE=1 the memory of an ended handle
// is kept, marked as released. A handle of the parent process does nothing in a forked child.
class Handle {
 public:
  // With one reference, the host's.
  explicit Handle(Kind kind);
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  Kind kind() const { return kind_; }
  // Whether it was made before this process was forked.
  bool is_of_parent() const;
  // Whether the host may use it: it is lent, or the host has a reference.
  bool is_usable() const { return is_lent_ || references_.load(std::memory_order_relaxed) >= kHost; }

  // Add or drop a reference of the host. False, and nothing is done, if the handle has ended, or the host has no
  // reference to drop.
  virtual bool retain_by_host() noexcept { return add_unless_ended(kHost); }
  virtual bool release_by_host() noexcept { return drop_host_reference() != Dropped::kNone; }

  // References of the library.
  void retain() { references_.fetch_add(kLibrary, std::memory_order_relaxed); }
  // False when it has ended.
  bool try_retain() noexcept { return add_unless_ended(kLibrary); }
  void release() noexcept;

  // A reference that the host has becomes one of the library, and the other way round.
  void pass_to_library() { references_.fetch_sub(kHost - kLibrary, std::memory_order_relaxed); }
  void pass_to_host() { references_.fetch_add(kHost - kLibrary, std::memory_order_relaxed); }
  // Call once, before the host sees the handle: its one reference is its lender's.
  void mark_lent();

 protected:
  enum class Dropped { kNone, kOne, kLast };

  virtual ~Handle();

  Dropped drop_host_reference() noexcept;
  // Whether the end of the handle only frees memory: then it may end in a forked child, too.
  virtual bool is_plain_memory() const { return false; }

 private:
  static constexpr uint64_t kLibrary = 1;
  static constexpr uint64_t kHost = uint64_t{1} << 32;

  bool add_unless_ended(uint64_t reference) noexcept;
  void end() noexcept;

  const Kind kind_;
  const uint32_t generation_;
  std::atomic<uint64_t> references_;
  HandleRecord* const record_;  // nullptr: no record is kept
  bool is_lent_ = false;
};

// A reference of the library to a handle.
template <typename T>
class Ref {
 public:
  Ref() = default;
  // Takes over the reference that a new handle has.
  static Ref take(T* handle) {
    if (handle != nullptr) handle->pass_to_library();
    return adopt(handle);
  }
  // Takes over a reference of the library.
  static Ref adopt(T* handle) {
    Ref ref;
    ref.handle_ = handle;
    return ref;
  }
  static Ref share(T* handle) {
    if (handle != nullptr) handle->retain();
    return adopt(handle);
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
  // Passes the reference to the host.
  T* give() {
    if (handle_ != nullptr) handle_->pass_to_host();
    return std::exchange(handle_, nullptr);
  }

 private:
  T* handle_ = nullptr;
};

// The only way to lend: a handle of its own, made at the first request, whose reference is the lender's. It ends with
// its lender, or with the last reference that the host has added. Thread-safe.
template <typename T>
class Lent {
 public:
  Lent() = default;
  // Lends a new handle.
  explicit Lent(T* fresh) : handle_(fresh) { fresh->mark_lent(); }
  Lent(const Lent&) = delete;
  Lent& operator=(const Lent&) = delete;
  ~Lent() {
    if (T* handle = get()) handle->release();
  }

  T* get() const { return handle_.load(std::memory_order_acquire); }
  // `make` gives a new handle, or nullptr when there is nothing to lend.
  template <typename Make>
  T* get(Make&& make) {
    T* handle = get();
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

// Stands for a lent handle that the host may also hold itself: so a release of the lent one differs from a release of
// the host's own. It ends before its original does. References that the host adds to it count for both, so that the
// original lives as long.
class StandIn final : public Handle {
 public:
  explicit StandIn(Handle& original) : Handle(Kind::kStandIn), original_(original) {}

  Handle& original() const { return original_; }
  // As the type of the original, for the host.
  template <typename T>
  T* as() {
    return static_cast<T*>(static_cast<void*>(this));
  }

  bool retain_by_host() noexcept override { return original_.retain_by_host() && Handle::retain_by_host(); }
  bool release_by_host() noexcept override {
    const auto original = Ref<Handle>::share(&original_);  // the last release ends both
    return Handle::release_by_host() && original->release_by_host();
  }

 private:
  Handle& original_;
};

// Names the function of the C API that the calling thread is in, as the maker of the handles made meanwhile. Nests.
class MakerScope {
 public:
  explicit MakerScope(const char* function) : is_on_(validates()) {
    if (is_on_) before_ = exchange(function);
  }
  ~MakerScope() {
    if (is_on_) exchange(before_);
  }
  MakerScope(const MakerScope&) = delete;
  MakerScope& operator=(const MakerScope&) = delete;

 private:
  static const char* exchange(const char* function);

  const bool is_on_;
  const char* before_ = nullptr;
};

// Handles of this process that are not released yet.
uint64_t handle_count();
// The same in JSON, by kind; with DISTAG_VALIDATE=1 each of them with its maker and age.
std::string handle_report();

// A retain or release of a handle that was not the host's. Counted with DISTAG_VALIDATE=1.
void note_misuse();
uint64_t misuse_count();

}  // namespace distag::capi
