#pragma once

#include <functional>
#include <string>

#include "transport/security.h"

namespace distag {

// The host's word about who may connect.
struct SecurityOptions {
  bool allow_insecure = false;
  std::string group_key;  // empty: that of the file which DISTAG_GROUP_KEY_FILE names, if it is set
};

// The keys themselves, as a worker starts; where none is given and allow_insecure is not set, loopback has that of the
// user. Throws DENIED for a file that others may read, INVALID_STATE for one that
// cannot be read, INVALID_ARGUMENT for a key that is too short.
Security load_security(const SecurityOptions& options, const std::function<const char*(const char*)>& get_environment);

}  // namespace distag
