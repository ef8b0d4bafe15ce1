#include "transport/zmtp/curve_client.h"

#include <array>
#include <cstring>

#include "base/error.h"
#include "base/random_bytes.h"
#include "transport/socket/sodium.h"

namespace distag {

using namespace curve;

namespace {

constexpr std::string_view kPropertiesOfDealer(
    "\x0bSocket-Type\0\0\0\x06"
    "DEALER"
    "\x08Identity\0\0\0\0",
    12 + 4 + 6 + 9 + 4);

}  // namespace

CurveClient::CurveClient(const SocketKeys& keys) : keys_(keys) {
  start_sodium();
  fill_with_key_pair(own_short_);
}

CurveClient::~CurveClient() { wipe(own_short_.secret_key); }

std::vector<std::byte> CurveClient::hello() {
  boxes_.agree(keys_.server, own_short_.secret_key);
  const auto short_nonce = boxes_.next_number();
  const std::array<uint8_t, kZeros> zeros{};
  std::array<uint8_t, kMac + kZeros> box{};
  boxes_.seal(CurveBoxes::nonce_of(kHelloPrefix, short_nonce.data()), zeros, box.data());
  std::vector<std::byte> command(kHelloBytes);
  std::memcpy(command.data(), kHello.data(), kHello.size());
  command[kHelloVersionAt] = std::byte{1};
  std::memcpy(command.data() + kHelloKeyAt, own_short_.public_key.data(), kKey);
  std::memcpy(command.data() + kHelloNonceAt, short_nonce.data(), short_nonce.size());
  std::memcpy(command.data() + kHelloBoxAt, box.data(), box.size());
  return command;
}

std::vector<std::byte> CurveClient::answer(std::span<const std::byte> command) {
  switch (stage_) {
    case Stage::kWelcome:
      return answer_welcome(command);
    case Stage::kAnswered:
      take_ready(command);
      return {};
    case Stage::kReady:
      break;
  }
  refuse("a command after its handshake");
}

std::vector<std::byte> CurveClient::answer_welcome(std::span<const std::byte> command) {
  const uint8_t* const bytes = bytes_of(command);
  if (command.size() != kWelcomeBytes || !has_name(command, kWelcome)) refuse("no WELCOME");
  std::array<uint8_t, kKey + kCookie> welcome{};
  if (!boxes_.open(CurveBoxes::nonce_of(kWelcomePrefix, bytes + kWelcomeNonceAt),
                   {bytes + kWelcomeBoxAt, kWelcomeBytes - kWelcomeBoxAt}, welcome.data())) {
    fail(Status::kDenied, "it does not have the key that was expected");
  }
  CurveKey server_short;
  std::memcpy(server_short.data(), welcome.data(), kKey);
  boxes_.agree(server_short, own_short_.secret_key);
  wipe(own_short_.secret_key);

  // The box has the lasting key, and its vouch that the short-term key is for this connection to this server.
  std::array<uint8_t, kPropertiesAt + kPropertiesOfDealer.size()> plain{};
  std::memcpy(plain.data(), keys_.own.public_key.data(), kKey);
  fill_with_random(std::span(plain).subspan(kVouchNonceAt, CurveBoxes::kLongNonce));
  std::array<uint8_t, 2 * kKey> vouched{};
  std::memcpy(vouched.data(), own_short_.public_key.data(), kKey);
  std::memcpy(vouched.data() + kKey, keys_.server.data(), kKey);
  const CurveBoxes::Nonce vouch_nonce = CurveBoxes::nonce_of(kVouchPrefix, plain.data() + kVouchNonceAt);
  if (sodium.crypto_box_easy(plain.data() + kVouchAt, vouched.data(), vouched.size(), vouch_nonce.data(),
                             server_short.data(), keys_.own.secret_key.data()) != 0) {
    refuse("an invalid key");
  }
  std::memcpy(plain.data() + kPropertiesAt, kPropertiesOfDealer.data(), kPropertiesOfDealer.size());

  const auto short_nonce = boxes_.next_number();
  std::array<uint8_t, kMac + plain.size()> box{};
  boxes_.seal(CurveBoxes::nonce_of(kInitiatePrefix, short_nonce.data()), plain, box.data());
  std::vector<std::byte> initiate;
  append(initiate, kInitiate.data(), kInitiate.size());
  append(initiate, welcome.data() + kKey, kCookie);
  append(initiate, short_nonce.data(), short_nonce.size());
  append(initiate, box.data(), box.size());
  stage_ = Stage::kAnswered;
  return initiate;
}

void CurveClient::take_ready(std::span<const std::byte> command) {
  const uint8_t* const bytes = bytes_of(command);
  const bool has_good_size =
      command.size() >= kReadyBoxAt + kMac && command.size() <= kReadyBoxAt + kMac + kMostProperties;
  if (!has_good_size || !has_name(command, kReady)) refuse("no READY");
  boxes_.take_number(bytes + kReadyNonceAt);
  std::array<uint8_t, kMostProperties> plain{};
  const size_t boxed = command.size() - kReadyBoxAt;
  if (!boxes_.open(CurveBoxes::nonce_of(kReadyPrefix, bytes + kReadyNonceAt), {bytes + kReadyBoxAt, boxed},
                   plain.data())) {
    refuse("a READY that does not open");  // WELCOME has proved the key
  }
  properties_.assign(reinterpret_cast<const char*>(plain.data()), boxed - kMac);
  stage_ = Stage::kReady;
}

}  // namespace distag
