#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "transport/key_ring.h"
#include "transport/security.h"

namespace distag {

// The host's word about who may connect.
struct SecurityOptions {
  bool allow_insecure = false;
  std::string group_key;  // empty: that of the file which DISTAG_GROUP_KEY_FILE names, if it is set
  // A key for this worker alone: its secret, else that of the file which DISTAG_SECRET_KEY_FILE names; and those of the
  // others, else of the file which DISTAG_PEER_KEYS_FILE names.
  std::optional<CurveKey> secret_key = std::nullopt;
  std::optional<KeyRing::Keys> peers = std::nullopt;
  std::string rendezvous_name = {};  // empty: DISTAG_RENDEZVOUS_NAME, else "worker0"
};

// Whether each worker has a key of its own: then names mean something.
bool has_worker_keys(const SecurityOptions& options, const std::function<const char*(const char*)>& get_environment);

// The keys themselves, as a worker starts; where none is given and allow_insecure is not set, loopback has that of the
// user. Keys of the options count before those of files, of either kind. Throws DENIED for a file that others may read,
// INVALID_STATE for one that cannot be read, INVALID_ARGUMENT for an invalid key, for one half of a worker's keys
// without the other, and for files of both kinds.
Security load_security(const SecurityOptions& options, const std::function<const char*(const char*)>& get_environment);

}  // namespace distag
