#include "capi/boundary.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "base/memory.h"
#include "base/not_started.h"
#include "tensor/utf8.h"

namespace distag::capi {
namespace {

// The struct in version 0.1; zeroed memory counts as that version.
constexpr uint32_t kErrorSize = 512;
static_assert(sizeof(distag_error) == kErrorSize);

bool is_inside_character(std::string_view text, size_t at) {
  return at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80;
}

// At most `size` bytes, cut between characters.
std::string_view head_of(std::string_view text, size_t size) {
  size = std::min(size, text.size());
  while (size > 0 && is_inside_character(text, size)) --size;
  return text.substr(0, size);
}

std::string_view tail_of(std::string_view text, size_t size) {
  size_t begin = text.size() - std::min(size, text.size());
  while (is_inside_character(text, begin)) ++begin;
  return text.substr(begin);
}

// Appends `text` at `out`. If it comes from elsewhere and is no UTF-8, all its non-ASCII bytes are shown as '?'.
char* append(char* out, std::string_view text) {
  const bool is_clean = is_valid_utf8(text);
  return std::transform(text.begin(), text.end(), out, [is_clean](char byte) {
    return is_clean || static_cast<unsigned char>(byte) < 0x80 ? byte : '?';
  });
}

constexpr size_t kMessageRoom = sizeof(distag_error::message) - 1;

void write_message(distag_error* err, std::string_view text) {
  *append(err->message, head_of(text, kMessageRoom)) = '\0';
}

// A failure with a long context has its cause at the end: what does not fit is left out of the middle.
void write_chain(distag_error* err, std::string_view text) {
  if (text.size() <= kMessageRoom) return write_message(err, text);
  constexpr std::string_view kGap = " ... ";
  constexpr size_t kHalf = (kMessageRoom - kGap.size()) / 2;
  char* end = append(err->message, head_of(text, kHalf));
  end = append(end, kGap);
  *append(end, tail_of(text, kHalf)) = '\0';
}

// An allocation that was refused left no room for more than its short text.
void add_remedy(distag_error* err) {
  const std::string_view text = err->message, remedy = kMemoryCure;
  const bool is_bare = text == "out of memory" || text.ends_with(": out of memory");
  if (!is_bare || text.size() + 2 + remedy.size() > kMessageRoom) return;
  char* const end = append(err->message + text.size(), ": ");
  *append(end, remedy) = '\0';
}

// Writes all but the message. False if err cannot be written.
bool write_head(distag_error* err, Status status, int32_t origin_rank, bool may_have_run) {
  if (!is_usable(err)) return false;
  err->code = static_cast<distag_status>(status);
  err->origin_rank = origin_rank;
  err->flags = may_have_run ? DISTAG_ERROR_MAY_HAVE_RUN : 0;
  return true;
}

const char* kind_text(Kind kind) {
  switch (kind) {
    case Kind::kReleased:
      return "a handle that was released";
    case Kind::kValue:
      return "a value handle";
    case Kind::kTensor:
      return "a tensor handle";
    case Kind::kRref:
      return "an rref handle";
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
    case Kind::kOptimizer:
      return "an optimizer handle";
    case Kind::kMesh:
      return "a mesh handle";
    case Kind::kLoader:
      return "a loader handle";
    case Kind::kPlan:
      return "a plan handle";
    case Kind::kStandIn:
      break;  // tells the kind of its original
  }
  return "no handle of distag, or one that was released";
}

distag_status report_argument(const char* function, distag_error* err, const ArgumentError& error) {
  const bool is_of_an_earlier_failure = error.is_missing_handle() || is_not_started(error);
  if (is_of_an_earlier_failure && is_usable(err) && err->code != DISTAG_OK) return err->code;
  Error told = error;
  return write_error(err, told.add_context(function));
}

// Whether a text begins by naming what failed, an op or a call: `matmul: ...`, `call "embed" on "ps1": ...`.
bool names_what_failed(std::string_view text) {
  const std::string_view lead = text.substr(0, text.find(": "));
  if (lead.size() == text.size()) return false;
  const bool is_word = lead.find(' ') == std::string_view::npos;
  const size_t quote = lead.find('"');
  return is_word || (quote != 0 && quote != std::string_view::npos);
}

// Adds the name of the function to errors about arguments, unless the text has a better one. A worker that could not be
// started is like a handle that could not be made: the earlier failure, which err holds, stays.
distag_status report_failure(const char* function, distag_error* err, const Error& error) {
  if (is_not_started(error) && is_usable(err) && err->code != DISTAG_OK) return err->code;
  const bool is_of_arguments = error.status() == Status::kInvalidArgument || error.status() == Status::kUnsupported;
  if (!is_of_arguments || error.origin_rank() >= 0 || names_what_failed(error.message())) {
    return write_error(err, error);
  }
  Error told = error;
  return write_error(err, told.add_context(function));
}

}  // namespace

bool is_usable(const distag_error* err) {
  return err != nullptr && (err->struct_size == 0 || err->struct_size >= kErrorSize);
}

void write_error(distag_error* err, Status status, const char* message) {
  if (write_head(err, status, -1, false)) write_message(err, message);
}

distag_status write_error(distag_error* err, const Error& error) {
  if (write_head(err, error.status(), error.origin_rank(), error.may_have_run())) {
    const std::string_view text = error.message();
    write_chain(err, text.substr(0, text.find('\0')));
    if (error.status() == Status::kOutOfMemory) add_remedy(err);
  }
  return static_cast<distag_status>(error.status());
}

Error callback_error(distag_status status, const distag_error& err, const std::string& what) {
  const auto code = static_cast<Status>(status);
  const bool is_known = status >= DISTAG_E_USER || (status > 0 && std::strcmp(status_name(code), "UNKNOWN") != 0);
  std::string message(err.message, strnlen(err.message, sizeof(err.message)));
  if (!is_valid_utf8(message)) {
    std::replace_if(
        message.begin(), message.end(), [](char byte) { return static_cast<unsigned char>(byte) >= 0x80; }, '?');
  }
  if (message.empty()) message = fmt::format("{} failed with status {} and no message", what, status);
  Error error(is_known ? code : Status::kRemote, std::move(message));
  // The failure of a call that the callback made keeps the place where it arose.
  if (err.code == status) error.set_origin_rank(err.origin_rank);
  return error;
}

distag_status report(const char* function, distag_error* err) noexcept {
  try {
    try {
      throw;
    } catch (const ArgumentError& error) {
      return report_argument(function, err, error);
    } catch (const Error& error) {
      // A failure whose status says success is a defect.
      if (error.status() != Status::kOk) return report_failure(function, err, error);
      return write_error(err, Error(Status::kInternal, error.message()));
    } catch (...) {
      Error error = current_error();
      return write_error(err, error.add_context(function));
    }
  } catch (...) {
    // There is not even memory for the message.
    return write_error(err, Error(Status::kOutOfMemory, "out of memory"));  // short enough to need none
  }
}

// How to make the handle that a parameter of that name wants; empty for names of several kinds.
std::string how_to_make(std::string_view name) {
  constexpr std::pair<std::string_view, const char*> kMakers[] = {
      {"worker", "distag_worker_create makes one (in C++ distag::worker with its options, as in distag::worker({}))"},
      {"context",
       "distag_context_create makes one (in C++ distag::context with its worker, or distag::context::local())"},
      {"optimizer", "distag_optimizer_create makes one"},
      {"mesh", "distag_mesh_create makes one"},
      {"rref", "distag_remote or distag_rref_create makes one"},
      {"future", "calls whose names end in _async make one"},
      {"tensor", "distag_tensor_create and all ops make one"},
  };
  for (const auto& [kind, text] : kMakers) {
    if (name == kind) return std::string(": ") + text;
  }
  return {};
}

void refuse_missing_handle(const char* name) {
  throw ArgumentError(Status::kInvalidArgument, fmt::format("{} is NULL{}", name, how_to_make(name)), true);
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

void refuse_count(size_t count, const char* name) {
  refuse(Status::kInvalidArgument, "{}: {} are more than memory can hold", name, count);
}

std::string need_text(const char* text, const char* name) {
  if (text == nullptr) refuse_null(name);
  std::string copy(text);
  if (!is_valid_utf8(copy)) refuse(Status::kInvalidArgument, "{} is not valid UTF-8", name);
  return copy;
}

std::string item_name(const char* array, size_t index) { return fmt::format("{}[{}]", array, index); }

std::string need_text_item(const char* const* texts, size_t index, const char* name) {
  return need_text(texts[index], item_name(name, index).c_str());
}

void need_enumerator(int64_t value, int64_t last, const char* name, const char* names) {
  if (value < 0 || value > last) refuse(Status::kUnsupported, "{} is {}, not one of {}", name, value, names);
}

void need_known_bits(uint32_t bits, uint32_t known, const char* name) {
  if ((bits & ~known) != 0) refuse(Status::kUnsupported, "{} {:#x} are unknown", name, bits);
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
