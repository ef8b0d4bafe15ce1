#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "transport/security.h"

namespace distag {

// Throws INVALID_ARGUMENT if one of these keys is the worker's own under another name. `own_name`: empty as long as the
// name is not known.
void check_own_key(const std::map<std::string, CurveKey>& keys, const CurveKey& own, const std::string& own_name);

// The workers that may connect, each under its name with a key of its own. May change while connections are open. Any
// thread.
class KeyRing {
 public:
  using Keys = std::map<std::string, CurveKey>;

  // Both throw INVALID_ARGUMENT if two names have one key: it would not identify the peer.
  explicit KeyRing(Keys keys);
  // Gives the names whose key is removed or has changed.
  std::vector<std::string> replace(Keys keys);

  // nullopt: the key belongs to no worker, so its holder is refused.
  std::optional<std::string> name_of(const CurveKey& key) const;
  // nullopt: no worker may have that name.
  std::optional<CurveKey> key_of(const std::string& name) const;
  // Changes with each replace().
  uint64_t version() const { return version_.load(std::memory_order_acquire); }

 private:
  using Names = std::map<CurveKey, std::string>;
  static Names names_of(const Keys& keys);

  mutable Mutex mutex_;
  Keys keys_ GUARDED_BY(mutex_);
  Names names_ GUARDED_BY(mutex_);
  std::atomic<uint64_t> version_{1};
};

}  // namespace distag
