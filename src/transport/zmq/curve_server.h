#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "transport/security.h"
#include "transport/transport.h"

namespace distag {

// The side of CURVE (rfc.zeromq.org/spec/26) that was dialled, for one connection: HELLO, WELCOME, INITIATE, READY, and
// messages in boxes. The client, which is libzmq, has to know the key of this side, and proves its own by INITIATE:
// that of the group, or one of those that may connect.
class CurveServer {
 public:
  // A frame of a message, opened: its bytes lie in a block of their own, aligned as received frames are.
  struct Opened {
    Frame body;
    bool more = false;
    bool is_command = false;
  };
  // The bytes by which a frame in its box is longer.
  static constexpr size_t kOverhead = 33;

  explicit CurveServer(const SocketKeys& keys);  // outlive it
  ~CurveServer();
  CurveServer(const CurveServer&) = delete;
  CurveServer& operator=(const CurveServer&) = delete;

  // The body of a command of the client, in turn: the body of the answer. Throws PROTOCOL for what is out of turn or
  // ill-formed, DENIED for a client that has not the key.
  std::vector<std::byte> answer(std::span<const std::byte> command);
  // The client has proved its key; messages follow.
  bool is_ready() const;
  // The name to which the client's key belongs; empty where all have one key.
  const std::string& client_name() const;
  // Whether that still holds: those that may connect change.
  bool is_still_let_in();
  // The properties that the client gave, as in READY of the mechanism NULL; until the next call.
  std::string_view properties() const;

  // Throws PROTOCOL for a box that was not made for this place in the stream, bad_alloc.
  Opened open(std::span<const std::byte> boxed);
  // Appends the frame in its box.
  void seal(std::span<const std::byte> body, bool more, std::vector<std::byte>& out);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace distag
