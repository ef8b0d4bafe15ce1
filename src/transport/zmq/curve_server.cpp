#include "transport/zmq/curve_server.h"

#include <sodium.h>

#include <array>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "base/error.h"
#include "transport/key_ring.h"
#include "transport/zmq/frame_block.h"

namespace distag {
namespace {

using Nonce = std::array<uint8_t, crypto_box_NONCEBYTES>;

constexpr size_t kKey = crypto_box_PUBLICKEYBYTES;
constexpr size_t kMac = crypto_box_MACBYTES;
constexpr size_t kLongNonce = 16;
constexpr size_t kShortNonce = 8;
constexpr size_t kCookie = 96;

constexpr std::string_view kHello("\x05HELLO", 6);
constexpr std::string_view kWelcome("\x07WELCOME", 8);
constexpr std::string_view kInitiate("\x08INITIATE", 9);
constexpr std::string_view kReady("\x05READY", 6);
constexpr std::string_view kMessage("\x07MESSAGE", 8);
constexpr std::string_view kPropertiesOfRouter(
    "\x0bSocket-Type\0\0\0\x06ROUTER"
    "\x08Identity\0\0\0\0",
    12 + 4 + 6 + 9 + 4);

// HELLO: name, version 1.0, padding, the client's short-term key, a short nonce, 64 zeros in a box.
constexpr size_t kHelloVersionAt = 6;
constexpr size_t kHelloKeyAt = kHelloVersionAt + 2 + 72;
constexpr size_t kHelloNonceAt = kHelloKeyAt + kKey;
constexpr size_t kHelloBoxAt = kHelloNonceAt + kShortNonce;
constexpr size_t kHelloBytes = kHelloBoxAt + kMac + 64;

// INITIATE: name, cookie, a short nonce, and in a box the client's key, a vouch with its nonce, properties.
constexpr size_t kInitiateCookieAt = 9;
constexpr size_t kInitiateNonceAt = kInitiateCookieAt + kCookie;
constexpr size_t kInitiateBoxAt = kInitiateNonceAt + kShortNonce;
constexpr size_t kVouchNonceAt = kKey;
constexpr size_t kVouchAt = kVouchNonceAt + kLongNonce;
constexpr size_t kVouchBox = kMac + 2 * kKey;
constexpr size_t kPropertiesAt = kVouchAt + kVouchBox;
constexpr size_t kMostProperties = 1024;

constexpr size_t kMessageNonceAt = 8;
constexpr size_t kMessageBoxAt = kMessageNonceAt + kShortNonce;
constexpr size_t kFlags = 1;
constexpr uint8_t kMore = 1;
constexpr uint8_t kCommand = 2;

static_assert(CurveServer::kOverhead == kMessageBoxAt + kMac + kFlags);
static_assert(sizeof(CurveKey) == kKey && crypto_box_SECRETKEYBYTES == kKey);

[[noreturn]] void refuse(const char* what) { fail(Status::kProtocol, "a connection that speaks no CURVE: {}", what); }

const uint8_t* bytes_of(std::span<const std::byte> bytes) { return reinterpret_cast<const uint8_t*>(bytes.data()); }

bool has_name(std::span<const std::byte> command, std::string_view name) {
  return command.size() >= name.size() && std::memcmp(command.data(), name.data(), name.size()) == 0;
}

Nonce nonce_of(std::string_view prefix, const uint8_t* rest) {
  Nonce nonce{};
  std::memcpy(nonce.data(), prefix.data(), prefix.size());
  std::memcpy(nonce.data() + prefix.size(), rest, nonce.size() - prefix.size());
  return nonce;
}

uint64_t number_of(const uint8_t* short_nonce) {
  uint64_t number = 0;
  for (size_t i = 0; i < kShortNonce; ++i) number = number << 8 | short_nonce[i];
  return number;
}

std::array<uint8_t, kShortNonce> short_nonce_of(uint64_t number) {
  std::array<uint8_t, kShortNonce> bytes{};
  for (size_t i = kShortNonce; i > 0; --i, number >>= 8) bytes[i - 1] = static_cast<uint8_t>(number);
  return bytes;
}

void append(std::vector<std::byte>& out, const void* bytes, size_t size) {
  const auto* const first = static_cast<const std::byte*>(bytes);
  out.insert(out.end(), first, first + size);
}

void begin_sodium() {
  if (sodium_init() < 0) fail(Status::kUnsupported, "libsodium finds no source of random numbers on this system");
}

}  // namespace

struct CurveServer::State {
  enum class Stage { kHello, kInitiate, kReady };

  explicit State(const SocketKeys& given) : keys(given) {
    begin_sodium();
    crypto_box_keypair(own_short.public_key.data(), own_short.secret_key.data());
    randombytes_buf(cookie.data(), cookie.size());
  }
  ~State() {
    sodium_memzero(own_short.secret_key.data(), kKey);
    sodium_memzero(shared.data(), shared.size());
  }

