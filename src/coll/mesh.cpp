#include "coll/mesh.h"

#include <algorithm>
#include <utility>

#include "base/each_step.h"
#include "base/fail_future.h"
#include "base/violation.h"
#include "coll/algorithms.h"
#include "coll/move_boxes.h"
#include "group/shared.h"
#include "layout/spec_text.h"
#include "tensor/utf8.h"
#include "wire/codec.h"
#include "wire/format.h"

namespace distag {
namespace {

// "gather: redistribute(...)": what the host called, then the step of it.
std::string step_text(const std::string& within, std::string step) {
  const bool is_that_call = within.empty() || step == within || step.starts_with(within + "(");
  return is_that_call ? std::move(step) : within + ": " + step;
}

// Steps of one collective are fewer, as are the rounds of a move.
constexpr uint32_t kMostParts = 3 + 8 * kMostMovePieces;
constexpr size_t kMostMoves = 1000;  // of a report

}  // namespace

Mesh::Mesh(Environment environment, std::shared_ptr<LoopGate> gate, Id id, layout::MeshShape shape, int64_t position,
           std::vector<std::shared_ptr<const Peer>> members, Nanos timeout, MeshPolicy policy)
    : environment_(environment),
      gate_(std::move(gate)),
      id_(id),
      shape_(std::move(shape)),
      position_(position),
      members_(std::move(members)),
      timeout_(timeout),
      policy_(policy) {}

// ---- calls ----

namespace {

void check_line(const std::string& line) {
  if (line.size() <= wire::kMaxNameBytes && is_valid_utf8(line) && line.find('\0') == std::string::npos) return;
  fail(Status::kInvalidArgument, "the name of a line has {} bytes: give at most {}, of UTF-8 without a zero byte",
       line.size(), wire::kMaxNameBytes);
}

}  // namespace

template <typename Result, typename Begin>
std::shared_ptr<Future<Result>> Mesh::queue(Begin begin) {
  auto future = Future<Result>::make();
  const bool is_queued = gate_->run([owed = Owed(future), future, begin = std::move(begin)]() mutable {
    try {
      begin(future);
      owed.take();
    } catch (...) {
      future->fail(current_error());
    }
  });
  if (!is_queued) fail_dropped(*future);
  return future;
}

// A call that finds no memory for its number is missing in the line, which the others cannot know.
template <typename Begin>
void Mesh::attempt(const std::string& line, Begin begin) {
  try {
    begin();
  } catch (const std::bad_alloc&) {
    end_alone(current_error(), line);
    throw;
  }
}

std::shared_ptr<Future<Tensor>> Mesh::collective(CollectiveCall call) {
  if (call.tensor) call.tensor = wire::prepare(Value(call.tensor)).as_tensor();
  for (Tensor& piece : call.pieces) piece = wire::prepare(Value(piece)).as_tensor();
  return queue<Tensor>([self = shared_from_this(), call = std::move(call)](const auto& future) {
    self->attempt(call.line, [&] { self->begin_collective(call, future); });
  });
}

std::shared_ptr<Future<Tensor>> Mesh::redistribute(RedistributeCall call) {
  call.shard = wire::prepare(Value(call.shard)).as_tensor();
  return queue<Tensor>([self = shared_from_this(), call = std::move(call)](const auto& future) {
    self->attempt(call.line, [&] { self->begin_redistribute(call, future); });
  });
}

// Its caller does not wait for the loop, and may look at the counters right after it.
std::shared_ptr<Future<Unit>> Mesh::note(std::string line, std::string text, uint64_t fingerprint) {
  ++stats_.calls;
  return queue<Unit>([self = shared_from_this(), line = std::move(line), text = std::move(text),
                      fingerprint](const std::shared_ptr<Future<Unit>>& future) {
    self->check_open(line);
    check_line(line);
    self->attempt(line, [&] {
      LineState& state = self->lines_[line];
      state.last_begun = self->environment_.loop.now();
      self->compare_early(line, state, state.line.begin_call(text, fingerprint));
    });
    future->complete(Unit());
  });
}

std::shared_ptr<Future<Unit>> Mesh::end(const Error& error) {
  return queue<Unit>([self = shared_from_this(), error](const std::shared_ptr<Future<Unit>>& future) {
    self->end_now(error, true);
    future->complete(Unit());
  });
}

void Mesh::leave() noexcept {
  if (is_asked_to_leave_.exchange(true)) return;
  // Behind the calls made before it, whichever thread lets go of the mesh.
  gate_->post(leave_, [self = shared_from_this()] {
    if (self->ended_ || std::exchange(self->is_leaving_, true)) return;
    self->tell_left_if_due();
  });
}

void Mesh::check_open(const std::string& line) const {
  if (ended_) throw *ended_;
  if (closed_lines_.contains(line)) {
    fail(Status::kCancelled, "{}: the line was closed at the end of its pass", where(line));
  }
  if (is_leaving_) fail(Status::kInvalidState, "{}: this worker has released it", where(""));
}

Mesh::OpenPointer Mesh::begin_call(const std::string& line, std::string text, uint64_t fingerprint, Nanos timeout,
                                   std::shared_ptr<Future<Tensor>> future) {
  LineState& state = lines_[line];
  const bool is_of_program = state.ended == nullptr;
  if (is_of_program) ++stats_.calls;
  auto call = std::make_shared<Open>();
  call->mesh = shared_from_this();
  call->line = line;
  call->text = text;
  call->number = state.line.begin_call(std::move(text), fingerprint);
  call->hash = state.line.hash();
  call->begun = environment_.loop.now();
  state.last_begun = call->begun;
  call->timeout = timeout == 0 ? timeout_ : timeout;
  call->future = std::move(future);
  call->deadline = deadline_after(call->begun, call->timeout);
  state.open.emplace(call->number, call);
  state.doing.clear();
  if (is_of_program) ++stats_.open;
  start_timer(call);
  compare_early(line, state, call->number);
  return call;
}

void Mesh::begin_collective(const CollectiveCall& call, const std::shared_ptr<Future<Tensor>>& future) {
  check_open(call.line);
  check_line(call.line);
  try {
    check_collective(shape_, call);
  } catch (const Error& error) {
    number_failed(call.line, step_text(call.within, describe(shape_, call)), error);
    throw;
  }
  if (LineState& state = lines_[call.line]; state.open.size() >= kMostOpen) {
    if (call.waits_for_room && !state.waiting) {
      state.waiting.emplace(Waiting{call, future});
      return;
    }
    const Error error = overloaded(call.line);
    number_failed(call.line, step_text(call.within, describe(shape_, call)), error);
    throw error;
  }
  OpenPointer open;
  try {
    open = begin_call(call.line, step_text(call.within, describe(shape_, call)), fingerprint_of(call), call.timeout,
                      future);
    open->is_counted = !call.is_word_of_pass;
    run_collective(*open, call, stats_);
  } catch (...) {
    on_begin_failed(open, call.line);
  }
}

Error Mesh::overloaded(const std::string& line) const {
  return Error(Status::kOverloaded,
               fmt::format("{}: {} calls are under way: wait for one of them before the next", where(line), kMostOpen));
}

// The same on all members: a call that fails on its arguments is one of the line.
void Mesh::number_failed(const std::string& line, std::string text, const Error& error) {
  ++stats_.calls;
  LineState& state = lines_[line];
  state.last_begun = environment_.loop.now();
  compare_early(line, state, state.line.begin_call(std::move(text), Fingerprint().add(error.message()).value()));
}

// The others wait for a call that this member has numbered, or cannot number: without it the mesh is over.
void Mesh::on_begin_failed(const OpenPointer& open, const std::string& line) {
  if (open != nullptr) return open->fail_alone(current_error());
  end_alone(current_error(), line);
  throw;
}

void Mesh::begin_redistribute(const RedistributeCall& call, const std::shared_ptr<Future<Tensor>>& future) {
  check_open(call.line);
  check_line(call.line);
  const std::string text = step_text(
      call.within, fmt::format("redistribute({}{}, {}, {})", dtype_name(call.shard.dtype()), to_string(call.shape),
                               print_spec(shape_, call.from), print_spec(shape_, call.to)));
  std::optional<layout::Move> move;
  try {
    move.emplace(shape_, call.shape, call.from, call.to);
  } catch (const Error& error) {
    number_failed(call.line, text, error);
    throw;
  }
  if (call.is_bounded && lines_[call.line].open.size() >= kMostOpen) {
    const Error error = overloaded(call.line);
    number_failed(call.line, text, error);
    throw error;
  }
  OpenPointer open;
  try {
    open = begin_call(call.line, text, Fingerprint().add(text).value(), call.timeout, future);
    if (call.shard.shape() != local_shape(shape_, call.from, call.shape, position_)) {
      fail(Status::kInvalidArgument, "{}: the shard {} is not the box of its spec", text, describe(call.shard));
    }
    run_move(*open, *move, call.shape, call.shard, stats_);
  } catch (...) {
    on_begin_failed(open, call.line);
  }
}

// Parts that came before the call was made.
void Mesh::compare_early(const std::string& name, LineState& state, uint64_t number) {
  for (auto early = state.early.lower_bound({number, 0, 0}); early != state.early.end(); ++early) {
    if (early->first.number != number) return;
    if (early->second.hash == state.line.hash()) continue;
    tell_diverged(early->first.from, name);
    return;
  }
}

// It has ended some other way than by its result, which may be on its way.
void Mesh::give_up(Open& call, const Error& why) {
  trace(call, why.status());
  call.is_over = true;
  call.exchanges.clear();
  if (call.timer != 0) environment_.loop.cancel_timer(std::exchange(call.timer, 0));
}

// A call that waited for room begins.
void Mesh::make_room(const std::string& line) {
  LineState& state = lines_[line];
  if (!state.waiting || state.open.size() >= kMostOpen) return;
  const Waiting waiting = *std::move(state.waiting);
  state.waiting.reset();
  try {
    attempt(line, [&] { begin_collective(waiting.call, waiting.future); });
  } catch (...) {
    waiting.future->fail(current_error());
  }
}

// Since its begin here, which is not that of the others.
void Mesh::trace(const Open& call, Status status) const {
  TraceEvent event;
  event.category = TraceCategory::kCollective;
  event.status = status;
  event.begin = call.begun;
  event.end = environment_.loop.now();
  event.bytes = call.move ? call.move->bytes : 0;
  environment_.group.shared()->trace.add_ended(event, call.text, call.line);
}

void Mesh::finish(const OpenPointer& call) {
  call->is_over = true;
  trace(*call, Status::kOk);
  if (call->timer != 0) environment_.loop.cancel_timer(std::exchange(call->timer, 0));
  stats_.bytes_held -= std::exchange(call->bytes_held, 0);
  if (call->move) {
    if (moves_.size() == kMostMoves) moves_.pop_front();
    try {
      moves_.push_back(*std::move(call->move));
    } catch (const std::bad_alloc&) {
      // The report has one less.
    }
  }
  LineState& state = lines_[call->line];
  if (state.ended == nullptr) --stats_.open;
  state.open.erase(call->number);
  const auto last = state.early.lower_bound({call->number + 1, 0, 0});
  for (auto early = state.early.lower_bound({call->number, 0, 0}); early != last; early = state.early.erase(early)) {
    early_bytes_ -= held_by(early->second);
  }
  make_room(call->line);
  tell_left_if_due();
}

// ---- messages ----

std::optional<int64_t> Mesh::position_of(Incarnation incarnation) const {
  assert_on_loop(environment_.loop);
  for (size_t i = 0; i < members_.size(); ++i) {
    if (members_[i] != nullptr && members_[i]->incarnation == incarnation) return static_cast<int64_t>(i);
  }
  return std::nullopt;
}

std::vector<Incarnation> Mesh::other_members() const {
  std::vector<Incarnation> others;
  for (size_t i = 0; i < members_.size(); ++i) {
    if (static_cast<int64_t>(i) != position_) others.push_back(members_[i]->incarnation);
  }
  return others;
}

Heard Mesh::on_part(int64_t from, const wire::Part& part) {
  assert_on_loop(environment_.loop);
  if (ended_ || closed_lines_.contains(part.line)) return Heard::kStale;
  if (part.part >= kMostParts) violation("part {} of a collective", part.part);
  LineState& state = lines_[part.line];
  uint64_t& known = state.known[from];
  known = std::max(known, part.number);
  const bool is_ahead = part.number > state.line.last();
  if (!is_ahead) {
    // The line remembers its last calls; one that is under way may be older.
    const auto open = state.open.find(part.number);
    const Line::Made* made = state.line.find(part.number);
    const bool is_equal =
        open != state.open.end() ? open->second->hash == part.hash : made != nullptr && made->hash == part.hash;
    if (!is_equal) {
      tell_diverged(from, part.line);
      return Heard::kHandled;
    }
    if (open == state.open.end()) violation("a piece for call {}, {}, which has none to come", part.number, made->text);
    if (open->second->exchanges.contains(part.part)) {
      const OpenPointer call = open->second;  // which this may finish
      call->take(part.part, from, part.pieces);
      return Heard::kHandled;
    }
  }
  if (!has_room_for_early(from, part, state)) return Heard::kRefused;
  const bool is_new = state.early.emplace(EarlyKey{part.number, part.part, from}, part).second;
  if (!is_new) violation("a second piece for part {} of call {}", part.part, part.number);
  early_bytes_ += held_by(part);
  return Heard::kHandled;
}

// A member that waits for no other, as the root of broadcasts, may be ahead of this one. One part alone is always kept.
bool Mesh::has_room_for_early(int64_t from, const wire::Part& part, const LineState& state) {
  if (early_bytes_ == 0 || early_bytes_ + held_by(part) <= environment_.max_early) return true;
  end_now(
      Error(Status::kOverloaded,
            fmt::format("{}: {} is at call {}, this member ({}) at call {}, and {} bytes of parts wait here: let the "
                        "others come up before that, as an all_reduce does",
                        where(part.line), describe_member(from), part.number, describe_member(position_),
                        state.line.last(), early_bytes_)),
      true);
  return false;
}

// Whether this member has made the last call of another one as another call.
bool Mesh::tell_if_diverged(int64_t from, const std::string& line, const wire::CallHash& last) {
  const auto found = lines_.find(line);
  const Line::Made* made = found == lines_.end() ? nullptr : found->second.line.find(last.number);
  if (made == nullptr || made->hash == last.hash) return false;
  tell_diverged(from, line);
  return true;
}

// To the member whose calls differ, which tells all.
void Mesh::tell_diverged(int64_t to, const std::string& line) {
  wire::Calls calls{id_, line, {}};
  for (const Line::Made& made : lines_[line].line.calls()) calls.calls.push_back(made);
  send(to, std::move(calls));
}

Heard Mesh::on_calls(int64_t from, const wire::Calls& calls) {
  assert_on_loop(environment_.loop);
  if (ended_ || closed_lines_.contains(calls.line)) return Heard::kStale;
  Program own{describe_member(position_), lines_[calls.line].line.calls()};
  Program other{describe_member(from), {calls.calls.begin(), calls.calls.end()}};
  if (from < position_) std::swap(own, other);
  end_now(Error(Status::kDiverged, fmt::format("{}: {}", where(calls.line), describe_divergence(own, other))), true);
  return Heard::kHandled;
}

Heard Mesh::on_end(int64_t from, const wire::MeshEnd& end) {
  assert_on_loop(environment_.loop);
  if (ended_) return Heard::kStale;
  if (end.left) {
    on_released(from);
  } else {
    end_now(end.error, false);
  }
  return Heard::kHandled;
}

void Mesh::on_lost(int64_t from, const Error& error) {
  assert_on_loop(environment_.loop);
  Error lost(error.status(), fmt::format("{}: {} is lost: {}", where(""), describe_member(from), error.message()));
  end_now(lost.set_origin_rank(shape_.ranks()[static_cast<size_t>(from)]), true);
}

void Mesh::send(int64_t to, wire::Body body) {
  environment_.group.send(*members_[static_cast<size_t>(to)], std::move(body), nullptr);
}

void Mesh::send_part(int64_t to, wire::Part part) {
  size_t& on_their_way = parts_on_their_way_[to];
  environment_.group.send(*members_[static_cast<size_t>(to)], std::move(part), [weak = weak_from_this(), to] {
    const auto mesh = weak.lock();
    if (mesh == nullptr) return;
    --mesh->parts_on_their_way_[to];
    mesh->tell_left_if_due();
  });
  ++on_their_way;
}

// ---- the end ----

// Ends every wait, here and elsewhere, whatever fails on the way.
void Mesh::end_now(Error error, bool tell) {
  assert_on_loop(environment_.loop);
  if (ended_) return;
  if (error.origin_rank() < 0) error.set_origin_rank(shape_.ranks()[static_cast<size_t>(position_)]);
  ended_ = std::move(error);
  stats_.open = 0;
  stats_.bytes_held = 0;
  for (auto& [name, state] : lines_) {
    for (auto& [number, call] : state.open) give_up(*call, *ended_);
  }
  EachStep each;
  each([this] { fail_or_say_less(*when_ended_, *ended_); });
  for (auto& [name, state] : lines_) {
    if (state.ended != nullptr) each([&state = state, this] { fail_or_say_less(*state.ended, *ended_); });
    for (auto& [number, call] : state.open) each([&call = call, this] { fail_or_say_less(*call->future, *ended_); });
    state.open.clear();
    state.early.clear();
    early_bytes_ = 0;
    if (state.waiting) {
      each([&waiting = *state.waiting, this] { fail_or_say_less(*waiting.future, *ended_); });
      state.waiting.reset();
    }
  }
  if (tell) tell_end();
  each.check();
}

void Mesh::end_alone(Error error, const std::string& line) {
  assert_on_loop(environment_.loop);
  EachStep each;  // without memory the place is left out
  each([&] { error.add_context(where(line)); });
  end_now(std::move(error), true);
}

void Mesh::tell_end() {
  constexpr Nanos kAgain = 50 * kMillisecond;
  try {
    for (; next_to_tell_ < shape_.count(); ++next_to_tell_) {
      if (next_to_tell_ == position_) continue;
      Error error = *ended_;
      if (has_left_) {
        error = Error(Status::kDisconnected, fmt::format("{}: {} has left it", where(""), describe_member(position_)));
      }
      send(next_to_tell_, wire::MeshEnd{id_, std::move(error), has_left_});
    }
  } catch (const std::bad_alloc&) {
    environment_.loop.start_timer(tell_again_, environment_.loop.now() + kAgain,
                                  [self = shared_from_this()] { self->gate_->run([self] { self->tell_end(); }); });
  }
}

// A part that is larger than a message goes in pieces, which what is smaller would overtake.
void Mesh::tell_left_if_due() {
  if (!is_leaving_ || ended_ || !is_idle()) return;
  for (const auto& [to, parts] : parts_on_their_way_) {
    if (parts != 0 && !left_.contains(to)) return;
  }
  has_left_ = true;
  Error error(Status::kInvalidState, "mesh released");
  try {
    error = Error(Status::kInvalidState, fmt::format("{}: this worker has released it", where("")));
  } catch (const std::bad_alloc&) {
    // The short text stays.
  }
  end_now(std::move(error), true);
}

void Mesh::stop() {
  assert_on_loop(environment_.loop);
  std::string text;
  EachStep each;  // without memory the mesh is not named
  each([&] { text = fmt::format("{}: the worker was shut down", where("")); });
  end_now(Error(Status::kCancelled, text.empty() ? "shut down" : std::move(text)), false);
}

std::shared_ptr<Future<MeshSnapshot>> Mesh::fetch_snapshot() {
  return queue<MeshSnapshot>([self = shared_from_this()](const std::shared_ptr<Future<MeshSnapshot>>& future) {
    future->complete(self->snapshot());
  });
}

}  // namespace distag
