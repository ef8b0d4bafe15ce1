#include "transport/socket/socket_transport.h"

#include <utility>

#include "base/error.h"
#include "base/sandbox.h"
#include "transport/key_ring.h"
#include "transport/socket/address.h"
#include "transport/socket/descriptors.h"
#include "transport/socket/private_directory.h"

namespace distag {

SocketTransport::SocketTransport(std::unique_ptr<SocketEngine> engine, Security security)
    : engine_(std::move(engine)), security_(std::move(security)) {
  check_socket_calls();
}

SocketTransport::~SocketTransport() = default;

// Throws DENIED for an address that needs a key if none was given.
std::optional<SocketKeys> SocketTransport::keys_for(const SocketAddress& address, const std::string& text,
                                                    const CurveKey* server) {
  if (security_.worker_keys) {
    const WorkerKeys& keys = *security_.worker_keys;
    return SocketKeys(keys.own, server == nullptr ? keys.own.public_key : *server, keys.peers);
  }
  if (address.is_ipc()) return std::nullopt;
  if (security_.group_key) return SocketKeys(*security_.group_key);
  if (security_.allow_insecure) return std::nullopt;
  if (!address.is_local()) {
    fail(Status::kDenied,
         "\"{}\" is not of this machine alone, and this worker has no key: give all workers one group key "
         "(distag_security_options.group_key, or a file that DISTAG_GROUP_KEY_FILE names; distag keygen makes one), or "
         "stay at ipc:///path or a loopback address",
         text);
  }
  if (!user_key_ && security_.user_key) user_key_ = security_.user_key();
  if (!user_key_) return std::nullopt;
  return SocketKeys(*user_key_);
}

CurveKey SocketTransport::need_key_of(const std::string& name) const {
  const std::optional<CurveKey> key = security_.worker_keys->peers->key_of(name);
  if (key) return *key;
  fail(Status::kDenied, "worker \"{}\" is not among those that may connect: give its key to this one", name);
}

std::unique_ptr<Acceptor> SocketTransport::listen(const std::string& address, AcceptorEvents events) {
  assert_on_loop(engine_->loop());
  const SocketAddress parsed = parse_address(address, true);
  return engine_->listen(parsed, keys_for(parsed, address), std::move(events));
}

std::unique_ptr<Connection> SocketTransport::dial(const std::string& endpoint, ConnectionEvents events) {
  assert_on_loop(engine_->loop());
  if (security_.worker_keys) return dial_worker(security_.worker_keys->rendezvous_name, endpoint, std::move(events));
  const SocketAddress parsed = parse_address(endpoint, false);
  return engine_->dial(parsed, keys_for(parsed, endpoint), std::move(events));
}

std::unique_ptr<Connection> SocketTransport::dial_worker(const std::string& name, const std::string& endpoint,
                                                         ConnectionEvents events) {
  assert_on_loop(engine_->loop());
  if (!security_.worker_keys) return dial(endpoint, std::move(events));
  const CurveKey server = need_key_of(name);
  const SocketAddress parsed = parse_address(endpoint, false);
  return engine_->dial(parsed, keys_for(parsed, endpoint, &server), std::move(events));
}

std::string SocketTransport::explain_denial() const {
  if (security_.worker_keys) {
    return fmt::format(
        "it does not have the key that this worker's list gives for \"{}\" (peer_keys, DISTAG_PEER_KEYS_FILE; another "
        "worker serves there: rendezvous_name, DISTAG_RENDEZVOUS_NAME), or its list does not have the key of this one",
        security_.worker_keys->rendezvous_name);
  }
  return "their group keys differ, or one of them has none or a key of its own: give all workers of the group the same "
         "(distag_security_options.group_key, DISTAG_GROUP_KEY_FILE)";
}

LaneReport SocketTransport::lane_report() const {
  LaneReport report;
  report.why_off = security_.worker_keys ? "each worker has a key of its own" : "sockets alone";
  return report;
}

void SocketTransport::check_descriptors(size_t members) const {
  const size_t need = engine_->descriptors_for(members);
  const size_t limit = descriptor_limit();
  if (limit >= need) return;
  const SocketReport used = engine_->report();
  fail(
      Status::kOutOfMemory,
      "a group of {} over sockets of the engine {} takes {} descriptors, and this process may have {}: raise the limit "
      "of open files (ulimit -n){}",
      members, used.engine, need, limit,
      used.version.empty() ? "" : ", or take the engine zmtp, which takes fewer (DISTAG_SOCKET_ENGINE=zmtp)");
}

void SocketTransport::check_endpoint(const std::string& endpoint) const { parse_address(endpoint, false); }

std::string SocketTransport::private_address() {
  assert_on_loop(engine_->loop());
  if (!directory_) directory_ = std::make_unique<PrivateDirectory>();
  std::string address = fmt::format("ipc://{}/{}", directory_->path(), ++last_address_);
  // Throws now if the path is too long, not only when listening.
  parse_address(address, true);
  return address;
}

}  // namespace distag
