#pragma once

#include <memory>

#include "rpc/incoming_call.h"
#include "rpc/rpc_shared.h"

namespace distag {

// Sends the answers of calls that are over. On the loop.
//
// For each call that its caller waits for one reply goes out: its answer, or a failure that says why the answer cannot
// travel; where there is no memory for either, the failure a little later, as the caller would wait for ever. None goes
// out after stop().
class AnswerSender {
 public:
  explicit AnswerSender(RpcShared& shared) : shared_(shared) {}

  // The answer that is pending at the call.
  void send(const std::shared_ptr<IncomingCall>& call);
  // Of a call that never got into the table; `taken` as wire::Reply has it.
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
