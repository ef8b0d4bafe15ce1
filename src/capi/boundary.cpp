#include "capi/boundary.h"

#include <cstring>
#include <string_view>

#include "tensor/utf8.h"

namespace distag::capi {
namespace {

// Version 0.1 of the struct, which zeroed memory stands for.
constexpr uint32_t kErrorSize = 512;
static_assert(sizeof(distag_error) == kErrorSize);

// Cut between characters. Bytes of a message from elsewhere that are no UTF-8 are shown as '?'.
void copy_text(char* out, size_t capacity, std::string_view text) {
  text = text.substr(0, text.find('\0'));
  size_t size = text.size();
  if (size >= capacity) {
    size = capacity - 1;
    while (size > 0 && (static_cast<unsigned char>(text[size]) & 0xC0) == 0x80) --size;
  }
  const bool is_clean = is_valid_utf8(text.substr(0, size));
  for (size_t i = 0; i < size; ++i) {
    const bool is_shown = is_clean || static_cast<unsigned char>(text[i]) < 0x80;
    out[i] = is_shown ? text[i] : '?';
  }
  out[size] = '\0';
}

const char* kind_text(Kind kind) {
  switch (kind) {
    case Kind::kReleased:
      return "a handle that was released";
    case Kind::kValue:
      return "a value handle";
    case Kind::kTensor:
      return "a tensor handle";
    case Kind::kWorker:
      return "a worker handle";
    case Kind::kInvocation:
      return "an invocation handle";
    case Kind::kReply:
      return "a reply handle";
    case Kind::kFuture:
      return "a future handle";
    case Kind::kContext:
      return "a context handle";
    case Kind::kGradients:
      return "a gradients handle";
  }
  return "no handle of distag, or one that was released";
}

distag_status report_argument(const char* function, distag_error* err, const ArgumentError& error) {
  if (error.is_missing_handle() && is_usable(err) && err->code != DISTAG_OK) return err->code;
  Error told = error;
  return write_error(err, told.add_context(function));
}

}  // namespace

bool is_usable(const distag_error* err) {
  return err != nullptr && (err->struct_size == 0 || err->struct_size >= kErrorSize);
}

void write_error(distag_error* err, Status status, const char* message, int32_t origin_rank, bool may_have_run) {
  if (!is_usable(err)) return;
  err->code = static_cast<distag_status>(status);
  err->origin_rank = origin_rank;
  err->flags = may_have_run ? DISTAG_ERROR_MAY_HAVE_RUN : 0;
  copy_text(err->message, sizeof(err->message), message);
}

distag_status write_error(distag_error* err, const Error& error) {
  write_error(err, error.status(), error.message().c_str(), error.origin_rank(), error.may_have_run());
  return static_cast<distag_status>(error.status());
}

distag_status report(const char* function, distag_error* err) noexcept {
  try {
    try {
      throw;
    } catch (const ArgumentError& error) {
      return report_argument(function, err, error);
    } catch (const Error& error) {
      // A failure whose status says success is a defect.
      if (error.status() != Status::kOk) return write_error(err, error);
      return write_error(err, Error(Status::kInternal, error.message()));
    } catch (...) {
      Error error = current_error();
      return write_error(err, error.add_context(function));
    }
  } catch (...) {
    // There is not even memory for the message.
    write_error(err, Status::kOutOfMemory, "out of memory");
    return DISTAG_E_OUT_OF_MEMORY;
  }
}

void refuse_missing_handle(const char* name) {
  throw ArgumentError(Status::kInvalidArgument, fmt::format("{} is NULL", name), true);
}

void check_present(std::initializer_list<const void*> handles, std::initializer_list<const char*> names) {
  const char* const* name = names.begin();
  for (const void* handle : handles) {
    if (handle == nullptr) refuse_missing_handle(*name);
    ++name;
  }
}

void refuse_wrong_handle(const char* name, Kind kind) {
  refuse(Status::kInvalidArgument, "{} is {}", name, kind_text(kind));
}

void refuse_handle_of_parent(const char* name) {
  refuse(Status::kInvalidState, "{} was made before this process was forked; make a new one here", name);
}

void refuse_null(const char* name) { refuse(Status::kInvalidArgument, "{} is NULL", name); }

std::string need_text(const char* text, const char* name) {
  if (text == nullptr) refuse_null(name);
  std::string copy(text);
  if (!is_valid_utf8(copy)) refuse(Status::kInvalidArgument, "{} is not valid UTF-8", name);
  return copy;
}

bool need_flag(int64_t flag, const char* name) {
  if (flag != 0 && flag != 1) refuse(Status::kInvalidArgument, "{} is {}, not 0 or 1", name, flag);
  return flag == 1;
}

Nanos need_timeout(int64_t timeout, const char* name) {
  if (timeout < 0 && timeout != DISTAG_FOREVER) {
    refuse(Status::kInvalidArgument, "{} is {}: give nanoseconds, or DISTAG_FOREVER", name, timeout);
  }
  return timeout;
}

}  // namespace distag::capi
