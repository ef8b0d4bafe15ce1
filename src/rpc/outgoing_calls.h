#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/task.h"
#include "base/turns.h"
#include "rpc/calls_by_context.h"
#include "rpc/credit.h"
#include "rpc/deadlines.h"
#include "rpc/open_call.h"
#include "rpc/outgoing_call.h"
#include "rpc/rpc.h"
#include "rpc/rpc_shared.h"

namespace distag {

// Calls of this worker that are under way: from the queue to the answer. On the loop.
//
// A call ends in end(): by its answer, its deadline, the loss of the callee, a lack of this worker, a cancel (of
// itself, its context or the invocation it was made within), or the shutdown. Only the number of its message decides
// whether it may have run.
class OutgoingCalls {
 public:
  explicit OutgoingCalls(RpcShared& shared);
  ~OutgoingCalls() { next_->owner = nullptr; }
  OutgoingCalls(const OutgoingCalls&) = delete;
  OutgoingCalls& operator=(const OutgoingCalls&) = delete;

  void start(const std::shared_ptr<OutgoingCall>& call);
  // `shortage`: the result could not be stored, and the call fails with this error.
  Heard on_reply(const Peer& from, wire::Reply& reply, const Error* shortage = nullptr);
  // The peer has taken requests of this total cost: some waiting calls go out.
  void on_taken(const Peer& from, uint64_t total);
  // The future has been cancelled.
  void on_future_cancelled(const std::shared_ptr<OutgoingCall>& call);
  // The call or context that `call` was made for is over: ends it with CANCELLED and `reason`.
  void cancel(const std::shared_ptr<OutgoingCall>& call, const std::string& reason);

  enum class Why {
    kGone,      // the callee is gone: all calls
    kLack,      // a lack here or there: calls that have not gone out
    kLongLack,  // the same for long: all calls, as no answer can be expected
  };
  void end_calls_to(Incarnation peer, const Error& error, Why why);
  void end_context(const Id& context);
  // Takes no more calls and returns those that are open, for end_open().
  std::vector<std::shared_ptr<OutgoingCall>> begin_stop();
  // Returns false if the call has ended before.
  bool end_open(const std::shared_ptr<OutgoingCall>& call, const Error& why);
  // Ends all calls and takes no more. Returns how many there were.
  size_t stop(const Error& why);
  // Ends all calls when streams, hooks and loop are gone already.
  void abandon();

  bool is_idle() const { return open_.empty(); }
  RequestBytes request_bytes() const { return credit_.bytes(); }
  void describe(std::vector<OpenCall>& calls, size_t most, Nanos now) const;

 private:
  void check(const OutgoingCall& call) const;
  void send(const std::shared_ptr<OutgoingCall>& call);
  void send_or_end(const std::shared_ptr<OutgoingCall>& call);
  void send_waiting(Incarnation peer) noexcept;
  void send_on(Nanos delay) noexcept;
  bool withdraw(OutgoingCall& call);
  void on_number(OutgoingCall& call, wire::Call& body);
  void record(OutgoingCall& call, wire::Call& body);
  void receive_metadata(const OutgoingCall& call, const Peer& from, const wire::Reply& reply);
  void on_due(const Id& id);
  // Takes the call back if it has no number yet, otherwise tells the callee.
  void recall(OutgoingCall& call, bool tell_callee);
  void end(const std::shared_ptr<OutgoingCall>& call, Value value);
  void end(const std::shared_ptr<OutgoingCall>& call, Error error);
  void finish(const std::shared_ptr<OutgoingCall>& call, Error error);
  void trace(const OutgoingCall& call, Status status) const;
  void forget(OutgoingCall& call);

  RpcShared& shared_;
  std::unordered_map<Id, std::shared_ptr<OutgoingCall>> open_;
  CallsByContext by_context_;  // the calls in open_
  Deadlines deadlines_;
  Turns turns_;
  Credit credit_;
  // The task that sends more waiting calls; it may outlive this object.
  struct Next {
    explicit Next(OutgoingCalls& calls) : owner(&calls) {}
    OutgoingCalls* owner;
    TaskPlace place;
    bool is_posted = false;
  };
  const std::shared_ptr<Next> next_ = std::make_shared<Next>(*this);
  uint64_t last_counter_ = 0;
  bool is_stopped_ = false;
};

}  // namespace distag
