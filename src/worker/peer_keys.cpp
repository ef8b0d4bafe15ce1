#include "worker/peer_keys.h"

#include <utility>

#include "transport/socket/worker_key.h"

namespace distag {

PeerKeys::PeerKeys(const std::optional<CurveKey>& own_secret) {
  if (!own_secret) return;
  MutexLock lock(mutex_);
  own_ = pair_of(*own_secret).public_key;
}

void PeerKeys::begin(const WorkerKeys& keys, const std::string& name) {
  MutexLock lock(mutex_);
  own_ = keys.own.public_key;
  if (changed_) check_own_key(*changed_, *own_, name);
  if (changed_) keys.peers->replace(*changed_);
  ring_ = keys.peers;
}

std::vector<std::string> PeerKeys::replace(KeyRing::Keys keys, const std::string& name) {
  KeyRing{KeyRing::Keys(keys)};  // throws for invalid keys
  MutexLock lock(mutex_);
  if (own_) check_own_key(keys, *own_, name);
  changed_ = keys;
  return ring_ == nullptr ? std::vector<std::string>{} : ring_->replace(std::move(keys));
}

}  // namespace distag
