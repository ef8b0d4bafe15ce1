#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "transport/key_ring.h"
#include "transport/security.h"

namespace distag {

// The peers' keys of a worker that has a key of its own, as the host changes them: before the start for that start,
// later at once. A peer's key is never the worker's own under another name. Thread-safe.
class PeerKeys {
 public:
  // `own_secret`: from the options, if they give it.
  explicit PeerKeys(const std::optional<CurveKey>& own_secret);

  // Called at the start with the loaded keys; keys set by the host replace the peers'. `name`: the worker's own, empty
  // as long as it is not known.
  void begin(const WorkerKeys& keys, const std::string& name);
  // Gives the names of peers that could connect, and whose keys have changed. Throws INVALID_ARGUMENT for a key with
  // two names, and then changes nothing.
  std::vector<std::string> replace(KeyRing::Keys keys, const std::string& name);

 private:
  Mutex mutex_;
  std::optional<CurveKey> own_ GUARDED_BY(mutex_);           // set once it is known
  std::shared_ptr<KeyRing> ring_ GUARDED_BY(mutex_);         // set at the first start
  std::optional<KeyRing::Keys> changed_ GUARDED_BY(mutex_);  // the latest, for the next start
};

}  // namespace distag
