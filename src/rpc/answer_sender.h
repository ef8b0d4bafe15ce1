#pragma once

#include <memory>

#include "rpc/incoming_call.h"
#include "rpc/rpc_shared.h"

namespace distag {

// Sends the answers of finished calls. On the loop.
//
// Each call whose caller waits gets one reply: its answer, or a failure that says why the answer cannot travel. If
// there is no memory for either, a failure goes out a little later, since the caller would wait for ever. Nothing goes
// out after stop().
class AnswerSender {
 public:
  explicit AnswerSender(RpcShared& shared) : shared_(shared) {}

  // Sends the answer that is pending at the call.
  void send(const std::shared_ptr<IncomingCall>& call);
  // Answers a call that never got into the table; `taken` as in wire::Reply.
  void send_refusal(const Peer& to, const Id& call, Error error, uint64_t taken);
  void stop() { is_stopped_ = true; }

 private:
  void check_made(const Peer& to, wire::Reply& reply) const;
  void send(IncomingCall& call, wire::Reply reply, Value original, AnswerRoom::Share share);
  void send_instead(IncomingCall& call, Error error);
  void send_later(IncomingCall& call);
  void record(const IncomingCall& call, wire::Reply& reply, const Value& original);

  RpcShared& shared_;
  bool is_stopped_ = false;
};

}  // namespace distag
