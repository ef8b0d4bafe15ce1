#include "rpc/incoming_call.h"

#include <algorithm>
#include <utility>

#include "base/each_step.h"
#include "base/mutex.h"
#include "rpc/credit.h"
#include "rpc/incoming_calls.h"
#include "rpc/outgoing_calls.h"
#include "tensor/deferred.h"
#include "wire/codec.h"
#include "wire/packed.h"

namespace distag {
namespace {

// The reply that a function owes after it has returned.
class DeferredReply final : public PendingReply {
 public:
  explicit DeferredReply(std::shared_ptr<IncomingCall> call) : call_(std::move(call)) {}
  ~DeferredReply() override {
    if (!is_finished_.load()) call_->drop_reply();
  }

  bool finish(Value value) override {
    if (call_->is_worker_down() || is_finished_.exchange(true)) return false;
    give([this, &value] { call_->answer(std::move(value)); });
    return true;
  }

  bool fail(Error error) override {
    if (call_->is_worker_down() || is_finished_.exchange(true)) return false;
    give([this, &error] { call_->answer(std::move(error.set_may_have_run(true))); });
    return true;
  }

  bool is_cancelled() const override { return call_->is_cancelled(); }

 private:
  // One that finds no memory may be given again.
  template <typename Give>
  void give(Give&& answer) {
    try {
      answer();
    } catch (...) {
      is_finished_.store(false);
      throw;
    }
  }

