#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "transport/key_ring.h"
#include "transport/security.h"

namespace distag {

// The host's options about which workers may connect.
struct SecurityOptions {
  bool allow_insecure = false;
  std::string group_key;  // empty: the key in the file that DISTAG_GROUP_KEY_FILE names, if it is set
  // The key of this worker alone: its secret, else the one in the file that DISTAG_SECRET_KEY_FILE names; and the keys
  // of the other workers, else those in the file that DISTAG_PEER_KEYS_FILE names.
  std::optional<CurveKey> secret_key = std::nullopt;
  std::optional<KeyRing::Keys> peers = std::nullopt;
  std::string rendezvous_name = {};  // empty: DISTAG_RENDEZVOUS_NAME, else "worker0"
};

// Whether each worker has a key of its own: only then are names proved.
bool has_worker_keys(const SecurityOptions& options, const std::function<const char*(const char*)>& get_environment);

// Loads the keys when a worker starts. Without any, and without allow_insecure, loopback has the user's key. Keys of
// the options count before those of files, of either kind. Throws DENIED for a file that others may read, INVALID_STATE
// for one that cannot be read, INVALID_ARGUMENT for an invalid key, for one half of a worker's keys without the other,
// and for files of both kinds.
Security load_security(const SecurityOptions& options, const std::function<const char*(const char*)>& get_environment);

}  // namespace distag