  std::vector<std::byte> answer_hello(std::span<const std::byte> command);
  std::vector<std::byte> answer_initiate(std::span<const std::byte> command);
  void check_vouch(const uint8_t* initiate);
  bool find_client();
  // Each number once, and upwards: what comes again or out of order is no part of this stream.
  void take_number(const uint8_t* short_nonce) {
    const uint64_t number = number_of(short_nonce);
    if (number <= last_taken) refuse("a number that was there before");
    last_taken = number;
  }

  const SocketKeys& keys;  // outlive this
  CurveKeyPair own_short;
  CurveKey client_short{};
  CurveKey client_key{};  // the lasting one
  std::string client_name;
  uint64_t ring_version = 0;  // in which it was found
  std::array<uint8_t, kCookie> cookie{};
  std::array<uint8_t, crypto_box_BEFORENMBYTES> shared{};  // until INITIATE of the lasting key, then of both short ones
  uint64_t last_taken = 0;
  uint64_t last_given = 0;
  Stage stage = Stage::kHello;
  std::string properties;
};

std::vector<std::byte> CurveServer::State::answer_hello(std::span<const std::byte> command) {
  const uint8_t* const bytes = bytes_of(command);
  if (command.size() != kHelloBytes || !has_name(command, kHello) || bytes[kHelloVersionAt] != 1) refuse("no HELLO");
  std::memcpy(client_short.data(), bytes + kHelloKeyAt, kKey);
  take_number(bytes + kHelloNonceAt);
  const Nonce nonce = nonce_of("CurveZMQHELLO---", bytes + kHelloNonceAt);
  std::array<uint8_t, 64> zeros{};
  if (crypto_box_beforenm(shared.data(), client_short.data(), keys.own.secret_key.data()) != 0 ||
      crypto_box_open_easy_afternm(zeros.data(), bytes + kHelloBoxAt, kMac + zeros.size(), nonce.data(),
                                   shared.data()) != 0) {
    fail(Status::kDenied, "it does not know the key of {}", keys.peers ? "this worker" : "the group");
  }
  std::array<uint8_t, kKey + kCookie> plain{};
  std::memcpy(plain.data(), own_short.public_key.data(), kKey);
  std::memcpy(plain.data() + kKey, cookie.data(), kCookie);
  std::array<uint8_t, kLongNonce> long_nonce{};
  randombytes_buf(long_nonce.data(), long_nonce.size());
  std::array<uint8_t, kMac + plain.size()> box{};
  crypto_box_easy_afternm(box.data(), plain.data(), plain.size(), nonce_of("WELCOME-", long_nonce.data()).data(),
                          shared.data());
  std::vector<std::byte> welcome;
  append(welcome, kWelcome.data(), kWelcome.size());
  append(welcome, long_nonce.data(), long_nonce.size());
  append(welcome, box.data(), box.size());
  stage = Stage::kInitiate;
  return welcome;
}

// Whether the client's lasting key is one that may connect.
bool CurveServer::State::find_client() {
  if (!keys.peers) return sodium_memcmp(client_key.data(), keys.own.public_key.data(), kKey) == 0;
  ring_version = keys.peers->version();  // first: what changes meanwhile is looked at again
  std::optional<std::string> name = keys.peers->name_of(client_key);
  const bool is_same = name && (client_name.empty() || *name == client_name);
  if (is_same) client_name = *std::move(name);
  return is_same;
}

// The client's lasting key has to be one that is let in, and to vouch for the short-term key of this connection.
void CurveServer::State::check_vouch(const uint8_t* initiate) {
  std::array<uint8_t, 2 * kKey> vouch{};
  const Nonce nonce = nonce_of("VOUCH---", initiate + kVouchNonceAt);
  std::memcpy(client_key.data(), initiate, kKey);
  if (crypto_box_open_easy(vouch.data(), initiate + kVouchAt, kVouchBox, nonce.data(), initiate,
                           own_short.secret_key.data()) != 0) {
    fail(Status::kDenied, "it does not have the key that it shows");
  }
  if (!find_client()) {
    fail(Status::kDenied, "its key is not that of {}", keys.peers ? "a worker that may connect" : "the group");
  }
  if (sodium_memcmp(vouch.data(), client_short.data(), kKey) != 0 ||
      sodium_memcmp(vouch.data() + kKey, keys.own.public_key.data(), kKey) != 0) {
    fail(Status::kDenied, "its key vouches for another connection");
  }
}

std::vector<std::byte> CurveServer::State::answer_initiate(std::span<const std::byte> command) {
  const uint8_t* const bytes = bytes_of(command);
  const bool has_good_size = command.size() >= kInitiateBoxAt + kMac + kPropertiesAt &&
                             command.size() <= kInitiateBoxAt + kMac + kPropertiesAt + kMostProperties;
  if (!has_good_size || !has_name(command, kInitiate)) refuse("no INITIATE");
  if (sodium_memcmp(bytes + kInitiateCookieAt, cookie.data(), kCookie) != 0) refuse("another cookie");
  take_number(bytes + kInitiateNonceAt);
  if (crypto_box_beforenm(shared.data(), client_short.data(), own_short.secret_key.data()) != 0) {
    refuse("a key that is none");
  }
  std::array<uint8_t, kPropertiesAt + kMostProperties> plain{};
  const size_t boxed = command.size() - kInitiateBoxAt;
  if (crypto_box_open_easy_afternm(plain.data(), bytes + kInitiateBoxAt, boxed,
                                   nonce_of("CurveZMQINITIATE", bytes + kInitiateNonceAt).data(), shared.data()) != 0) {
    refuse("a box that does not open");
  }
  check_vouch(plain.data());
  properties.assign(reinterpret_cast<const char*>(plain.data()) + kPropertiesAt, boxed - kMac - kPropertiesAt);

  const auto short_nonce = short_nonce_of(++last_given);
  std::array<uint8_t, kMac + kPropertiesOfRouter.size()> box{};
  crypto_box_easy_afternm(box.data(), reinterpret_cast<const uint8_t*>(kPropertiesOfRouter.data()),
                          kPropertiesOfRouter.size(), nonce_of("CurveZMQREADY---", short_nonce.data()).data(),
                          shared.data());
  std::vector<std::byte> ready;
  append(ready, kReady.data(), kReady.size());
  append(ready, short_nonce.data(), short_nonce.size());
  append(ready, box.data(), box.size());
  stage = Stage::kReady;
  return ready;
}

CurveServer::CurveServer(const SocketKeys& keys) : state_(std::make_unique<State>(keys)) {}

CurveServer::~CurveServer() = default;

std::vector<std::byte> CurveServer::answer(std::span<const std::byte> command) {
  switch (state_->stage) {
    case State::Stage::kHello:
      return state_->answer_hello(command);
    case State::Stage::kInitiate:
      return state_->answer_initiate(command);
    case State::Stage::kReady:
      break;
  }
  refuse("a command after its handshake");
}

bool CurveServer::is_ready() const { return state_->stage == State::Stage::kReady; }

const std::string& CurveServer::client_name() const { return state_->client_name; }

bool CurveServer::is_still_let_in() {
  const SocketKeys& keys = state_->keys;
  return !keys.peers || keys.peers->version() == state_->ring_version || state_->find_client();
}

std::string_view CurveServer::properties() const { return state_->properties; }

CurveServer::Opened CurveServer::open(std::span<const std::byte> boxed) {
  if (boxed.size() < kOverhead || !has_name(boxed, kMessage)) refuse("a frame in no box");
  const uint8_t* const bytes = bytes_of(boxed);
  state_->take_number(bytes + kMessageNonceAt);
  const size_t plain_size = boxed.size() - kMessageBoxAt - kMac;
  // The flags lie right before the boundary that the bytes of the frame begin at.
  const std::shared_ptr<std::byte> block = make_frame_block(kFrameAlignment + plain_size - kFlags);
  std::byte* const plain = block.get() + kFrameAlignment - kFlags;
  if (crypto_box_open_easy_afternm(reinterpret_cast<uint8_t*>(plain), bytes + kMessageBoxAt, plain_size + kMac,
                                   nonce_of("CurveZMQMESSAGEC", bytes + kMessageNonceAt).data(),
                                   state_->shared.data()) != 0) {
    refuse("a box that does not open");
  }
  const auto flags = static_cast<uint8_t>(plain[0]);
  Opened opened;
  opened.more = (flags & kMore) != 0;
  opened.is_command = (flags & kCommand) != 0;
  if (plain_size > kFlags) opened.body = Frame(plain + kFlags, plain_size - kFlags, block);
  return opened;
}

void CurveServer::seal(std::span<const std::byte> body, bool more, std::vector<std::byte>& out) {
  const auto short_nonce = short_nonce_of(++state_->last_given);
  const Nonce nonce = nonce_of("CurveZMQMESSAGES", short_nonce.data());
  append(out, kMessage.data(), kMessage.size());
  append(out, short_nonce.data(), short_nonce.size());
  std::vector<uint8_t> plain(kFlags + body.size());
  plain[0] = more ? kMore : 0;
  if (!body.empty()) std::memcpy(plain.data() + kFlags, body.data(), body.size());
  const size_t box_at = out.size();
  out.resize(box_at + kMac + plain.size());
  crypto_box_easy_afternm(reinterpret_cast<uint8_t*>(out.data() + box_at), plain.data(), plain.size(), nonce.data(),
                          state_->shared.data());
}

}  // namespace distag
