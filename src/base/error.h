#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <exception>
#include <string>
#include <utility>

namespace distag {

// The numbers are those of distag_status_code; 1000 and above belong to host callbacks and travel unchanged.
enum class Status : int32_t {
  kOk = 0,
  kInvalidArgument = 10,
  kInvalidState = 11,
  kNotFound = 12,
  kDenied = 13,
  kUnsupported = 20,
  kOverloaded = 30,
  kOutOfMemory = 31,
  kDisconnected = 40,
  kPeerRestarted = 41,
  kDeadline = 50,
  kCancelled = 51,
  kRemote = 60,
  kProtocol = 61,
  kInternal = 62,
  kGraphFreed = 63,
  kUnreachedSend = 64,
  kDiverged = 65,
  kUser = 1000,
};

// "INVALID_ARGUMENT", "USER" from 1000 on, "UNKNOWN" for a number that has no name. Static text.
const char* status_name(Status status);

// A failure: its cause, its place and the remedy. Thrown by synchronous code, carried by futures and over the wire.
class Error : public std::exception {
 public:
  Error() = default;
  Error(Status status, std::string message) : status_(status), message_(std::move(message)) {}

  Status status() const { return status_; }
  const std::string& message() const { return message_; }
  const char* what() const noexcept override { return message_.c_str(); }

  // Worker on which it arose; -1: this process.
  int32_t origin_rank() const { return origin_rank_; }
  // Whether the called function ran, or may have run.
  bool may_have_run() const { return may_have_run_; }

  Error& set_origin_rank(int32_t rank) {
    origin_rank_ = rank;
    return *this;
  }
  Error& set_may_have_run(bool may_have_run) {
    may_have_run_ = may_have_run;
    return *this;
  }
  // Puts `where` and a colon before the message.
  Error& add_context(const std::string& where) {
    message_ = where + ": " + message_;
    return *this;
  }

 private:
  Status status_ = Status::kInternal;
  std::string message_;
  int32_t origin_rank_ = -1;
  bool may_have_run_ = false;
};

// The exception being handled as an Error: bad_alloc is OUT_OF_MEMORY, anything unknown INTERNAL. Call in a catch
// (...).
Error current_error() noexcept;

template <typename... Args>
[[noreturn]] void fail(Status status, fmt::format_string<Args...> text, Args&&... args) {
  throw Error(status, fmt::format(text, std::forward<Args>(args)...));
}

}  // namespace distag
