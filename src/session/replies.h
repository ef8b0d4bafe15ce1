#pragma once

#include <array>
#include <memory>
#include <string>

#include "session/stream_shared.h"

namespace distag {

// Replies on the connections that others have dialled: WELCOME and REFUSE, without numbers. A REFUSE that asks the
// other side to dial again needs no memory: each tick packs eight of them ahead. On the loop.
class Replies {
 public:
  explicit Replies(StreamShared& shared) : shared_(shared) {}

  // Binds the address. Must be called before any reply.
  void listen(const std::string& address, AcceptorEvents events);
  const std::string& endpoint() const { return acceptor_->endpoint(); }
  // The name that the key of the connection is bound to; empty: none.
  std::string name_of(const ConnectionToken& from) const { return acceptor_->name_of(from); }
  bool close_some() { return acceptor_ != nullptr && acceptor_->close_some(); }

  // Returns false if the connection is gone or full.
  bool send(const ConnectionToken& to, wire::Body body);
  void refuse(const ConnectionToken& to, wire::RefuseReason reason, const std::string& text);
  // Sends nothing when all packed replies are used up: the other side dials after half a lease without an answer.
  void ask_to_dial_again(const ConnectionToken& to);
  void keep_words_ready() noexcept;

 private:
  StreamShared& shared_;
  std::unique_ptr<Acceptor> acceptor_;
  std::array<Frames, 8> again_words_;
};

}  // namespace distag
