#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "transport/security.h"
#include "transport/transport.h"

namespace distag {

// The CURVE state of one connection (rfc.zeromq.org/spec/26): the key that both sides have made, the numbers of their
// boxes, and messages in boxes. The destructor wipes the key.
class CurveBoxes {
 public:
  enum class Side { kServer, kClient };
  // An opened frame of a message: its bytes lie in a block of their own, aligned like received frames.
  struct Opened {
    Frame body;
    bool more = false;
    bool is_command = false;
  };
  static constexpr size_t kKey = 32;
  static constexpr size_t kMac = 16;
  static constexpr size_t kShortNonce = 8;
  static constexpr size_t kLongNonce = 16;
  // A frame in its box is longer by this many bytes.
  static constexpr size_t kOverhead = 33;

  using Nonce = std::array<uint8_t, 24>;
  // `rest`: the bytes behind the prefix.
  static Nonce nonce_of(std::string_view prefix, const uint8_t* rest);

  explicit CurveBoxes(Side side) : side_(side) {}
  ~CurveBoxes();
  CurveBoxes(const CurveBoxes&) = delete;
  CurveBoxes& operator=(const CurveBoxes&) = delete;

  // Boxes use these keys from now on: one product on the curve, for any number of boxes. Throws PROTOCOL for an invalid
  // key.
  void agree(const CurveKey& theirs, const CurveKey& own_secret);

  // Boxes of the handshake. False for a box that was not made with these keys and this nonce.
  bool open(const Nonce& nonce, std::span<const uint8_t> box, uint8_t* plain) const;
  void seal(const Nonce& nonce, std::span<const uint8_t> plain, uint8_t* box) const;

  // Checks that numbers ascend: a repeated one does not belong to this stream. Throws PROTOCOL.
  void take_number(const uint8_t* short_nonce);
  std::array<uint8_t, kShortNonce> next_number();

  // Throws PROTOCOL for a box that was not made for this place in the stream, bad_alloc.
  Opened open_message(std::span<const std::byte> boxed);
  // Writes the frame in its box, which takes kOverhead bytes more than the frame, and gives the end.
  std::byte* seal_message(std::span<const std::byte> body, bool more, bool is_command, std::byte* out);

 private:
  const Side side_;
  CurveKey shared_{};
  uint64_t last_taken_ = 0;
  uint64_t last_given_ = 0;
};

// This side in the handshake of one connection with the other.
class CurveSide {
 public:
  virtual ~CurveSide() = default;

  // Takes the body of a command from the other side, in turn, and gives the body of the answer, or none. Throws
  // PROTOCOL for a command that is out of turn or ill-formed, DENIED if the keys do not agree.
  virtual std::vector<std::byte> answer(std::span<const std::byte> command) = 0;
  // Each side has proved its key; messages follow.
  virtual bool is_ready() const = 0;
  // The properties that the other side gave, as in READY of the mechanism NULL; valid until the next call.
  virtual std::string_view properties() const = 0;
  virtual CurveBoxes& boxes() = 0;
  // The name that the other side's key belongs to; empty if all share one key, or this side dialled.
  virtual std::string peer_name() const = 0;
  // Whether the key is still admitted: the workers that may connect change.
  virtual bool is_still_let_in() = 0;
};

// The commands of the handshake, as both sides read and write them.
namespace curve {

inline constexpr size_t kKey = CurveBoxes::kKey;
inline constexpr size_t kMac = CurveBoxes::kMac;
inline constexpr size_t kCookie = 96;

inline constexpr std::string_view kHello("\x05HELLO", 6);
inline constexpr std::string_view kWelcome("\x07WELCOME", 8);
inline constexpr std::string_view kInitiate("\x08INITIATE", 9);
inline constexpr std::string_view kReady("\x05READY", 6);

inline constexpr std::string_view kHelloPrefix = "CurveZMQHELLO---";
inline constexpr std::string_view kWelcomePrefix = "WELCOME-";
inline constexpr std::string_view kVouchPrefix = "VOUCH---";
inline constexpr std::string_view kInitiatePrefix = "CurveZMQINITIATE";
inline constexpr std::string_view kReadyPrefix = "CurveZMQREADY---";

// HELLO: name, version 1.0, padding, the client's short-term key, a short nonce, 64 zeros in a box.
inline constexpr size_t kZeros = 64;
inline constexpr size_t kHelloVersionAt = 6;
inline constexpr size_t kHelloKeyAt = kHelloVersionAt + 2 + 72;
inline constexpr size_t kHelloNonceAt = kHelloKeyAt + kKey;
inline constexpr size_t kHelloBoxAt = kHelloNonceAt + CurveBoxes::kShortNonce;
inline constexpr size_t kHelloBytes = kHelloBoxAt + kMac + kZeros;

// WELCOME: name, a long nonce, and in a box the server's short-term key and a cookie.
inline constexpr size_t kWelcomeNonceAt = 8;
inline constexpr size_t kWelcomeBoxAt = kWelcomeNonceAt + CurveBoxes::kLongNonce;
inline constexpr size_t kWelcomeBytes = kWelcomeBoxAt + kMac + kKey + kCookie;

// INITIATE: name, cookie, a short nonce, and in a box the client's key, a vouch with its nonce, properties.
inline constexpr size_t kInitiateCookieAt = 9;
inline constexpr size_t kInitiateNonceAt = kInitiateCookieAt + kCookie;
inline constexpr size_t kInitiateBoxAt = kInitiateNonceAt + CurveBoxes::kShortNonce;
inline constexpr size_t kVouchNonceAt = kKey;
inline constexpr size_t kVouchAt = kVouchNonceAt + CurveBoxes::kLongNonce;
inline constexpr size_t kVouchBox = kMac + 2 * kKey;
inline constexpr size_t kPropertiesAt = kVouchAt + kVouchBox;
inline constexpr size_t kMostProperties = 1024;

// READY: name, a short nonce, properties in a box.
inline constexpr size_t kReadyNonceAt = 6;
inline constexpr size_t kReadyBoxAt = kReadyNonceAt + CurveBoxes::kShortNonce;

[[noreturn]] void refuse(const char* what);
bool has_name(std::span<const std::byte> command, std::string_view name);

inline const uint8_t* bytes_of(std::span<const std::byte> bytes) {
  return reinterpret_cast<const uint8_t*>(bytes.data());
}
inline void append(std::vector<std::byte>& out, const void* bytes, size_t size) {
  const auto* const first = static_cast<const std::byte*>(bytes);
  out.insert(out.end(), first, first + size);
}

}  // namespace curve
}  // namespace distag
