// Failures: a status that the caller keeps, or an exception.
#ifndef DISTAG_STATUS_HPP
#define DISTAG_STATUS_HPP

#include <distag.h>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <exception>
#include <string>

#include "enums.hpp"

#if !defined(DISTAG_HPP_NO_EXCEPTIONS) && !defined(__cpp_exceptions)
#define DISTAG_HPP_NO_EXCEPTIONS
#endif

namespace distag {

using std::chrono::nanoseconds;
constexpr nanoseconds forever{DISTAG_FOREVER};

// How to go on after a failure: the tens of its code.
enum class remedy {
  none = 0,
  usage = 1,        // mend the call
  unsupported = 2,  // use another way
  retry = 3,        // wait and retry
  reconnect = 4,    // reconnect
  give_up = 5,      // time is up, or cancelled
  other = 6,        // read the message
  user = 100        // a function's own
};

// The outcome of one call or of a chain of them.
class status {
 public:
  status() noexcept { clear(); }
  explicit status(const distag_error& given) noexcept { raw_ = given; }

  // As with std::error_code, true is a failure.
  explicit operator bool() const noexcept { return raw_.code != DISTAG_OK; }
  bool ok() const noexcept { return raw_.code == DISTAG_OK; }
  errc code() const noexcept { return static_cast<errc>(raw_.code); }
  const char* name() const noexcept { return distag_status_get_name(raw_.code); }
  const char* message() const noexcept { return raw_.message; }
  int origin_rank() const noexcept { return raw_.origin_rank; }  // -1: this process
  bool may_have_run() const noexcept { return (raw_.flags & DISTAG_ERROR_MAY_HAVE_RUN) != 0; }
  remedy how_to_go_on() const noexcept {
    return raw_.code >= DISTAG_E_USER ? remedy::user : static_cast<remedy>(raw_.code / 10);
  }

  void clear() noexcept {
    raw_.struct_size = sizeof raw_;
    raw_.code = DISTAG_OK;
    raw_.origin_rank = -1;
    raw_.flags = 0;
    raw_.message[0] = '\0';
  }
  // A failure of the host's own: in a function, an op, a hook.
  void set(errc code, const char* message) noexcept {
    distag_error_set(&raw_, static_cast<distag_status>(code), message);
  }
  void set(errc code, const std::string& message) noexcept { set(code, message.c_str()); }
  void set(int code, const std::string& message) noexcept { set(static_cast<errc>(code), message.c_str()); }

  distag_error* raw() noexcept { return &raw_; }
  const distag_error* raw() const noexcept { return &raw_; }

 private:
  distag_error raw_;
};

// A failure as an exception. Its subclasses say how to go on.
class error : public std::exception {
 public:
  explicit error(const distag_error& given) noexcept : status_(given) {}
  // In a function: error(1042, "no such user") keeps its number on the way to the caller.
  error(errc code, const std::string& message) noexcept { status_.set(code, message); }
  error(int code, const std::string& message) noexcept : error(static_cast<errc>(code), message) {}

  const char* what() const noexcept override { return status_.message(); }
  const distag::status& status() const noexcept { return status_; }
  errc code() const noexcept { return status_.code(); }
  const char* name() const noexcept { return status_.name(); }
  int origin_rank() const noexcept { return status_.origin_rank(); }
  bool may_have_run() const noexcept { return status_.may_have_run(); }

 private:
  distag::status status_;
};

class usage_error : public error {
 public:
  using error::error;
};
class unsupported_error : public error {
 public:
  using error::error;
};
class retry_error : public error {
 public:
  using error::error;
};
class reconnect_error : public error {
 public:
  using error::error;
};
class gave_up_error : public error {
 public:
  using error::error;
};
class user_error : public error {
 public:
  using error::error;
};

namespace detail {

#ifndef DISTAG_HPP_NO_EXCEPTIONS
[[noreturn]] inline void raise(const distag_error& failure) {
  switch (status(failure).how_to_go_on()) {
    case remedy::usage:
      throw usage_error(failure);
    case remedy::unsupported:
      throw unsupported_error(failure);
    case remedy::retry:
      throw retry_error(failure);
    case remedy::reconnect:
      throw reconnect_error(failure);
    case remedy::give_up:
      throw gave_up_error(failure);
    case remedy::user:
      throw user_error(failure);
    case remedy::none:
    case remedy::other:
      break;
  }
  throw error(failure);
}
#endif

inline bool same_text(const char* a, const char* b) noexcept { return std::strcmp(a, b) == 0; }

}  // namespace detail

// The last parameter of each function that can fail. From a status: failures go there. From nothing: they are thrown.
class outcome {
 public:
#ifdef DISTAG_HPP_NO_EXCEPTIONS
  __attribute__((error("without exceptions this function needs a distag::status & as its last argument"))) outcome();
#else
  outcome() noexcept : raw_(&own_) { reset(); }
#endif
  outcome(status& given) noexcept : raw_(given.raw()) {}  // NOLINT: the implicit conversion is its purpose
  explicit outcome(distag_error* given) noexcept : raw_(given) {}
  outcome(const outcome& other) noexcept : raw_(other.throws() ? &own_ : other.raw_) {
    if (throws()) reset();
  }
  outcome& operator=(const outcome&) = delete;

  distag_error* raw() noexcept { return raw_; }
  bool throws() const noexcept { return raw_ == &own_; }

  // Whether the call succeeded; throws if it failed and was given no status.
  bool check(distag_status code) {
    if (code == DISTAG_OK) return true;
#ifndef DISTAG_HPP_NO_EXCEPTIONS
    if (throws()) detail::raise(own_);
#endif
    return false;
  }
  // Fails with a message of this layer, unless an earlier failure is there.
  bool fail(errc code, const std::string& message) {
    if (raw_->code == DISTAG_OK) distag_error_set(raw_, static_cast<distag_status>(code), message.c_str());
    return check(raw_->code);
  }
  bool failed() const noexcept { return raw_->code != DISTAG_OK; }

 private:
  void reset() noexcept {
    own_.struct_size = sizeof own_;
    own_.code = DISTAG_OK;
    own_.origin_rank = -1;
    own_.flags = 0;
    own_.message[0] = '\0';
  }

  distag_error* raw_;
  distag_error own_;  // used if failures are thrown
};

// The version of the library: "0.3.0".
inline const char* version() noexcept { return distag_get_version(); }

// Handles of this process that are not released yet.
inline std::uint64_t handle_count() noexcept { return distag_get_handle_count(); }

namespace detail {

// A text of the library whose length is known only when it has been written, such as a report.
template <class Copy>
std::string copy_text(Copy copy, outcome& err) {
  std::string text;
  std::size_t size = 0;
  if (!err.check(copy(nullptr, std::size_t{0}, &size, err.raw()))) return text;
  for (;;) {
    text.resize(size + 256);  // it may grow in between
    if (!err.check(copy(&text[0], text.size(), &size, err.raw()))) return {};
    if (size < text.size()) break;
  }
  text.resize(size);
  return text;
}

}  // namespace detail

// Live handles in JSON, by kind.
inline std::string handle_report(outcome err = {}) { return detail::copy_text(distag_copy_handle_report, err); }

}  // namespace distag

#endif
