#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fuzz/input.h"
#include "support/session_node.h"
#include "wire/codec.h"

namespace distag::fuzz {

// A member that speaks by hand, with a key of its own name; and what the one that it speaks to has to think of it, as
// schemas/session.fbs says.
class Rogue {
 public:
  enum class Stand { kMember, kLost, kLeft };
  enum class Line { kNone, kDialled, kGreeted, kMuted };  // its connection: whether HELLO was said, or it is unheard

  Rogue(SimScheduler& scheduler, SimNetwork& network, const std::string& name, int32_t rank, bool exact)
      : loop_(scheduler, name), transport_(network, loop_, name) {
    transport_.exact = exact;
    transport_.key_name = name;
    AcceptorEvents events;
    events.on_message = [this](const ConnectionToken& from, const Frames& frames) {
      const wire::Message message = wire::unpack(frames, {}, transport_);
      if (message.number > received) received = message.number;
      back_ = from;
    };
    loop_.run([&] { acceptor_ = transport_.listen(transport_.private_address(), std::move(events)); });
    peer = {rank, name, acceptor_->endpoint(), 4711 + static_cast<uint64_t>(rank), 1, 0};
  }
  ~Rogue() {
    loop_.run([this] {
      connection_.reset();
      acceptor_.reset();
    });
  }

  void dial(const std::string& endpoint) {
    ConnectionEvents events;
    events.on_message = [this](const Frames& frames) { hear(wire::unpack(frames, {}, transport_)); };
    loop_.run([&] { connection_ = transport_.dial(endpoint, std::move(events)); });
    answers.clear();
    is_welcomed_ = false;
    line = Line::kDialled;
  }
  // False: the connection does not take it.
  bool send(const Frames& frames) {
    answers.clear();
    bool is_sent = false;
    loop_.run([&] { is_sent = connection_ != nullptr && connection_->send(frames); });
    return is_sent;
  }
  // To the other's HELLO, where its connection is.
  bool answer(const Frames& frames) {
    bool is_sent = false;
    loop_.run([&] { is_sent = !back_.empty() && acceptor_->reply(back_, frames); });
    return is_sent;
  }
  Frames pack(const wire::Message& message) const {
    wire::Encoded encoded = wire::encode(message, {});
    if (!transport_.is_exact()) encoded.header = wire::seal(encoded.header, encoded.payload);
    encoded.payload.insert(encoded.payload.begin(), encoded.header);
    return encoded.payload;
  }
  wire::Hello hello(Incarnation wanted) const {
    wire::Hello hello;
    hello.job = "job";
    hello.name = peer.name;
    hello.rank = peer.rank;
    hello.incarnation = peer.incarnation;
    hello.generation = peer.generation;
    hello.endpoint = peer.endpoint;
    hello.wanted = wanted;
    return hello;
  }
  bool is_refused(wire::RefuseReason reason) const {
    if (answers.size() != 1) return false;
    const auto* refusal = std::get_if<wire::Refuse>(&answers.front().body);
    return refusal != nullptr && refusal->reason == reason;
  }
  const wire::Welcome* welcome() const {
    return answers.size() != 1 ? nullptr : std::get_if<wire::Welcome>(&answers.front().body);
  }

  Peer peer;
  std::vector<wire::Message> answers;  // since the last word
  uint64_t received = 0;               // number of the last message from the other
  uint64_t acknowledged = 0;           // all up to this number, by WELCOME
  Stand stand = Stand::kMember;
  Line line = Line::kNone;
  uint64_t next = 1;  // number of its next message

  // The transfers that it has begun and not named: bytes that have come, of how many.
  struct Begun {
    uint64_t received = 0;
    uint64_t total = 0;
  };
  std::map<uint64_t, Begun> transfers;
  uint64_t last_transfer = 0;
  bool are_transfers_known = true;

 private:
  // WELCOME that comes again acknowledges, and is no answer. What it acknowledges only grows.
  void hear(wire::Message message) {
    const auto* const welcome = std::get_if<wire::Welcome>(&message.body);
    if (welcome != nullptr) {
      check(welcome->next > acknowledged);
      acknowledged = welcome->next - 1;
      if (std::exchange(is_welcomed_, true)) return;
    }
    answers.push_back(std::move(message));
  }

  SimLoop loop_;
  SimTransport transport_;
  std::unique_ptr<Acceptor> acceptor_;
  std::unique_ptr<Connection> connection_;
  ConnectionToken back_;      // the connection of the other
  bool is_welcomed_ = false;  // on its own
};

}  // namespace distag::fuzz
