#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace distag {

// A key of Curve25519, as CURVE (rfc.zeromq.org/spec/26) has it.
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
  std::string rendezvous_name;  // of the worker that serves a tcp rendezvous: its key is expected there
};

// The keys that sockets speak with: those of tcp; with a key for each worker those of ipc too, as only the key says
// there whose name it is. Sockets of inproc have none, nor have those of ipc otherwise: the system knows who may open
// them.
struct Security {
  // Of this worker. Each peer has to prove its own, which is bound to its name.
  std::optional<WorkerKeys> worker_keys;
  // Of the group: each member has the same, and its holders are admitted. None: nothing is encrypted.
  std::optional<CurveKeyPair> group_key;
  // The key of this user on this machine, with which loopback speaks where the group has none. Throws DENIED where it
  // cannot be had. Empty: loopback has no keys.
  std::function<CurveKeyPair()> user_key;
  // Sockets without a key may listen where other machines reach them.
  bool allow_insecure = false;
};

// The keys of one socket.
struct SocketKeys {
  explicit SocketKeys(const CurveKeyPair& group) : own(group), server(group.public_key) {}
  SocketKeys(const CurveKeyPair& own_pair, const CurveKey& server_key, std::shared_ptr<const KeyRing> those_let_in)
      : own(own_pair), server(server_key), peers(std::move(those_let_in)) {}

  CurveKeyPair own;
  CurveKey server{};                     // which the side that is dialled has to have
  std::shared_ptr<const KeyRing> peers;  // which may dial; nullptr: whoever has the same pair
};

}  // namespace distag