  const std::shared_ptr<IncomingCall> call_;
  std::atomic<bool> is_finished_{false};
};

}  // namespace

IncomingCall::IncomingCall(std::shared_ptr<RpcShared> shared, IncomingCalls& table, std::shared_ptr<const Peer> caller,
                           wire::Call&& request, Nanos deadline, std::shared_ptr<CallerAccount> account)
    : shared_(std::move(shared)),
      table_(table),
      caller_(std::move(caller)),
      request_(std::move(request)),
      arrived_(shared_->environment.loop.now()),
      deadline_(deadline),
      account_(std::move(account)),
      bytes_(std::max(request_.cost, request_.bytes)) {
  account_->taken->note_come(bytes_);
}

IncomingCall::~IncomingCall() { note_taken(); }

void IncomingCall::note_taken(uint64_t cost) noexcept {
  if (!is_taken_.exchange(true)) account_->taken->add(shared_->gate, cost, bytes_);
}

OpenCall::Stage IncomingCall::stage() const {
  assert_on_loop(shared_->environment.loop);
  switch (stage_.load()) {
    case Stage::kQueued:
      return OpenCall::Stage::kWaiting;
    case Stage::kReturned:
      return OpenCall::Stage::kDeferred;
    case Stage::kRunning:
    case Stage::kOver:
      break;
  }
  return OpenCall::Stage::kRunning;
}

Nanos IncomingCall::time_left() const {
  if (deadline_ == kNever) return kForever;
  return std::max<Nanos>(0, deadline_ - shared_->environment.loop.now());
}

Nanos IncomingCall::queued() const {
  const Nanos begun = begun_.load(std::memory_order_relaxed);
  return begun == kNever ? -1 : begun - arrived_;
}

bool IncomingCall::is_worker_down() const { return shared_->group->phase.load() == GroupPhase::kStopped; }

bool IncomingCall::is_cancelled() const { return is_cancelled_.load(std::memory_order_acquire); }

void IncomingCall::check_unanswered(const char* what) const {
  if (reply_ == Reply::kNone && stage_.load() != Stage::kReturned) return;
  const char* state = reply_ == Reply::kNone ? "went out" : reply_ == Reply::kSet ? "was set" : "was deferred";
  fail(Status::kInvalidState, "{}: the answer of call \"{}\" {} before", what, request_.function, state);
}

Answer IncomingCall::leaving(Value value) const {
  check_references(*shared_, value);
  Answer answer;
  if (keeps_result()) {
    make_elements(value);
    answer.value = std::move(value);
    return answer;
  }
  if (value.kind() == ValueKind::kObject) {
    fail(Status::kInvalidArgument,
         "an object of type \"{}\" cannot travel: it answers only calls whose result stays here",
         value.as_object()->type);
  }
  answer.value = wire::prepare(value);
  answer.packed = wire::Packed::make(answer.value);
  if (answer.packed != nullptr) answer.value = Value();
  if (context() && value.has_tensor()) answer.original = std::move(value);
  return answer;
}

void IncomingCall::set_result(Value value) {
  Answer travelling = leaving(std::move(value));
  MutexLock lock(mutex_);
  check_unanswered("return");
  reply_ = Reply::kSet;
  result_ = std::move(travelling);
}

std::shared_ptr<PendingReply> IncomingCall::defer() {
  auto self = std::static_pointer_cast<IncomingCall>(shared_from_this());
  MutexLock lock(mutex_);
  check_unanswered("defer");
  auto reply = std::make_shared<DeferredReply>(std::move(self));
  reply_ = Reply::kDeferred;
  return reply;
}

void IncomingCall::drop_reply() noexcept {
  {
    MutexLock lock(mutex_);
    reply_ = Reply::kDropped;
    // It may still fail by itself, and says so when it returns.
    if (stage_.load() == Stage::kRunning) return;
  }
  EachStep each;
  each([this] { answer_dropped(); });
  if (each.has_failed()) each([this] { answer(Error(Status::kOutOfMemory, "no memory")); });
}

void IncomingCall::answer_dropped() {
  answer(Error(Status::kRemote, "the function put its answer off and then dropped it without finishing")
             .set_may_have_run(true));
}

bool IncomingCall::begin() {
  if (!shared_->running.begin(run_, request_.function)) return false;
  Stage expected = Stage::kQueued;
  if (stage_.compare_exchange_strong(expected, Stage::kRunning)) {
    begun_.store(shared_->environment.loop.now(), std::memory_order_relaxed);
    note_taken();
    return true;
  }
  shared_->running.end(run_);
  return false;
}

void IncomingCall::prepare(Work work, Executor* where, bool is_control) {
  assert_on_loop(shared_->environment.loop);
  work_ = std::move(work);
  where_ = where;
  is_control_ = is_control;
}

bool IncomingCall::go_on() {
  assert_on_loop(shared_->environment.loop);
  if (stage_.load() != Stage::kQueued) {
    table_.free_where_there_is_time(std::static_pointer_cast<IncomingCall>(shared_from_this()));
    return false;
  }
  if (where_ == nullptr) {
    run();
    return true;
  }
  where_->post_or_drop([self = std::static_pointer_cast<IncomingCall>(shared_from_this())] { self->run(); });
  return true;
}

void IncomingCall::run() {
  Work work;
  try {
    AnswerRoom& answers = *account_->answers;
    // A value that is made here may be awaited by others, and its answer is small.
    const bool may_wait = !is_control_ && !keeps_result();
    if (may_wait && answers.keeps(std::static_pointer_cast<IncomingCall>(shared_from_this()))) return;
    answers.note_passed();
    work = std::move(work_);  // what it holds ends with the run
    if (!begin()) return;
  } catch (...) {
    answer(current_error().set_may_have_run(false));
    return;
  }
  EachStep each;
  each([this, &work] { run_begun(work); });
  finish_run();
  each.check();
}

void IncomingCall::run_begun(Work& work) {
  TraceScope scope(shared_->group->trace, TraceCategory::kRun, request_.function, caller_->name);
  scope.set_flow(TraceEvent::Flow::kIn, TraceCategory::kCall, request_.call);
  scope.set_queued_since(arrived_);
  scope.set_trace_parent(request_.trace_parent.get());
  scope.set_bytes(bytes_);
  try {
    work(*this);
  } catch (...) {
    answer(current_error().set_may_have_run(true));
    return;
  }
  Reply reply = Reply::kNone;
  Answer result;
  {
    MutexLock lock(mutex_);
    stage_.store(Stage::kReturned);
    reply = reply_;
    result = std::move(result_);
  }
  if (reply == Reply::kDropped) {
    answer_dropped();
  } else if (reply != Reply::kDeferred && claim_answer()) {
    answer_ = std::move(result);
    hand_over();
  }
}

void IncomingCall::finish_run() {
  stage_.store(Stage::kReturned);
  shared_->running.end(run_);
}

bool IncomingCall::claim_answer() { return !is_answered_.exchange(true); }

bool IncomingCall::answer(Value value) {
  Answer travelling;
  try {
    travelling = leaving(std::move(value));
  } catch (...) {
    return answer(current_error().set_may_have_run(true).add_context("the answer cannot travel"));
  }
  if (!claim_answer()) return false;
  answer_ = std::move(travelling);
  hand_over();
  return true;
}

bool IncomingCall::answer(Error error) {
  if (!claim_answer()) return false;
  answer_.error = std::move(error);
  hand_over();
  return true;
}

void IncomingCall::hand_over() {
  const std::shared_ptr<GroupShared> group = shared_->group;  // this may end below
  TraceScope scope(group->trace, TraceCategory::kAnswer, request_.function, caller_->name);
  scope.set_flow(TraceEvent::Flow::kOut, TraceCategory::kAnswer, request_.call);
  answer_.share = {account_->answers, keeps_result() ? 0 : cost_of(answer_.value, answer_.packed.get())};
  shared_->gate.run(place_, [self = std::static_pointer_cast<IncomingCall>(shared_from_this())]() mutable {
    self->table_.send_answer(std::move(self));
  });
}

bool IncomingCall::close() {
  is_cancelled_.store(true, std::memory_order_release);
  Stage expected = Stage::kQueued;
  return !stage_.compare_exchange_strong(expected, Stage::kOver);
}

void IncomingCall::add_nested(const std::shared_ptr<OutgoingCall>& call) {
  assert_on_loop(shared_->environment.loop);
  if (nested_.size() >= nested_limit_) {
    std::erase_if(nested_, [](const std::weak_ptr<OutgoingCall>& nested) {
      const auto alive = nested.lock();
      return alive == nullptr || alive->future.is_done();
    });
    nested_limit_ = std::max<size_t>(16, 2 * nested_.size());
  }
  nested_.push_back(call);
}

}  // namespace distag
