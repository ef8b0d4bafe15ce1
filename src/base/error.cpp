#include "base/error.h"

#include <new>

namespace distag {

const char* status_name(Status status) {
  switch (status) {
    case Status::kOk:
      return "OK";
    case Status::kInvalidArgument:
      return "INVALID_ARGUMENT";
    case Status::kInvalidState:
      return "INVALID_STATE";
    case Status::kNotFound:
      return "NOT_FOUND";
    case Status::kDenied:
      return "DENIED";
    case Status::kUnsupported:
      return "UNSUPPORTED";
    case Status::kOverloaded:
      return "OVERLOADED";
    case Status::kOutOfMemory:
      return "OUT_OF_MEMORY";
    case Status::kDisconnected:
      return "DISCONNECTED";
    case Status::kPeerRestarted:
      return "PEER_RESTARTED";
    case Status::kDeadline:
      return "DEADLINE";
    case Status::kCancelled:
      return "CANCELLED";
    case Status::kRemote:
      return "REMOTE";
    case Status::kProtocol:
      return "PROTOCOL";
    case Status::kInternal:
      return "INTERNAL";
    case Status::kGraphFreed:
      return "GRAPH_FREED";
    case Status::kUnreachedSend:
      return "UNREACHED_SEND";
    case Status::kDiverged:
      return "DIVERGED";
    case Status::kUser:
      return "USER";
  }
  return status > Status::kUser ? "USER" : "UNKNOWN";
}

Error current_error() noexcept {
  try {
    try {
      throw;
    } catch (const Error& error) {
      return error;
    } catch (const std::bad_alloc&) {
      // The error below says so.
    } catch (const std::exception& exception) {
      return Error(Status::kInternal, exception.what());
    } catch (...) {
      return Error(Status::kInternal, "an exception of an unknown type");
    }
  } catch (...) {
    // There is no memory for its text.
  }
  return Error(Status::kOutOfMemory, "out of memory");  // short enough to need none
}

}  // namespace distag
