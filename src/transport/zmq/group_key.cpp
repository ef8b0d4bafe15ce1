#include "transport/zmq/group_key.h"

#include <sodium.h>

#include <array>

#include "base/error.h"

namespace distag {

CurveKeyPair group_key_of(std::string_view secret) {
  if (secret.size() < 32) {
    fail(Status::kInvalidArgument, "the group key has {} characters, less than 32: make one by distag keygen",
         secret.size());
  }
  if (sodium_init() < 0) fail(Status::kUnsupported, "libsodium finds no source of random numbers on this system");
  constexpr std::string_view kPurpose = "distag group key 1";
  std::array<uint8_t, crypto_box_SEEDBYTES> seed{};
  crypto_generichash(seed.data(), seed.size(), reinterpret_cast<const uint8_t*>(secret.data()), secret.size(),
                     reinterpret_cast<const uint8_t*>(kPurpose.data()), kPurpose.size());
  CurveKeyPair pair;
  crypto_box_seed_keypair(pair.public_key.data(), pair.secret_key.data(), seed.data());
  sodium_memzero(seed.data(), seed.size());
  return pair;
}

}  // namespace distag
