#include "dautograd/part_state.h"

#include <utility>

#include "group/shared.h"

namespace distag {
namespace {

constexpr Nanos kFailAgain = 100 * kMillisecond;  // after a shortage of memory

}  // namespace

PartState::PartState(DautogradShared& shared, PassGraph& graph, Holder& holder, std::shared_ptr<ContextRecord> context,
                     const PassInfo& info)
    : shared_(shared),
      graph_(graph),
      holder_(holder),
      context_(std::move(context)),
      info_(info),
      begun_(shared.environment.loop.now()) {}

void PartState::begin() {
  assert_on_loop(shared_.environment.loop);
  shared_.open_passes.begin_part(info_.pass, shared_.self.incarnation);
  try {
    context_->begin_pass();
  } catch (...) {
    shared_.open_passes.end_part(info_.pass);
    throw;
  }
  ++shared_.counters.passes_run;
  ++shared_.counters.passes_open;
}

void PartState::observe(std::unique_ptr<PassObserver> observer) {
  assert_on_loop(shared_.environment.loop);
  own_observer_ = std::move(observer);
  observer_ = own_observer_.get();
}

bool PartState::takes(const Peer& from, bool creates_graph) {
  assert_on_loop(shared_.environment.loop);
  if (is_failed()) return false;
  if (creates_graph == info_.creates_graph) return true;
  fail_by_grad(shared_.sign(Error(
      Status::kUnsupported,
      fmt::format("create_graph: workers differ in whether the gradients of the pass have a history: the distag "
                  "of worker \"{}\" (rank {}), or of one that began the pass here, is too old for it: update it, or "
                  "run the pass without create_graph",
                  from.name, from.rank))));
  return false;
}

void PartState::report_done(wire::Grad* last) {
  assert_on_loop(shared_.environment.loop);
  state_ = State::kDone;
  const auto self = holder_.shared_from_this();
  try {
    observer_->on_done(last);
  } catch (const std::bad_alloc&) {
    if (is_over()) throw;
    state_ = State::kRunning;  // the part was not done
    fail(shared_.sign(current_error()));
  }
}

void PartState::fail(const Error& error) {
  assert_on_loop(shared_.environment.loop);
  if (!is_running()) return;
  state_ = State::kFailed;
  ended_with_ = error.status();
  graph_.stop();
  try {
    observer_->on_failed(error);
  } catch (const std::bad_alloc&) {
    fail_later();
  }
}

// Tries again later: the initiator would wait for ever.
void PartState::fail_later() {
  if (is_over()) return;
  Loop& loop = shared_.environment.loop;
  loop.start_timer(again_, loop.now() + kFailAgain,
                   [this, alive = shared_.weak_from_this(), self = holder_.shared_from_this()] {
                     const auto shared = alive.lock();
                     if (shared == nullptr || shared->passes == nullptr || is_over()) return;
                     try {
                       observer_->on_failed(Error(Status::kOutOfMemory, "no memory"));
                     } catch (const std::bad_alloc&) {
                       fail_later();
                     }
                   });
}

void PartState::fail_by_grad(const Error& error) {
  assert_on_loop(shared_.environment.loop);
  if (!is_done()) return fail(error);
  observer_->on_failed(error);
}

void PartState::note_end(Status why) {
  assert_on_loop(shared_.environment.loop);
  if (ended_with_ == Status::kOk) ended_with_ = why;
}

void PartState::close() {
  assert_on_loop(shared_.environment.loop);
  trace();
  state_ = State::kOver;
  observer_ = nullptr;
  --shared_.counters.passes_open;
  shared_.open_passes.end_part(info_.pass);
  context_->end_pass();
}

void PartState::trace() const {
  TraceEvent event;
  event.category = TraceCategory::kPass;
  event.status = ended_with_;
  event.begin = begun_;
  event.end = shared_.environment.loop.now();
  const bool is_own = info_.pass.maker == shared_.self.incarnation;
  event.is_part = !is_own;
  const Peer* of = is_own || shared_.session == nullptr ? nullptr : shared_.session->find(info_.pass.maker);
  shared_.group.shared()->trace.add_ended(event, is_own ? "pass" : "pass of another", of == nullptr ? "" : of->name);
}

}  // namespace distag
