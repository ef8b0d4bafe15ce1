#include "worker/keys.h"

#include <string_view>
#include <utility>

#include "base/error.h"
#include "transport/socket/group_key.h"
#include "transport/socket/user_key.h"
#include "transport/socket/worker_key.h"

namespace distag {
namespace {

using Environment = std::function<const char*(const char*)>;

constexpr const char* kGroupFile = "DISTAG_GROUP_KEY_FILE";
constexpr const char* kSecretFile = "DISTAG_SECRET_KEY_FILE";
constexpr const char* kPeersFile = "DISTAG_PEER_KEYS_FILE";
constexpr const char* kRendezvousName = "DISTAG_RENDEZVOUS_NAME";

// Empty: the variable is not set.
std::string text_of(const Environment& get_environment, const char* variable) {
  const char* const value = get_environment(variable);
  return value == nullptr ? std::string() : std::string(value);
}

// The result of `parse` for the file that a variable names.
template <typename Parse>
auto read_file_of(const char* variable, const std::string& path, Parse parse) {
  try {
    return parse(read_secret(path));
  } catch (...) {
    throw current_error().add_context(variable);
  }
}

WorkerKeys load_worker_keys(const SecurityOptions& options, const Environment& get_environment) {
  const std::string secret_file = text_of(get_environment, kSecretFile);
  const std::string peers_file = text_of(get_environment, kPeersFile);
  if (!options.secret_key && secret_file.empty()) {
    fail(Status::kInvalidArgument,
         "the keys of other workers are given, but none of this one: give secret_key, or a file by {}", kSecretFile);
  }
  if (!options.peers && peers_file.empty()) {
    fail(Status::kInvalidArgument,
         "this worker has a key of its own, but none of others: give peer_names and peer_keys, or a file by {}",
         kPeersFile);
  }
  WorkerKeys keys;
  keys.own = pair_of(options.secret_key ? *options.secret_key
                                        : read_file_of(kSecretFile, secret_file, [](const std::string& text) {
                                            return parse_key(text, "what the file holds");
                                          }));
  keys.peers = std::make_shared<KeyRing>(
      options.peers ? *options.peers : read_file_of(kPeersFile, peers_file, [](const std::string& text) {
        return parse_key_list(text);
      }));
  keys.rendezvous_name = options.rendezvous_name;
  if (keys.rendezvous_name.empty()) keys.rendezvous_name = text_of(get_environment, kRendezvousName);
  if (keys.rendezvous_name.empty()) keys.rendezvous_name = "worker0";
  return keys;
}

}  // namespace

bool has_worker_keys(const SecurityOptions& options, const Environment& get_environment) {
  if (!options.group_key.empty()) return false;
  return options.secret_key || options.peers || !text_of(get_environment, kSecretFile).empty() ||
         !text_of(get_environment, kPeersFile).empty();
}

Security load_security(const SecurityOptions& options, const Environment& get_environment) {
  Security security;
  security.allow_insecure = options.allow_insecure;
  if (!options.group_key.empty()) {
    security.group_key = group_key_of(options.group_key);
    return security;
  }
  const std::string group_file = text_of(get_environment, kGroupFile);
  const bool is_for_worker = has_worker_keys(options, get_environment);
  const bool is_by_files = !options.secret_key && !options.peers;
  if (is_for_worker && is_by_files && !group_file.empty()) {
    fail(Status::kInvalidArgument, "{} is set, and so is {} or {}: a group has one key, or one for each worker",
         kGroupFile, kSecretFile, kPeersFile);
  }
  if (is_for_worker) {
    security.worker_keys = load_worker_keys(options, get_environment);
  } else if (!group_file.empty()) {
    security.group_key =
        read_file_of(kGroupFile, group_file, [](const std::string& text) { return group_key_of(text); });
  } else if (!options.allow_insecure) {
    security.user_key = [get_environment] { return user_key(get_environment); };
  }
  return security;
}

}  // namespace distag
