#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "transport/key_ring.h"
#include "transport/security.h"

namespace distag {

// The keys of the peers of a worker that has one of its own, as the host changes them: before the start for that start,
// later at once. No key of a peer is ever that of the worker itself under another name. Thread-safe.
class PeerKeys {
 public:
  // `own_secret`: of the options, if they give it.
  explicit PeerKeys(const std::optional<CurveKey>& own_secret);

  // The worker starts with these, of which changed ones take the place. `name`: its own, empty as long as it is not
  // known.
  void begin(const WorkerKeys& keys, const std::string& name);
  // Gives the names whose keys are others now, of those that could be connected. Throws INVALID_ARGUMENT for a key with
  // two names, and changes nothing then.
  std::vector<std::string> replace(KeyRing::Keys keys, const std::string& name);

 private:
  Mutex mutex_;
  std::optional<CurveKey> own_ GUARDED_BY(mutex_);           // once it is known
  std::shared_ptr<KeyRing> ring_ GUARDED_BY(mutex_);         // once it was started
  std::optional<KeyRing::Keys> changed_ GUARDED_BY(mutex_);  // the latest, for the next start
};

}  // namespace distag
