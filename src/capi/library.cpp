// Versions, statuses and errors.

#include <cstring>

#include "capi/boundary.h"

#define DISTAG_TEXT_OF(number) #number
#define DISTAG_TEXT(number) DISTAG_TEXT_OF(number)

using namespace distag::capi;

const char* distag_get_version(void) {
  return DISTAG_TEXT(DISTAG_VERSION_MAJOR) "." DISTAG_TEXT(DISTAG_VERSION_MINOR) "." DISTAG_TEXT(DISTAG_VERSION_PATCH);
}

uint64_t distag_get_handle_count(void) { return handle_count(); }
uint64_t distag_get_misuse_count(void) { return misuse_count(); }

const char* distag_status_get_name(distag_status status) {
  return distag::status_name(static_cast<distag::Status>(status));
}

distag_status distag_error_set(distag_error* err, distag_status code, const char* message) {
  write_error(err, static_cast<distag::Status>(code), message == nullptr ? "" : message);
  return code;
}
