#include "transport/socket/group_key.h"

#include <sodium.h>

#include <array>

#include "base/error.h"
#include "base/random_bytes.h"
#include "base/regular_file.h"
#include "transport/socket/sodium.h"

namespace distag {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

}  // namespace

std::string read_secret(const std::string& path) {
  std::string secret = read_private_file(path);
  if (secret.find('\0') != std::string::npos) {
    fail(Status::kInvalidArgument, "\"{}\" is no text, as it has bytes of zero (UTF-16, or cut off): write it as ASCII",
         path);
  }
  if (secret.starts_with(kByteOrderMark)) {
    fail(Status::kInvalidArgument, "\"{}\" begins with a byte order mark: write it as ASCII, without one", path);
  }
  while (!secret.empty() && (secret.back() == '\n' || secret.back() == '\r')) secret.pop_back();
  return secret;
}

std::string new_secret() {
  start_sodium();
  std::array<uint8_t, 32> bytes{};
  fill_with_random(bytes);
  std::array<char, 2 * bytes.size() + 1> text{};
  return sodium.sodium_bin2hex(text.data(), text.size(), bytes.data(), bytes.size());
}

CurveKeyPair group_key_of(std::string_view secret) {
  if (secret.size() < 32) {
    fail(Status::kInvalidArgument, "the group key has {} characters, less than 32: make one by distag keygen",
         secret.size());
  }
  start_sodium();
  constexpr std::string_view kPurpose = "distag group key 1";
  std::array<uint8_t, crypto_box_SEEDBYTES> seed{};
  sodium.crypto_generichash(seed.data(), seed.size(), reinterpret_cast<const uint8_t*>(secret.data()), secret.size(),
                            reinterpret_cast<const uint8_t*>(kPurpose.data()), kPurpose.size());
  CurveKeyPair pair;
  sodium.crypto_box_seed_keypair(pair.public_key.data(), pair.secret_key.data(), seed.data());
  sodium.sodium_memzero(seed.data(), seed.size());
  return pair;
}

}  // namespace distag
