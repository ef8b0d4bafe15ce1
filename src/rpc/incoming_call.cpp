#include "rpc/incoming_call.h"

#include <algorithm>
#include <utility>

#include "base/each_step.h"
#include "rpc/credit.h"
#include "rpc/incoming_calls.h"

namespace distag {
namespace {

// The reply that a function owes after it has returned.
class DeferredReply final : public PendingReply {
 public:
  DeferredReply(std::shared_ptr<GroupShared> group, std::shared_ptr<IncomingCall> call, const FunctionReply& function)
      : group_(std::move(group)), call_(std::move(call)), function_(function) {}
  ~DeferredReply() override {
    if (!is_finished_.load()) call_->drop_reply();
  }

  bool finish(Value value) override {
    if (is_worker_down() || is_finished_.exchange(true)) return false;
    return give([this, &value] { return call_->answer(std::move(value)); });
  }

  bool fail(Error error) override {
    if (is_worker_down() || is_finished_.exchange(true)) return false;
    return give([this, &error] { return call_->answer(std::move(error.set_may_have_run(true))); });
  }

  bool is_cancelled() const override { return call_->is_cancelled(); }

 private:
  // Returns false if the function has answered its own failure. A reply that fails for lack of memory may be given
  // again.
  template <typename Give>
  bool give(Give&& answer) {
    try {
      return answer() || !function_.has_failed();
    } catch (...) {
      is_finished_.store(false);
      throw;
    }
  }

  // True when no caller can get an answer any more.
  bool is_worker_down() const { return group_->phase.load() == GroupPhase::kStopped; }

  const std::shared_ptr<GroupShared> group_;
  const std::shared_ptr<IncomingCall> call_;
  const FunctionReply& function_;  // a member of the call
  std::atomic<bool> is_finished_{false};
};

Error dropped() {
  return Error(Status::kRemote, "the function put its answer off and then dropped it without finishing")
      .set_may_have_run(true);
}

}  // namespace

IncomingCall::IncomingCall(std::shared_ptr<RpcShared> shared, IncomingCalls& table, std::shared_ptr<const Peer> caller,
                           wire::Call&& request, Nanos deadline, std::shared_ptr<CallerAccount> account)
    : shared_(std::move(shared)),
      table_(table),
      caller_(std::move(caller)),
      request_(std::move(request)),
      deadline_(deadline),
      stage_(shared_->environment.loop.now()),
      reply_(request_.function, stage_),
      room_(*shared_, std::move(account), request_) {}

Nanos IncomingCall::time_left() const {
  if (deadline_ == kNever) return kForever;
  return std::max<Nanos>(0, deadline_ - shared_->environment.loop.now());
}

void IncomingCall::set_result(Value value) { reply_.set(make_answer(*shared_, request_, std::move(value))); }

std::shared_ptr<PendingReply> IncomingCall::defer() {
  auto self = std::static_pointer_cast<IncomingCall>(shared_from_this());
  return reply_.defer(
      [this, &self] { return std::make_shared<DeferredReply>(shared_->group, std::move(self), reply_); });
}

void IncomingCall::drop_reply() noexcept {
  if (!reply_.drop()) return;
  EachStep each;
  each([this] { answer(dropped()); });
  if (each.has_failed()) each([this] { answer(Error(Status::kOutOfMemory, "no memory")); });
}

void IncomingCall::prepare(Work work, Executor* where, bool is_control) {
  assert_on_loop(shared_->environment.loop);
  job_ = {std::move(work), where, is_control};
}

bool IncomingCall::go_on() {
  assert_on_loop(shared_->environment.loop);
  if (!stage_.is_queued()) {
    table_.free_where_there_is_time(std::static_pointer_cast<IncomingCall>(shared_from_this()));
    return false;
  }
  if (job_.where == nullptr) {
    run();
    return true;
  }
  job_.where->post_or_drop([self = std::static_pointer_cast<IncomingCall>(shared_from_this())] { self->run(); });
  return true;
}

void IncomingCall::run() {
  Work work;
  try {
    AnswerRoom& answers = *room_.account().answers;
    // A call whose result stays here does not wait: others may await the value, and its answer is small.
    const bool may_wait = !job_.is_control && !request_.keep;
    if (may_wait && answers.keeps(std::static_pointer_cast<IncomingCall>(shared_from_this()))) return;
    answers.note_passed();
    work = std::move(job_.work);  // taken out, so that objects that it holds are destroyed with the run
    if (!stage_.begin(shared_->running, request_.function, shared_->environment.loop.now())) return;
    room_.give_back();
  } catch (...) {
    answer_failure(*this, false);
    return;
  }
  EachStep each;
  each([this, &work] { run_begun(work); });
  stage_.end_run(shared_->running);
  each.check();
}

void IncomingCall::run_begun(Work& work) {
  TraceScope scope(shared_->group->trace, TraceCategory::kRun, request_.function, caller_->name);
  scope.set_flow(TraceEvent::Flow::kIn, TraceCategory::kCall, request_.call);
  scope.set_queued_since(stage_.arrived());
  scope.set_trace_parent(request_.trace_parent.get());
  scope.set_bytes(room_.bytes());
  try {
    work(*this);
  } catch (...) {
    reply_.note_failed();
    answer_failure(*this, true);
    return;
  }
  Answer result;
  const FunctionReply::Kind reply = reply_.take(result);
  if (reply == FunctionReply::Kind::kDropped) {
    answer(dropped());
  } else if (reply != FunctionReply::Kind::kDeferred && claim_answer()) {
    delivery_.answer = std::move(result);
    hand_over();
  }
}

bool IncomingCall::answer(Value value) {
  Answer travelling;
  try {
    travelling = make_answer(*shared_, request_, std::move(value));
  } catch (...) {
    return answer(current_error().set_may_have_run(true).add_context("the answer cannot travel"));
  }
  if (!claim_answer()) return false;
  delivery_.answer = std::move(travelling);
  hand_over();
  return true;
}

bool IncomingCall::answer(Error error) {
  if (!claim_answer()) return false;
  delivery_.answer.error = std::move(error);
  hand_over();
  return true;
}

// A copy of the error could find no memory, and without the answer the caller would wait for good.
void answer_failure(IncomingCall& call, bool may_have_run) {
  Error failure = current_error();
  failure.set_may_have_run(may_have_run);
  call.answer(std::move(failure));
}

void IncomingCall::hand_over() {
  const std::shared_ptr<GroupShared> group = shared_->group;  // this object may end below
  TraceScope scope(group->trace, TraceCategory::kAnswer, request_.function, caller_->name);
  scope.set_flow(TraceEvent::Flow::kOut, TraceCategory::kAnswer, request_.call);
  Answer& made = delivery_.answer;
  made.share = {room_.account().answers, request_.keep ? 0 : cost_of(made.value, made.packed.get())};
  shared_->gate.run(delivery_.place, [self = std::static_pointer_cast<IncomingCall>(shared_from_this())]() mutable {
    self->table_.send_answer(std::move(self));
  });
}

bool IncomingCall::close() { return stage_.close(); }

}  // namespace distag
