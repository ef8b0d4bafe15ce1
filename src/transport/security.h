#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace distag {

// A key of Curve25519, as in CURVE (rfc.zeromq.org/spec/26).
using CurveKey = std::array<uint8_t, 32>;

struct CurveKeyPair {
  CurveKey public_key{};
  CurveKey secret_key{};
};

class KeyRing;

// The key of one worker alone, and those of the others.
struct WorkerKeys {
  CurveKeyPair own;
  std::shared_ptr<KeyRing> peers;
  std::string rendezvous_name;  // of the worker that serves a tcp rendezvous: dial() expects its key
};

// The keys of sockets. Sockets of tcp have keys. With a key for each worker those of ipc have keys too, since then
// only a key proves a name. Sockets of inproc, and otherwise those of ipc, have none: the system decides which
// processes may open them.
struct Security {
  // The keys of this worker and its peers. Each peer has to prove its own key, which is bound to its name.
  std::optional<WorkerKeys> worker_keys;
  // The key of the group: all members have the same, and its holders are admitted. None: nothing is encrypted.
  std::optional<CurveKeyPair> group_key;
  // The key of this user on this machine, which loopback uses if the group has none. Throws DENIED if it cannot be read
  // or made. Empty: loopback has no keys.
  std::function<CurveKeyPair()> user_key;
  // Whether sockets without a key may listen at addresses that other machines can reach.
  bool allow_insecure = false;
};

// The keys of one socket.
struct SocketKeys {
  explicit SocketKeys(const CurveKeyPair& group) : own(group), server(group.public_key) {}
  SocketKeys(const CurveKeyPair& own_pair, const CurveKey& server_key, std::shared_ptr<const KeyRing> those_let_in)
      : own(own_pair), server(server_key), peers(std::move(those_let_in)) {}

  CurveKeyPair own;
  CurveKey server{};                     // which the dialled side has to have
  std::shared_ptr<const KeyRing> peers;  // which may dial; nullptr: holders of the same pair
};

}  // namespace distag
