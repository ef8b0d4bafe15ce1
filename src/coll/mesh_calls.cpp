#include "coll/mesh_calls.h"

#include <utility>

#include "coll/algorithms.h"
#include "coll/mesh.h"
#include "layout/spec_text.h"
#include "tensor/utf8.h"
#include "wire/format.h"

namespace distag {
namespace {

constexpr size_t kMostMoves = 1000;  // in a report

// "gather: redistribute(...)": what the host called, then the step of it.
std::string step_text(const std::string& within, std::string step) {
  const bool is_that_call = within.empty() || step == within || step.starts_with(within + "(");
  return is_that_call ? std::move(step) : within + ": " + step;
}

}  // namespace

// A call that finds no memory for its number is missing in the line, which the others cannot know.
template <typename Begin>
void MeshCalls::attempt(const std::string& line, Begin begin) {
  try {
    begin();
  } catch (const std::bad_alloc&) {
    end_.end_alone(current_error(), line);
    throw;
  }
}

void MeshCalls::begin(const std::shared_ptr<Mesh>& mesh, const CollectiveCall& call, const Result& future) {
  assert_on_loop(place_.environment.loop);
  attempt(call.line, [&] { begin_collective(mesh, call, future); });
}

void MeshCalls::begin(const std::shared_ptr<Mesh>& mesh, const RedistributeCall& call, const Result& future) {
  assert_on_loop(place_.environment.loop);
  attempt(call.line, [&] { begin_redistribute(mesh, call, future); });
}

void MeshCalls::note(const std::string& line, const std::string& text, uint64_t fingerprint) {
  assert_on_loop(place_.environment.loop);
  check(line);
  attempt(line, [&] {
    LineState& state = lines_.of(line);
    state.last_begun = place_.environment.loop.now();
    matching_.compare_early(line, state, state.line.begin_call(text, fingerprint));
  });
}

void MeshCalls::check(const std::string& line) const {
  if (end_.ended()) throw *end_.ended();
  if (lines_.is_closed(line)) {
    fail(Status::kCancelled, "{}: the line was closed at the end of its pass", place_.where(line));
  }
  if (end_.is_leaving()) fail(Status::kInvalidState, "{}: this worker has released it", place_.where(""));
  if (line.size() <= wire::kMaxNameBytes && is_valid_utf8(line) && line.find('\0') == std::string::npos) return;
  fail(Status::kInvalidArgument, "the name of a line has {} bytes: give at most {}, of UTF-8 without a zero byte",
       line.size(), wire::kMaxNameBytes);
}

MeshCalls::OpenPointer MeshCalls::add(const std::shared_ptr<Mesh>& mesh, const std::string& line, std::string text,
                                      uint64_t fingerprint, Nanos timeout, Nanos time_left, const Result& future) {
  LineState& state = lines_.of(line);
  if (!state.is_own()) ++stats_.calls;
  auto call = std::make_shared<OpenCollective>();
  call->mesh = mesh;
  call->line = line;
  call->text = text;
  call->number = state.line.begin_call(std::move(text), fingerprint);
  call->hash = state.line.hash();
  call->begun = place_.environment.loop.now();
  state.last_begun = call->begun;
  call->timeout = timeout == 0 ? place_.timeout : timeout;
  call->future = future;
  call->deadline = deadline_after(call->begun, time_left == 0 ? call->timeout : time_left);
  state.open.emplace(call->number, call);
  state.doing.clear();
  if (!state.is_own()) ++stats_.open;
  waiting_.start_timer(call);
  matching_.compare_early(line, state, call->number);
  return call;
}

void MeshCalls::begin_collective(const std::shared_ptr<Mesh>& mesh, const CollectiveCall& call, const Result& future) {
  check(call.line);
  try {
    check_collective(place_.shape, call);
  } catch (const Error& error) {
    number_failed(call.line, step_text(call.within, describe(place_.shape, call)), error);
    throw;
  }
  if (LineState& state = lines_.of(call.line); state.open.size() >= Mesh::kMostOpen) {
    if (call.waits_for_room && !state.waiting) {
      state.waiting.emplace(LineState::Waiting{call, future});
      return;
    }
    const Error error = overloaded(call.line);
    number_failed(call.line, step_text(call.within, describe(place_.shape, call)), error);
    throw error;
  }
  OpenPointer open;
  try {
    open = add(mesh, call.line, step_text(call.within, describe(place_.shape, call)), fingerprint_of(call),
               call.timeout, call.time_left, future);
    open->is_counted = !call.is_word_of_pass;
    run_collective(*open, call, stats_);
  } catch (...) {
    on_begin_failed(open, call.line);
  }
}

void MeshCalls::begin_redistribute(const std::shared_ptr<Mesh>& mesh, const RedistributeCall& call,
                                   const Result& future) {
  check(call.line);
  const std::string text = step_text(
      call.within, fmt::format("redistribute({}{}, {}, {})", dtype_name(call.shard.dtype()), to_string(call.shape),
                               print_spec(place_.shape, call.from), print_spec(place_.shape, call.to)));
  std::optional<layout::Move> move;
  try {
    move.emplace(place_.shape, call.shape, call.from, call.to);
  } catch (const Error& error) {
    number_failed(call.line, text, error);
    throw;
  }
  if (call.is_bounded && lines_.of(call.line).open.size() >= Mesh::kMostOpen) {
    const Error error = overloaded(call.line);
    number_failed(call.line, text, error);
    throw error;
  }
  OpenPointer open;
  try {
    open = add(mesh, call.line, text, Fingerprint().add(text).value(), call.timeout, call.time_left, future);
    if (call.shard.shape() != local_shape(place_.shape, call.from, call.shape, place_.position)) {
      fail(Status::kInvalidArgument, "{}: the shard {} is not the box of its spec", text, describe(call.shard));
    }
    run_move(*open, *move, call.shape, call.shard, stats_);
  } catch (...) {
    on_begin_failed(open, call.line);
  }
}

Error MeshCalls::overloaded(const std::string& line) const {
  return Error(Status::kOverloaded, fmt::format("{}: {} calls are under way: wait for one of them before the next",
                                                place_.where(line), Mesh::kMostOpen));
}

// A call that fails on its arguments is a call of the line all the same, alike on all members.
void MeshCalls::number_failed(const std::string& line, std::string text, const Error& error) {
  ++stats_.calls;
  LineState& state = lines_.of(line);
  state.last_begun = place_.environment.loop.now();
  matching_.compare_early(line, state,
                          state.line.begin_call(std::move(text), Fingerprint().add(error.message()).value()));
}

// The others wait for a call that this member has numbered, or cannot number: without it the mesh ends.
void MeshCalls::on_begin_failed(const OpenPointer& open, const std::string& line) {
  if (open != nullptr) return open->fail_alone(current_error());
  end_.end_alone(current_error(), line);
  throw;
}

// Begins the call that waits for room, if there is room.
void MeshCalls::make_room(const std::shared_ptr<Mesh>& mesh, const std::string& line) {
  LineState& state = lines_.of(line);
  if (!state.waiting || state.open.size() >= Mesh::kMostOpen) return;
  const LineState::Waiting waiting = *std::move(state.waiting);
  state.waiting.reset();
  try {
    attempt(line, [&] { begin_collective(mesh, waiting.call, waiting.future); });
  } catch (...) {
    waiting.future->fail(current_error());
  }
}

void MeshCalls::finish(const OpenPointer& call) {
  assert_on_loop(place_.environment.loop);
  call->is_over = true;
  call->trace(Status::kOk);
  call->stop_timer();
  stats_.bytes_held -= std::exchange(call->bytes_held, 0);
  if (call->move) {
    if (moves_.size() == kMostMoves) moves_.pop_front();
    try {
      moves_.push_back(*std::move(call->move));
    } catch (const std::bad_alloc&) {
      // The report lacks this one.
    }
  }
  LineState& state = lines_.of(call->line);
  if (!state.is_own()) --stats_.open;
  state.open.erase(call->number);
  lines_.drop_early(state, call->number);
  make_room(call->mesh, call->line);
  end_.leave_if_due();
}

MeshSnapshot MeshCalls::snapshot() const {
  assert_on_loop(place_.environment.loop);
  MeshSnapshot snapshot;
  snapshot.ended = end_.ended();
  snapshot.moves = moves_;
  for (const auto& [name, state] : std::as_const(lines_).all()) {
    MeshSnapshot::Line line;
    line.name = name;
    line.last = state.line.last();
    if (!state.line.calls().empty()) line.text = state.line.calls().back().text;
    if (!state.doing.empty()) line.text = state.doing;
    line.known = state.known;
    for (const auto& [number, call] : state.open) {
      line.open.push_back({number, call->text, place_.environment.loop.now() - call->begun, call->missing()});
    }
    snapshot.lines.push_back(std::move(line));
  }
  return snapshot;
}

}  // namespace distag
