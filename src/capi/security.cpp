// Keys of workers, and what a name may do.

#include <cstdlib>
#include <cstring>
#include <utility>

#include "capi/struct_check.h"
#include "capi/worker.h"
#include "transport/socket/group_key.h"
#include "transport/socket/worker_key.h"

namespace distag::capi {

namespace {

constexpr size_t kLongestName = 127;

KeyRing::Keys need_peers(const char* const* names, const char* const* keys, size_t count, const char* what) {
  if (count > 0 && (names == nullptr || keys == nullptr)) refuse_null(what);
  KeyRing::Keys peers;
  for (size_t i = 0; i < count; ++i) {
    std::string name = need_worker_name(names[i], item_name(what, i).c_str());
    const std::string which = fmt::format("the key of worker \"{}\"", name);
    const CurveKey key = parse_key(need_text(keys[i], which.c_str()), which.c_str());
    if (!peers.emplace(name, key).second) refuse(Status::kInvalidArgument, "{}: \"{}\" is there twice", what, name);
  }
  KeyRing{peers};  // throws if two names have one key
  return peers;
}

void read_own_key(const distag_security_options& security, SecurityOptions& made) {
  if (security.secret_key == nullptr) {
    if (security.public_key == nullptr) return;
    refuse(Status::kInvalidArgument, "public_key is given without its secret_key");
  }
  const std::string secret = need_text(security.secret_key, "secret_key");
  made.secret_key = parse_key(secret, "secret_key");
  if (security.public_key == nullptr) return;
  if (parse_key(need_text(security.public_key, "public_key"), "public_key") == pair_of(*made.secret_key).public_key) {
    return;
  }
  refuse(Status::kInvalidArgument, "public_key is not that of secret_key");
}

}  // namespace

std::string text_or(const char* text, const char* fallback, const char* name) {
  return text == nullptr ? fallback : need_text(text, name);
}

std::string need_worker_name(const char* text, const char* what) {
  std::string name = need_text(text, what);
  const bool has_good_size = !name.empty() && name.size() <= kLongestName;
  const bool has_good_letters =
      name.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.:") == std::string::npos;
  if (has_good_size && has_good_letters) return name;
  refuse(Status::kInvalidArgument, "{} \"{}\" is not 1 to {} of A-Z a-z 0-9 _ - . :", what, name, kLongestName);
}

std::vector<std::string> need_worker_names(const char* const* names, size_t count, const char* what) {
  if (names == nullptr && count > 0) refuse_null(what);
  std::vector<std::string> list;
  for (size_t i = 0; i < count; ++i) list.push_back(need_worker_name(names[i], item_name(what, i).c_str()));
  return list;
}

void make_security(const distag_security_options* given, ThreadedOptions& made) {
  const distag_security_options security = read_struct(given, "distag_security_options", kFirstSecurityOptions);
  if (security.allow_insecure > 1) {
    refuse(Status::kInvalidArgument, "distag_security_options.allow_insecure is {}, not 0 or 1",
           security.allow_insecure);
  }
  SecurityOptions& keys = made.security;
  keys.allow_insecure = security.allow_insecure == 1;
  keys.group_key = text_or(security.group_key, "", "distag_security_options.group_key");
  if (security.group_key != nullptr) static_cast<void>(group_key_of(keys.group_key));
  read_own_key(security, keys);
  if (security.peer_count > 0) {
    keys.peers = need_peers(security.peer_names, security.peer_keys, security.peer_count, "peer_names");
  }
  if (security.group_key != nullptr && (keys.secret_key || keys.peers)) {
    refuse(Status::kInvalidArgument, "group_key and keys of workers are given: a group has one of both");
  }
  if (security.rendezvous_name != nullptr) {
    keys.rendezvous_name = need_worker_name(security.rendezvous_name, "rendezvous_name");
  }
  made.worker.initiators = need_worker_names(security.initiators, security.initiator_count, "initiators");
  if (security.initiators != nullptr && made.worker.initiators.empty()) {
    refuse(Status::kInvalidArgument, "initiators is given, but initiator_count is 0: leave both 0 for all");
  }
  if (!made.worker.initiators.empty() && !has_worker_keys(keys, [](const char* name) { return std::getenv(name); })) {
    refuse(Status::kUnsupported, "initiators: a name proves nothing where workers have no key each (secret_key)");
  }
}

}  // namespace distag::capi

using namespace distag;
using namespace distag::capi;

distag_status distag_security_create_keys(distag_key_pair* out_keys, distag_error* err) {
  return guard(__func__, err, [=] {
    distag_key_pair made = DISTAG_KEY_PAIR_INIT;
    if (is_readable(out_keys, sizeof made)) fill_struct(out_keys, made);
    check_filled_struct(out_keys, sizeof made, "distag_key_pair");
    const CurveKeyPair pair = new_key_pair();
    std::strncpy(made.public_key, print_key(pair.public_key).c_str(), sizeof made.public_key - 1);
    std::strncpy(made.secret_key, print_key(pair.secret_key).c_str(), sizeof made.secret_key - 1);
    fill_struct(out_keys, made);
  });
}

distag_status distag_worker_set_peers(distag_worker* worker, const char* const* names, const char* const* keys,
                                      size_t count, distag_error* err) {
  return guard(__func__, err, [=] {
    distag_worker& live = need_worker(worker);
    KeyRing::Keys peers = need_peers(names, keys, count, "names");
    live.check_up();
    live.hosted().threaded().set_peers(std::move(peers));
  });
}
