#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <type_traits>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/floating_mode.h"
#include "base/host_callback.h"
#include "base/no_cancel.h"
#include "capi/handle.h"
#include "distag.h"

namespace distag::capi {

// An argument that the boundary refuses; its text gets the name of the function in front.
class ArgumentError final : public Error {
 public:
  ArgumentError(Status status, std::string message, bool is_missing_handle = false)
      : Error(status, std::move(message)), is_missing_handle_(is_missing_handle) {}
  // Then a chain of calls on one err keeps the failure that err holds already.
  bool is_missing_handle() const { return is_missing_handle_; }

 private:
  bool is_missing_handle_;
};

template <typename... Args>
[[noreturn]] void refuse(Status status, fmt::format_string<Args...> text, Args&&... args) {
  throw ArgumentError(status, fmt::format(text, std::forward<Args>(args)...));
}

// Whether the caller gave an error that this library can write: NULL, or one of an unknown size, is left alone.
bool is_usable(const distag_error* err);
void write_error(distag_error* err, Status status, const char* message);
// Returns the status.
distag_status write_error(distag_error* err, const Error& error);

// The failure of a callback as an Error: its code if this version knows it (else REMOTE), and its text. `what` names
// the callback: `function "embed"`.
Error callback_error(distag_status status, const distag_error& err, const std::string& what);

// Call in a catch (...): returns the status, and fills err. Keeps the rule of chains, for every function.
distag_status report(const char* function, distag_error* err) noexcept;

// The bodies of all functions that do more than read their handle run in a guard or in release_handle(), where the
// thread is not cancelled. So nothing of distag is unwound, nor a callback that the body runs. A guard computes in the
// default floating-point mode, whatever the thread has.

// Every function with a status runs its body in here: nothing is thrown past it. Order inside a body: handles first (a
// missing one in a chain decides everything), then other arguments, then the work, then the out parameters.
template <typename Body>
distag_status guard(const char* function, distag_error* err, Body&& body) noexcept {
  const NoCancel no_cancel;
  const DefaultFloatingMode mode;
  const MakerScope scope(function);
  try {
    body();
    return DISTAG_OK;
  } catch (...) {
    return report(function, err);
  }
}

// For functions without a status.
template <typename Result, typename Body>
Result guard_or(Result failed, Body&& body) noexcept {
  const NoCancel no_cancel;
  const DefaultFloatingMode mode;
  try {
    return body();
  } catch (...) {
    return failed;
  }
}

// ---- handles ----

template <typename T>
struct KindOf;
template <>
struct KindOf<distag_tensor> : std::integral_constant<Kind, Kind::kTensor> {};
template <>
struct KindOf<distag_worker> : std::integral_constant<Kind, Kind::kWorker> {};
template <>
struct KindOf<distag_invocation> : std::integral_constant<Kind, Kind::kInvocation> {};
template <>
struct KindOf<distag_reply> : std::integral_constant<Kind, Kind::kReply> {};
template <>
struct KindOf<distag_future> : std::integral_constant<Kind, Kind::kFuture> {};
template <>
struct KindOf<distag_context> : std::integral_constant<Kind, Kind::kContext> {};
template <>
struct KindOf<distag_gradients> : std::integral_constant<Kind, Kind::kGradients> {};
template <>
struct KindOf<distag_rref> : std::integral_constant<Kind, Kind::kRref> {};
template <>
struct KindOf<distag_value> : std::integral_constant<Kind, Kind::kValue> {};

// Pointers are converted by address: the types are complete only where their module says so.
template <typename T>
Handle* as_handle(T* pointer) {
  return static_cast<Handle*>(static_cast<void*>(pointer));
}

// The handle itself, or the one it stands for.
template <typename T>
T* original_of(T* pointer) {
  Handle* handle = as_handle(pointer);
  if (handle->kind() != Kind::kStandIn) return pointer;
  return static_cast<T*>(static_cast<void*>(&static_cast<StandIn*>(handle)->original()));
}

// The kind of the handle, or of the one it stands for; kReleased also if the host has no reference any more.
template <typename T>
Kind kind_of(T* pointer) {
  return as_handle(pointer)->is_usable() ? as_handle(original_of(pointer))->kind() : Kind::kReleased;
}

template <typename T>
bool is_live(T* handle) {
  const Kind kind = kind_of(handle);
  return kind == KindOf<T>::value ||
         (std::is_same_v<T, distag_value> && (kind == Kind::kTensor || kind == Kind::kRref));
}

[[noreturn]] void refuse_missing_handle(const char* name);
[[noreturn]] void refuse_wrong_handle(const char* name, Kind kind);
[[noreturn]] void refuse_handle_of_parent(const char* name);

// A handle that the call needs. Throws for NULL, a wrong or released one, and one of the parent process.
template <typename T>
T& need(T* handle, const char* name) {
  if (handle == nullptr) refuse_missing_handle(name);
  if (!is_live(handle)) refuse_wrong_handle(name, kind_of(handle));
  if (as_handle(handle)->is_of_parent()) refuse_handle_of_parent(name);
  return *original_of(handle);
}

// For a call that needs several handles: checks first of all that none is NULL.
void check_present(std::initializer_list<const void*> handles, std::initializer_list<const char*> names);

// `items[3]`
std::string item_name(const char* array, size_t index);

// An item of an array, which a refusal names by its index.
template <typename T>
T& need_item(T* const* items, size_t index, const char* name) {
  T* const item = items[index];
  if (item != nullptr && is_live(item) && !as_handle(item)->is_of_parent()) return *original_of(item);
  return need(item, item_name(name, index).c_str());
}

// A handle that may be NULL.
template <typename T>
T* need_or_null(T* handle, const char* name) {
  return handle == nullptr ? nullptr : &need(handle, name);
}

// For functions without a status: nullptr where need() throws.
template <typename T>
T* peek(T* handle) {
  if (handle == nullptr || !is_live(handle) || as_handle(handle)->is_of_parent()) return nullptr;
  return original_of(handle);
}

// retain and release are for any live handle, those of the parent process included.
template <typename T>
void retain_handle(T* handle) {
  if (handle == nullptr) return;
  if (!is_live(handle) || !as_handle(handle)->retain_by_host()) note_misuse();
}
template <typename T>
void release_handle(T* handle) {
  if (handle == nullptr) return;
  const NoCancel no_cancel;
  if (!is_live(handle) || !as_handle(handle)->release_by_host()) note_misuse();
}

// The handle that a callback wrote to an out_ parameter, which passes to distag; empty for NULL and for anything but a
// handle of the type. One that was only lent to the callback is used, and stays its lender's.
template <typename T>
Ref<T> take_written(T* written) {
  if (written == nullptr || !is_live(written) || !written->try_retain()) return {};
  if (!written->release_by_host()) note_misuse();
  return Ref<T>::adopt(written);
}

// ---- other arguments ----

[[noreturn]] void refuse_null(const char* name);

// A pointer that must not be NULL.
template <typename T>
T& need_pointer(T* pointer, const char* name) {
  if (pointer == nullptr) refuse_null(name);
  return *pointer;
}

// An array, NULL only when it is empty.
template <typename T>
void check_array(const T* items, size_t count, const char* name) {
  if (items == nullptr && count > 0) refuse_null(name);
}

// An array that is copied: no process has room for more items than this.
inline constexpr size_t kMostItems = size_t{1} << 47;
[[noreturn]] void refuse_count(size_t count, const char* name);

template <typename T>
void check_copied_array(const T* items, size_t count, const char* name) {
  check_array(items, count, name);
  if (count > kMostItems) refuse_count(count, name);
}

// The user_data of a function and its destroy, which may run after the guard of that function.
class GivenData final : private NoCancel, public HostData {
 public:
  using HostData::HostData;
};

// Sets an out parameter to NULL or 0, before anything else.
template <typename T>
void clear(T* out) {
  if (out != nullptr) *out = T{};
}

// A text that must be there, in UTF-8.
std::string need_text(const char* text, const char* name);
// The same for an item of an array, which a refusal names by its index.
std::string need_text_item(const char* const* texts, size_t index, const char* name);

// Convention 5 for enumerators and flag bits: one that this version does not know is UNSUPPORTED. 0 is the default;
// `names` lists those there are.
void need_enumerator(int64_t value, int64_t last, const char* name, const char* names);
void need_known_bits(uint32_t bits, uint32_t known, const char* name);

// A flag: 0 or 1.
bool need_flag(int64_t flag, const char* name);

// A duration of the caller: not negative, or DISTAG_FOREVER.
Nanos need_timeout(int64_t timeout, const char* name);

}  // namespace distag::capi
