#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "rpc/answer_room.h"
#include "rpc/caller_accounts.h"
#include "rpc/open_call.h"
#include "rpc/rpc.h"
#include "rpc/shared.h"

namespace distag {

class IncomingCalls;
struct OutgoingCall;

// The answer to a call: a value or an error. `original` is the value with its history, where that is wanted.
struct Answer {
  Value value;
  std::shared_ptr<const wire::Packed> packed;  // in its place
  Value original;
  std::optional<Error> error;
  AnswerRoom::Share share;
};

// One call from a peer, from its arrival until nothing here holds it any more. Its answer is whatever comes first of
// the function's result or failure, a deferred reply, and the end by deadline, cancel, loss or shutdown.
//
//   queued  -> running   begin(): a thread takes it, the call is open and the door not closed
//   queued  -> over      close(): it ended in the queue and never runs
//   running -> returned  finish_run(): the function has returned or thrown
class IncomingCall final : public Invocation {
 public:
  IncomingCall(std::shared_ptr<RpcShared> shared, IncomingCalls& table, std::shared_ptr<const Peer> caller,
               wire::Call&& request, Nanos deadline, std::shared_ptr<CallerAccount> account);
  ~IncomingCall() override;

  // Invocation
  Rpc& rpc() override { return shared_->rpc; }
  const std::string& function() const override { return request_.function; }
  const std::string& caller() const override { return caller_->name; }
  const Id& context() const override { return request_.metadata.context; }
  const Values& args() const override { return request_.args; }
  const std::shared_ptr<const TraceParent>& trace_parent() const override { return request_.trace_parent; }
  Nanos deadline() const override { return deadline_; }
  Nanos time_left() const override;
  bool is_cancelled() const override;
  void set_result(Value value) override;
  std::shared_ptr<PendingReply> defer() override;

  using Work = UniqueFunction<void(Invocation&)>;
  // On the loop: what run() does, and where; nullptr: on the loop. A request of the group itself waits for no room.
  void prepare(Work work, Executor* where, bool is_control = false);
  // Any thread, once it is prepared: does nothing when the call is over by now, and does it later when its caller has
  // taken too few of the answers before.
  void run();
  // On the loop: runs it there. False: it is over. Throws bad_alloc.
  bool go_on();

  // Sends the answer, once: false when there was one before. Any thread.
  bool answer(Value value);
  bool answer(Error error);
  // The deferred reply is gone unfinished. Any thread.
  void drop_reply() noexcept;
  // An answer reaches no caller any more. Any thread.
  bool is_worker_down() const;

  // ---- on the loop ----

  const Id& id() const { return request_.call; }
  const std::shared_ptr<const Peer>& peer() const { return caller_; }
  const std::string& label() const { return request_.label; }
  const wire::AutogradMetadata& metadata() const { return request_.metadata; }
  Answer& pending_answer() { return answer_; }
  const Id& value() const { return request_.keep; }
  wire::Call give_back() {  // it was not taken in
    note_taken(0);
    return std::move(request_);
  }
  // It has begun, or waits for something else; one that never does is dropped when nothing holds it. Any thread.
  void note_taken() noexcept { note_taken(request_.cost); }
  // The memory that it takes until then, whatever its caller says.
  uint64_t bytes() const { return bytes_; }
  // The costs of requests that its caller may hear of.
  uint64_t taken() const { return account_->taken->total(); }
  CallerAccount& account() const { return *account_; }
  void keep_in(std::shared_ptr<Future<Value>> kept) { kept_ = std::move(kept); }
  // Where a result goes that stays here; nullptr: to the caller, or it has been taken.
  std::shared_ptr<Future<Value>> take_kept() { return std::exchange(kept_, nullptr); }
  bool has_bad_trace_parent() const { return request_.has_bad_trace_parent; }
  bool keeps_result() const { return static_cast<bool>(request_.keep); }
  Nanos arrived() const { return arrived_; }
  // From there to the begin of its function; negative: it has not begun.
  Nanos queued() const;
  OpenCall::Stage stage() const;

  // No caller waits for the answer any more. Gives whether the function has begun. Also when the loop is gone.
  bool close();
  // For what is left to do of its answer once that has been handed over.
  TaskPlace& place() const { return place_; }
  // A call that was made within this one and ends with it.
  void add_nested(const std::shared_ptr<OutgoingCall>& call);
  std::vector<std::weak_ptr<OutgoingCall>> take_nested() { return std::move(nested_); }

 private:
  enum class Stage : uint8_t { kQueued, kRunning, kReturned, kOver };
  enum class Reply : uint8_t { kNone, kSet, kDeferred, kDropped };

  void check_unanswered(const char* what) const REQUIRES(mutex_);
  // The answer as it leaves here. Throws when it cannot.
  Answer leaving(Value value) const;
  bool begin();
  void finish_run();
  void run_begun(Work& work);
  void answer_dropped();
  void note_taken(uint64_t cost) noexcept;
  bool claim_answer();
  void hand_over();

  const std::shared_ptr<RpcShared> shared_;
  IncomingCalls& table_;  // lives as long as shared_
  const std::shared_ptr<const Peer> caller_;
  wire::Call request_;
  const Nanos arrived_;
  const Nanos deadline_;
  const std::shared_ptr<CallerAccount> account_;
  const uint64_t bytes_;
  std::atomic<bool> is_taken_{false};  // counted there
  RunningFunctions::Run run_;
  Work work_;  // until it begins
  Executor* where_ = nullptr;
  bool is_control_ = false;

  std::atomic<Stage> stage_{Stage::kQueued};
  std::atomic<bool> is_cancelled_{false};
  std::atomic<bool> is_answered_{false};
  std::atomic<Nanos> begun_{kNever};

  // The reply that the function gives while it runs.
  mutable Mutex mutex_;
  Reply reply_ GUARDED_BY(mutex_) = Reply::kNone;
  Answer result_ GUARDED_BY(mutex_);

  Answer answer_;            // written by who claims it, then of the loop
  mutable TaskPlace place_;  // so that the answer gets to the loop without memory
  std::shared_ptr<Future<Value>> kept_;
  std::vector<std::weak_ptr<OutgoingCall>> nested_;
  size_t nested_limit_ = 16;
};

}  // namespace distag
