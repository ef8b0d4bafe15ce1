#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "rpc/answer.h"
#include "rpc/call_stage.h"
#include "rpc/function_reply.h"
#include "rpc/nested_calls.h"
#include "rpc/request_room.h"
#include "rpc/rpc.h"
#include "rpc/rpc_shared.h"

namespace distag {

class IncomingCalls;

// A call from a peer, from its arrival until nothing here holds it any more. Its answer is the first of these: the
// function's result or failure, a deferred reply, the end by deadline, cancel, loss or shutdown. The first claims the
// answer on any thread; from then on the answer belongs to the loop. CallStage has the progress of the function.
class IncomingCall final : public Invocation {
 public:
  using Work = UniqueFunction<void(Invocation&)>;
  // State of the answer on the loop, once the answer was claimed; `kept` is set before.
  struct Delivery {
    Answer answer;
    std::shared_ptr<Future<Value>> kept;  // receives a result that stays here; nullptr: it goes to the caller
    TaskPlace place;                      // lets handing over and sending the answer do without memory
  };

  IncomingCall(std::shared_ptr<RpcShared> shared, IncomingCalls& table, std::shared_ptr<const Peer> caller,
               wire::Call&& request, Nanos deadline, std::shared_ptr<CallerAccount> account);

  // Invocation
  Rpc& rpc() override { return shared_->rpc; }
  const std::string& function() const override { return request_.function; }
  const std::string& caller() const override { return caller_->name; }
  const Id& context() const override { return request_.metadata.context; }
  const Values& args() const override { return request_.args; }
  const std::shared_ptr<const TraceParent>& trace_parent() const override { return request_.trace_parent; }
  Nanos deadline() const override { return deadline_; }
  Nanos time_left() const override;
  bool is_cancelled() const override { return stage_.is_cancelled(); }
  void set_result(Value value) override;
  std::shared_ptr<PendingReply> defer() override;

  // On the loop. `work` is what run() does; it runs on `where`, or on the loop if nullptr. A request of the group
  // itself waits for no room.
  void prepare(Work work, Executor* where, bool is_control = false);
  // Any thread, once it is prepared. Does nothing if the call is over by now, and runs later if its caller has taken
  // too few of the earlier answers.
  void run();
  // On the loop: runs the call where prepare() said. Returns false if the call is over. Throws bad_alloc.
  bool go_on();

  // Sends the answer once; returns false if there was an answer before. Any thread.
  bool answer(Value value);
  bool answer(Error error);
  // The deferred reply was destroyed unfinished. Any thread.
  void drop_reply() noexcept;

  // ---- on the loop ----

  const wire::Call& request() const { return request_; }
  const Id& id() const { return request_.call; }
  const std::shared_ptr<const Peer>& peer() const { return caller_; }
  const CallStage& stage() const { return stage_; }
  RequestRoom& room() { return room_; }
  const RequestRoom& room() const { return room_; }
  NestedCalls& nested() { return nested_; }
  Delivery& delivery() { return delivery_; }
  wire::Call give_back() {  // the call was not taken in
    room_.give_up();
    return std::move(request_);
  }
  // No caller waits for the answer any more. Returns whether the function has begun. Also when the loop is gone.
  bool close();

 private:
  // The work of run().
  struct Job {
    Work work;  // empty once it has begun
    Executor* where = nullptr;
    bool is_control = false;
  };

  void run_begun(Work& work);
  bool claim_answer() { return !is_answered_.exchange(true); }
  void hand_over();

  const std::shared_ptr<RpcShared> shared_;
  IncomingCalls& table_;  // lives as long as shared_
  const std::shared_ptr<const Peer> caller_;
  wire::Call request_;
  const Nanos deadline_;
  Job job_;
  CallStage stage_;
  FunctionReply reply_;
  std::atomic<bool> is_answered_{false};
  Delivery delivery_;
  NestedCalls nested_;
  RequestRoom room_;  // last, so that it is given back before the arguments are destroyed
};

// Answers a call with the exception being handled. Needs no memory. Any thread.
void answer_failure(IncomingCall& call, bool may_have_run);

}  // namespace distag
