#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "transport/transport.h"

namespace distag {

// The bytes that the accepting side of ZMTP 3 sends first: its greeting, for the mechanism NULL, and READY of a ROUTER.
std::span<const std::byte> zmtp_hello();

// A message as it goes over the wire of ZMTP 3, after the hello.
std::vector<std::byte> zmtp_message(const Frames& frames);

// The stream that a DEALER sends, in ZMTP 3 (rfc.zeromq.org/spec/23) with the mechanism NULL: a greeting, READY,
// messages. The stream may come in any pieces.
class ZmtpReader {
 public:
  ZmtpReader();

  // Where the next bytes of the stream belong; never empty once next() found no message.
  std::span<std::byte> room();
  // That many have come into room().
  void add(size_t count);

  // The next whole message. Small frames lie together in one block, each aligned to 64 bytes; a large one was received
  // into its own. Throws PROTOCOL for what is no such stream or too large, bad_alloc; then the stream is of no more
  // use.
  std::optional<Frames> next();

  // The greeting and READY have come.
  bool is_ready() const { return stage_ == Stage::kMessages; }

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
  };

  std::span<const std::byte> buffered() const { return {buffer_.data() + begin_, end_ - begin_}; }
  bool take_greeting();
  bool take_ready();
  bool take_frame(bool& is_last);
  std::optional<Header> peek_header() const;
  void begin_large(size_t size);
  Frames finish_message();

  Stage stage_ = Stage::kGreeting;
  std::vector<std::byte> buffer_;
  size_t begin_ = 0;
  size_t end_ = 0;

  // The message under way.
  std::vector<Part> parts_;
  std::vector<std::byte> small_;
  size_t message_bytes_ = 0;
  // The frame under way is large: its bytes go where they stay.
  bool in_large_ = false;
  bool large_has_more_ = false;
  size_t large_filled_ = 0;
};

}  // namespace distag
