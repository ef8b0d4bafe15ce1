#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/log_throttle.h"
#include "base/turns.h"
#include "rpc/answer_sender.h"
#include "rpc/caller_accounts.h"
#include "rpc/calls_by_context.h"
#include "rpc/deadlines.h"
#include "rpc/incoming_call.h"
#include "rpc/op_call.h"
#include "rpc/outgoing_calls.h"
#include "rpc/rpc_shared.h"

namespace distag {

// Calls from peers that are not answered yet. On the loop, except where it says otherwise. A call leaves the table with
// its answer, or when its caller no longer waits; a function that runs then sees that it is cancelled, and ends by
// itself.
class IncomingCalls {
 public:
  IncomingCalls(RpcShared& shared, OutgoingCalls& outgoing);

  // `owner` holds the shared state, for the invocations. `shortage`: the arguments could not be stored, and the call is
  // answered with this error; so is any failure here before the function runs.
  Heard on_call(const std::shared_ptr<RpcShared>& owner, const Peer& from, wire::Call& request,
                const Error* shortage = nullptr);
  Heard on_cancel(const Peer& from, const wire::Cancel& cancel);
  void send_answer(std::shared_ptr<IncomingCall> call);
  // The last reference to a call: arguments that take long to free are freed on the compute executor.
  void free_where_there_is_time(std::shared_ptr<IncomingCall> call) noexcept;
  CallerAccounts& accounts() { return accounts_; }

  void on_peer_gone(Incarnation peer);
  // From now on other workers' calls are answered with DISCONNECTED.
  void refuse_new() { refuses_new_ = true; }
  void end_context(const Id& context);
  // Takes no more calls and returns those that are open, for end_open(). No function begins after it.
  std::vector<std::shared_ptr<IncomingCall>> begin_stop();
  // Returns false if no caller of another worker waits for the call, or the call has ended before.
  bool end_open(const std::shared_ptr<IncomingCall>& call);
  // Ends all calls and takes no more; no function begins after it. Returns how many calls of other workers were open.
  size_t stop();
  // Releases all calls when streams and loop are gone already: calls hold the state that holds this table.
  void abandon();

  bool is_idle() const { return open_.empty() && shared_.running.is_empty(); }
  void describe(std::vector<OpenCall>& calls, size_t most, Nanos now) const;

 private:
  struct Target {
    std::shared_ptr<const OfferedFunction> function;
    const ops::Op* op = nullptr;
  };

  void check_bounds(const IncomingCall& call) const;
  void check_caller(const Target& target, const std::string& function, const Peer& from);
  void begin_value(IncomingCall& call);
  std::shared_ptr<IncomingCall> take_in(const std::shared_ptr<RpcShared>& owner,
                                        const std::shared_ptr<const Peer>& from, wire::Call& request,
                                        const std::shared_ptr<CallerAccount>& account);
  Target find_target(const std::string& name) const;
  void free_all(CallerAccounts::Calls calls) noexcept;
  void receive_metadata(const IncomingCall& call);
  void note_refused(const IncomingCall& call);
  void dispatch(const std::shared_ptr<IncomingCall>& call, Target target);
  void dispatch_when_ready(const std::shared_ptr<IncomingCall>& call, Target target);
  void prepare_op(const std::shared_ptr<IncomingCall>& call, const ops::Op& op);
  void refuse(const std::shared_ptr<IncomingCall>& call, Error error);
  void on_due(const Id& id);
  // Takes the call out of the table and cancels its function and nested calls. Returns whether the function has begun.
  bool close(const std::shared_ptr<IncomingCall>& call, const std::string& reason);
  void trace(const IncomingCall& call, Status status) const;
  // Takes the call out of the table. Returns false if it was not in it.
  bool remove(const IncomingCall& call);

  LogThrottle denial_log_;
  RpcShared& shared_;
  OutgoingCalls& outgoing_;
  std::unordered_map<Id, std::shared_ptr<IncomingCall>> open_;
  CallsByContext by_context_;  // the calls in open_
  CallerAccounts accounts_;
  AnswerSender answers_;
  Deadlines deadlines_;
  Turns turns_;
  bool refuses_new_ = false;
  bool is_stopped_ = false;
};

}  // namespace distag
