#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "transport/security.h"
#include "transport/transport.h"
#include "transport/zmtp/curve_boxes.h"

namespace distag {

// The command that ends the handshake of a refused client.
std::vector<std::byte> zmtp_denial();

// From this size on a frame is sent without a copy, unless it is encrypted.
inline constexpr size_t kZeroCopyBytes = 64u << 10;

// A side of a ZMTP 3 connection (rfc.zeromq.org/spec/23): parses the stream of the other side, in pieces of any size,
// and makes the bytes that answer it. The dialling side is a DEALER, the other one a ROUTER. The mechanism is CURVE
// with keys, else NULL.
class ZmtpReader {
 public:
  enum class Role { kAccepts, kDials };

  explicit ZmtpReader(Role role, const SocketKeys* keys = nullptr /* outlive it */);

  // The bytes to be sent since the last call: its greeting, commands of the handshake, PONG.
  std::vector<std::byte> take_answer() { return std::exchange(answer_, {}); }
  // The bytes of a message on this connection, in pieces, of which large ones are the frames themselves. Only once
  // the handshake is over.
  Frames pack(const Frames& frames);

  // The place for the next bytes of the stream; never empty after next() found no message.
  std::span<std::byte> room();
  // `count` bytes have come into room().
  void add(size_t count);
  // The number of all received bytes.
  uint64_t heard_bytes() const { return heard_bytes_; }

  // The next whole message, its frames aligned to 64 bytes. Without a key small frames lie together in one block, and a
  // large one was received into its own. Throws PROTOCOL for an invalid or too large stream, DENIED if the sides do not
  // agree on keys, bad_alloc; then the stream cannot be used any more.
  std::optional<Frames> next();

  // Whether bytes of an unfinished message, or command of the handshake, have come. Only after next() found none.
  bool has_part() const { return in_large_ || !parts_.empty() || !buffered().empty(); }

  // The other side has greeted, with this side's mechanism.
  bool has_greeting() const { return stage_ != Stage::kGreeting; }
  // Judged by the version, which libzmq sends as 3.1, and this engine as 3.0.
  bool is_greeted_by_libzmq() const { return has_greeting() && minor_version_ > 0; }
  // The handshake is over.
  bool is_ready() const { return stage_ == Stage::kMessages; }
  // The name of the client by its key; empty if the key has no name.
  std::string client_name() const { return curve_ ? curve_->peer_name() : std::string(); }
  // Whether the client's key is still admitted.
  bool is_still_let_in() { return !is_ready() || !curve_ || curve_->is_still_let_in(); }

 private:
  enum class Stage { kGreeting, kHandshake, kMessages };
  struct Header {
    bool more = false;
    bool is_command = false;
    size_t size = 0;   // of the frame
    size_t bytes = 0;  // of the header itself
  };
  struct Part {
    size_t offset = 0;  // in small_
    size_t size = 0;
    std::shared_ptr<std::byte> own_block;  // of a large frame
    Frame opened;                          // the frame itself, with a key, or if it is lost
  };

  std::span<const std::byte> buffered() const { return {buffer_.get() + begin_, end_ - begin_}; }
  bool take_greeting();
  bool take_handshake();
  std::string_view take_handshake_command(std::span<const std::byte> body);
  void take_command(std::span<const std::byte> body);
  size_t packed_size(const Frames& frames) const;
  bool take_frame(bool& is_last);
  bool take_box(std::span<const std::byte> boxed, bool& is_last);
  std::optional<Header> peek_header() const;
  void begin_large(size_t size);
  Frames finish_message();

  const Role role_;
  Stage stage_ = Stage::kGreeting;
  uint8_t minor_version_ = 0;  // of the other side
  const std::unique_ptr<std::byte[]> buffer_;
  size_t begin_ = 0;
  size_t end_ = 0;
  uint64_t heard_bytes_ = 0;
  std::unique_ptr<CurveSide> curve_;  // nullptr without a key
  std::vector<std::byte> answer_;

  // The message under way.
  std::vector<Part> parts_;
  std::vector<std::byte> small_;
  size_t message_bytes_ = 0;
  // The frame under way is large: its bytes are received into their final place, or into the buffer if it is lost.
  bool in_large_ = false;
  bool large_has_more_ = false;
  size_t large_filled_ = 0;
};

}  // namespace distag
