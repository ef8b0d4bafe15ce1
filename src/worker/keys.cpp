#include "worker/keys.h"

#include <string_view>

#include "base/error.h"
#include "transport/zmq/group_key.h"
#include "transport/zmq/user_key.h"

namespace distag {
namespace {

constexpr const char* kFileVariable = "DISTAG_GROUP_KEY_FILE";

}  // namespace

Security load_security(const SecurityOptions& options, const std::function<const char*(const char*)>& get_environment) {
  Security security;
  security.allow_insecure = options.allow_insecure;
  if (!options.group_key.empty()) {
    security.group_key = group_key_of(options.group_key);
    return security;
  }
  const char* const path = get_environment(kFileVariable);
  if (path == nullptr || *path == '\0') {
    const bool has_user_key = !options.allow_insecure;
    if (has_user_key) security.user_key = [get_environment] { return user_key(get_environment); };
    return security;
  }
  try {
    security.group_key = group_key_of(read_secret(path));
  } catch (...) {
    throw current_error().add_context(kFileVariable);
  }
  return security;
}

}  // namespace distag
