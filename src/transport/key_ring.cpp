#include "transport/key_ring.h"

#include <utility>

#include "base/error.h"

namespace distag {

void check_own_key(const std::map<std::string, CurveKey>& keys, const CurveKey& own, const std::string& own_name) {
  if (own_name.empty()) return;
  for (const auto& [name, key] : keys) {
    if (key != own || name == own_name) continue;
    fail(Status::kInvalidArgument,
         "the key of worker \"{}\" is that of this worker, \"{}\": give the public key that was made for \"{}\"", name,
         own_name, name);
  }
}

KeyRing::KeyRing(Keys keys) : keys_(std::move(keys)), names_(names_of(keys_)) {}

KeyRing::Names KeyRing::names_of(const Keys& keys) {
  Names names;
  for (const auto& [name, key] : keys) {
    const auto [other, is_new] = names.emplace(key, name);
    if (!is_new) {
      fail(Status::kInvalidArgument, "workers \"{}\" and \"{}\" have one key: give each its own", other->second, name);
    }
  }
  return names;
}

std::vector<std::string> KeyRing::replace(Keys keys) {
  Names names = names_of(keys);
  std::vector<std::string> changed;
  MutexLock lock(mutex_);
  for (const auto& [name, key] : keys_) {
    const auto now = keys.find(name);
    if (now == keys.end() || now->second != key) changed.push_back(name);
  }
  keys_.swap(keys);
  names_.swap(names);
  version_.fetch_add(1, std::memory_order_release);
  return changed;
}

std::optional<std::string> KeyRing::name_of(const CurveKey& key) const {
  MutexLock lock(mutex_);
  const auto found = names_.find(key);
  if (found == names_.end()) return std::nullopt;
  return found->second;
}

std::optional<CurveKey> KeyRing::key_of(const std::string& name) const {
  MutexLock lock(mutex_);
  const auto found = keys_.find(name);
  if (found == keys_.end()) return std::nullopt;
  return found->second;
}

}  // namespace distag
