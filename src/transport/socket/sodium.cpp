#include "transport/socket/sodium.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "base/error.h"
#include "base/random_bytes.h"

namespace distag {
namespace {

constinit std::atomic<bool> is_checked{false};

// The result for the box below and its keys, by libsodium 1.0.18.
constexpr std::array<uint8_t, 32> kAnswer = {0x9e, 0x2e, 0xab, 0x10, 0x08, 0xd7, 0x81, 0x8f, 0xe4, 0x41, 0x03,
                                             0x49, 0xb5, 0xcc, 0xc9, 0x61, 0x9b, 0x47, 0x3b, 0x0f, 0x0e, 0x33,
                                             0x6c, 0x9e, 0x52, 0xf0, 0x22, 0x7c, 0x71, 0xbe, 0x43, 0x46};

// Checks every function in use, with one key for both sides.
bool gives_right_answers() {
  constexpr size_t kPlain = 40;
  std::array<uint8_t, crypto_box_SEEDBYTES> seed{};
  std::iota(seed.begin(), seed.end(), uint8_t{1});
  const std::array<uint8_t, crypto_box_NONCEBYTES> nonce = {7};
  const std::array<uint8_t, kPlain> plain = {8};
  CurveKeyPair pair;
  CurveKey computed{};
  CurveKey shared{};
  std::array<uint8_t, crypto_box_MACBYTES + kPlain> box{};
  std::array<uint8_t, crypto_box_MACBYTES + kPlain> apart{};
  std::array<uint8_t, crypto_box_MACBYTES + kPlain> direct{};
  std::array<uint8_t, kPlain> opened{};
  std::array<uint8_t, kPlain> opened_directly{};
  std::array<uint8_t, kAnswer.size()> answer{};
  auto& [public_key, secret_key] = pair;
  const int failures =
      sodium.crypto_box_seed_keypair(public_key.data(), secret_key.data(), seed.data()) |
      sodium.crypto_scalarmult_base(computed.data(), secret_key.data()) |
      sodium.crypto_box_beforenm(shared.data(), public_key.data(), secret_key.data()) |
      sodium.crypto_box_easy_afternm(box.data(), plain.data(), kPlain, nonce.data(), shared.data()) |
      sodium.crypto_box_detached_afternm(apart.data() + crypto_box_MACBYTES, apart.data(), plain.data(), kPlain,
                                         nonce.data(), shared.data()) |
      sodium.crypto_box_easy(direct.data(), plain.data(), kPlain, nonce.data(), public_key.data(), secret_key.data()) |
      sodium.crypto_box_open_easy_afternm(opened.data(), box.data(), box.size(), nonce.data(), shared.data()) |
      sodium.crypto_box_open_easy(opened_directly.data(), box.data(), box.size(), nonce.data(), public_key.data(),
                                  secret_key.data()) |
      sodium.crypto_generichash(answer.data(), answer.size(), box.data(), box.size(), public_key.data(),
                                public_key.size());
  box[0] ^= 1;
  const bool opens_another =
      sodium.crypto_box_open_easy_afternm(opened.data(), box.data(), box.size(), nonce.data(), shared.data()) == 0;
  box[0] ^= 1;
  return failures == 0 && !opens_another && computed == public_key && box == apart && box == direct &&
         opened_directly == plain && answer == kAnswer;
}

}  // namespace

constinit const Sodium sodium;

// Several threads may check at once, and get the same result.
void start_sodium() {
  if (is_checked.load(std::memory_order_acquire)) return;
  static_cast<void>(sodium.sodium_memzero.get());  // found now, so that wiping never fails
  if (sodium.sodium_init() < 0) {
    fail(Status::kUnsupported, "libsodium finds no source of random numbers on this system");
  }
  if (!gives_right_answers()) {
    fail(Status::kUnsupported,
         "libsodium gives wrong answers: the host exports names of it; link the host so that it does not "
         "(docs/embedding.md)");
  }
  is_checked.store(true, std::memory_order_release);
}

void fill_with_key_pair(CurveKeyPair& pair) {
  fill_with_random(pair.secret_key);
  if (sodium.crypto_scalarmult_base(pair.public_key.data(), pair.secret_key.data()) == 0) return;
  fail(Status::kInternal, "a new secret key has no public key");
}

void wipe(CurveKey& secret) { sodium.sodium_memzero(secret.data(), secret.size()); }

}  // namespace distag
