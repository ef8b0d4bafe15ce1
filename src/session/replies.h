#pragma once

#include <array>
#include <memory>
#include <string>

#include "session/stream_shared.h"

namespace distag {

// What goes back on the connections that others have dialled: WELCOME and REFUSE, without numbers. A REFUSE that asks
// to dial again needs no memory: eight of them are packed while there is some, at each tick. On the loop.
class Replies {
 public:
  explicit Replies(StreamShared& shared) : shared_(shared) {}

  // Binds. Nothing can be replied before.
  void listen(const std::string& address, AcceptorEvents events);
  const std::string& endpoint() const { return acceptor_->endpoint(); }
  // The name that the key of the connection is bound to; empty: none.
  std::string name_of(const ConnectionToken& from) const { return acceptor_->name_of(from); }
  bool close_some() { return acceptor_ != nullptr && acceptor_->close_some(); }

  // False: the connection is gone or full.
  bool send(const ConnectionToken& to, wire::Body body);
  void refuse(const ConnectionToken& to, wire::RefuseReason reason, const std::string& text);
  // Without a word when all that were ready are used up: half a lease without an answer makes the other side dial.
  void ask_to_dial_again(const ConnectionToken& to);
  void keep_words_ready() noexcept;

 private:
  StreamShared& shared_;
  std::unique_ptr<Acceptor> acceptor_;
  std::array<Frames, 8> again_words_;
};

}  // namespace distag
