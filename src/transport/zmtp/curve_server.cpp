#include "transport/zmtp/curve_server.h"

#include <cstring>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/random_bytes.h"
#include "transport/key_ring.h"
#include "transport/socket/sodium.h"

namespace distag {

using namespace curve;

namespace {

constexpr std::string_view kPropertiesOfRouter(
    "\x0bSocket-Type\0\0\0\x06ROUTER"
    "\x08Identity\0\0\0\0",
    12 + 4 + 6 + 9 + 4);

}  // namespace

CurveServer::CurveServer(const SocketKeys& keys) : keys_(keys) {
  start_sodium();
  fill_with_key_pair(own_short_);
  fill_with_random(cookie_);
}

CurveServer::~CurveServer() { wipe(own_short_.secret_key); }

std::vector<std::byte> CurveServer::answer(std::span<const std::byte> command) {
  switch (stage_) {
    case Stage::kHello:
      return answer_hello(command);
    case Stage::kInitiate:
      return answer_initiate(command);
    case Stage::kReady:
      break;
  }
  refuse("a command after its handshake");
}

std::vector<std::byte> CurveServer::answer_hello(std::span<const std::byte> command) {
  const uint8_t* const bytes = bytes_of(command);
  if (command.size() != kHelloBytes || !has_name(command, kHello) || bytes[kHelloVersionAt] != 1) refuse("no HELLO");
  std::memcpy(client_short_.data(), bytes + kHelloKeyAt, kKey);
  boxes_.take_number(bytes + kHelloNonceAt);
  const CurveBoxes::Nonce nonce = CurveBoxes::nonce_of(kHelloPrefix, bytes + kHelloNonceAt);
  std::array<uint8_t, kZeros> zeros{};
  boxes_.agree(client_short_, keys_.own.secret_key);
  if (!boxes_.open(nonce, {bytes + kHelloBoxAt, kMac + kZeros}, zeros.data())) {
    fail(Status::kDenied, "it does not know the key of {}", keys_.peers ? "this worker" : "the group");
  }
  std::array<uint8_t, kKey + kCookie> plain{};
  std::memcpy(plain.data(), own_short_.public_key.data(), kKey);
  std::memcpy(plain.data() + kKey, cookie_.data(), kCookie);
  std::array<uint8_t, CurveBoxes::kLongNonce> long_nonce{};
  fill_with_random(long_nonce);
  std::array<uint8_t, kMac + plain.size()> box{};
  boxes_.seal(CurveBoxes::nonce_of(kWelcomePrefix, long_nonce.data()), plain, box.data());
  std::vector<std::byte> welcome;
  append(welcome, kWelcome.data(), kWelcome.size());
  append(welcome, long_nonce.data(), long_nonce.size());
  append(welcome, box.data(), box.size());
  stage_ = Stage::kInitiate;
  return welcome;
}

// Whether the client's lasting key may connect.
bool CurveServer::find_client() {
  if (!keys_.peers) return sodium.sodium_memcmp(client_key_.data(), keys_.own.public_key.data(), kKey) == 0;
  ring_version_ = keys_.peers->version();  // read first: later changes are checked again
  std::optional<std::string> name = keys_.peers->name_of(client_key_);
  const bool is_same = name && (client_name_.empty() || *name == client_name_);
  if (is_same) client_name_ = *std::move(name);
  return is_same;
}

// Checks that the client's lasting key is admitted, and vouches for the short-term key of this connection.
void CurveServer::check_vouch(const uint8_t* initiate) {
  std::array<uint8_t, 2 * kKey> vouch{};
  const CurveBoxes::Nonce nonce = CurveBoxes::nonce_of(kVouchPrefix, initiate + kVouchNonceAt);
  std::memcpy(client_key_.data(), initiate, kKey);
  if (sodium.crypto_box_open_easy(vouch.data(), initiate + kVouchAt, kVouchBox, nonce.data(), initiate,
                                  own_short_.secret_key.data()) != 0) {
    fail(Status::kDenied, "it does not have the key that it shows");
  }
  if (!find_client()) {
    fail(Status::kDenied, "its key is not that of {}", keys_.peers ? "a worker that may connect" : "the group");
  }
  if (sodium.sodium_memcmp(vouch.data(), client_short_.data(), kKey) != 0 ||
      sodium.sodium_memcmp(vouch.data() + kKey, keys_.own.public_key.data(), kKey) != 0) {
    fail(Status::kDenied, "its key vouches for another connection");
  }
}

std::vector<std::byte> CurveServer::answer_initiate(std::span<const std::byte> command) {
  const uint8_t* const bytes = bytes_of(command);
  const bool has_good_size = command.size() >= kInitiateBoxAt + kMac + kPropertiesAt &&
                             command.size() <= kInitiateBoxAt + kMac + kPropertiesAt + kMostProperties;
  if (!has_good_size || !has_name(command, kInitiate)) refuse("no INITIATE");
  if (sodium.sodium_memcmp(bytes + kInitiateCookieAt, cookie_.data(), kCookie) != 0) refuse("another cookie");
  boxes_.take_number(bytes + kInitiateNonceAt);
  boxes_.agree(client_short_, own_short_.secret_key);
  std::array<uint8_t, kPropertiesAt + kMostProperties> plain{};
  const size_t boxed = command.size() - kInitiateBoxAt;
  if (!boxes_.open(CurveBoxes::nonce_of(kInitiatePrefix, bytes + kInitiateNonceAt), {bytes + kInitiateBoxAt, boxed},
                   plain.data())) {
    refuse("a box that does not open");
  }
  check_vouch(plain.data());
  wipe(own_short_.secret_key);
  properties_.assign(reinterpret_cast<const char*>(plain.data()) + kPropertiesAt, boxed - kMac - kPropertiesAt);

  const auto short_nonce = boxes_.next_number();
  std::array<uint8_t, kMac + kPropertiesOfRouter.size()> box{};
  boxes_.seal(CurveBoxes::nonce_of(kReadyPrefix, short_nonce.data()),
              {reinterpret_cast<const uint8_t*>(kPropertiesOfRouter.data()), kPropertiesOfRouter.size()}, box.data());
  std::vector<std::byte> ready;
  append(ready, kReady.data(), kReady.size());
  append(ready, short_nonce.data(), short_nonce.size());
  append(ready, box.data(), box.size());
  stage_ = Stage::kReady;
  return ready;
}

bool CurveServer::is_still_let_in() { return !keys_.peers || keys_.peers->version() == ring_version_ || find_client(); }

}  // namespace distag
