#include "worker/keys.h"

#include <string_view>

#include "base/error.h"
#include "base/regular_file.h"
#include "transport/zmq/group_key.h"

namespace distag {
namespace {

constexpr const char* kFileVariable = "DISTAG_GROUP_KEY_FILE";

// Without the end of line that editors and shells add.
std::string key_in(const std::string& path) {
  std::string key = read_private_file(path);
  while (!key.empty() && (key.back() == '\n' || key.back() == '\r')) key.pop_back();
  return key;
}

}  // namespace

Security load_security(const SecurityOptions& options, const std::function<const char*(const char*)>& get_environment) {
  Security security;
  security.allow_insecure = options.allow_insecure;
  if (!options.group_key.empty()) {
    security.group_key = group_key_of(options.group_key);
    return security;
  }
  const char* const path = get_environment(kFileVariable);
  if (path == nullptr || *path == '\0') return security;
  try {
    security.group_key = group_key_of(key_in(path));
  } catch (...) {
    throw current_error().add_context(kFileVariable);
  }
  return security;
}

}  // namespace distag
