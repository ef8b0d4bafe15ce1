#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>

namespace distag {

// A key of Curve25519, as CURVE (rfc.zeromq.org/spec/26) has it.
using CurveKey = std::array<uint8_t, 32>;

struct CurveKeyPair {
  CurveKey public_key{};
  CurveKey secret_key{};
};

// The keys that sockets of tcp speak with. Sockets of ipc and inproc have none: the system knows who may open them.
struct Security {
  // Of the group: each member has the same, and whoever has it is let in. None: nothing is encrypted.
  std::optional<CurveKeyPair> group_key;
  // The key of this user on this machine, with which loopback speaks where the group has none. Throws DENIED where
  // there is none to be had. Empty: loopback has no keys.
  std::function<CurveKeyPair()> user_key;
  // Sockets without a key may listen where other machines reach them.
  bool allow_insecure = false;
};

}  // namespace distag
