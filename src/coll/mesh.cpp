#include "coll/mesh.h"

#include <utility>

#include "base/each_step.h"
#include "base/fail_future.h"
#include "wire/codec.h"

namespace distag {

Mesh::Parts::Parts(const MeshPlace& place, MeshEnd::Holder& holder)
    : end(place, lines, stats, holder),
      matching(place, lines, end),
      waiting(place, lines, end, matching),
      calls(place, lines, stats, end, matching, waiting) {}

Mesh::Mesh(MeshPlace place) : place_(std::move(place)), parts_(place_, *this) {}

// ---- calls ----

namespace {

// Runs `begin` on the loop; what it throws fails the future.
template <typename Result, typename Begin>
std::shared_ptr<Future<Result>> queue(LoopGate& gate, Begin begin) {
  auto future = Future<Result>::make();
  const bool is_queued = gate.run([owed = Owed(future), future, begin = std::move(begin)]() mutable {
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

}  // namespace

std::shared_ptr<Future<Tensor>> Mesh::collective(CollectiveCall call) {
  if (call.tensor) call.tensor = wire::prepare(Value(call.tensor)).as_tensor();
  for (Tensor& piece : call.pieces) piece = wire::prepare(Value(piece)).as_tensor();
  return queue<Tensor>(*place_.gate, [self = shared_from_this(), call = std::move(call)](const auto& future) {
    self->parts_.calls.begin(self, call, future);
  });
}

std::shared_ptr<Future<Tensor>> Mesh::redistribute(RedistributeCall call) {
  call.shard = wire::prepare(Value(call.shard)).as_tensor();
  return queue<Tensor>(*place_.gate, [self = shared_from_this(), call = std::move(call)](const auto& future) {
    self->parts_.calls.begin(self, call, future);
  });
}

// Counts at once: the caller does not wait for the loop, and may look at the counters right after this.
std::shared_ptr<Future<Unit>> Mesh::note(std::string line, std::string text, uint64_t fingerprint) {
  ++parts_.stats.calls;
  return queue<Unit>(*place_.gate, [self = shared_from_this(), line = std::move(line), text = std::move(text),
                                    fingerprint](const std::shared_ptr<Future<Unit>>& future) {
    self->parts_.calls.note(line, text, fingerprint);
    future->complete(Unit());
  });
}

std::shared_ptr<Future<MeshSnapshot>> Mesh::fetch_snapshot() {
  return queue<MeshSnapshot>(*place_.gate,
                             [self = shared_from_this()](const std::shared_ptr<Future<MeshSnapshot>>& future) {
                               future->complete(self->parts_.calls.snapshot());
                             });
}

// ---- lines ----

void Mesh::open_line(const std::string& line) {
  place_.gate->run([self = shared_from_this(), line] {
    if (!self->parts_.end.ended()) self->parts_.lines.of(line).is_open = true;
  });
}

void Mesh::open_own_line(const std::string& line, std::shared_ptr<Future<Unit>> ended, std::string made_on) {
  assert_on_loop(loop());
  if (parts_.end.ended()) {
    ended->fail(*parts_.end.ended());
    return;
  }
  LineState& state = parts_.lines.of(line);
  state.is_open = true;
  state.ended = std::move(ended);
  state.made_on = std::move(made_on);
}

void Mesh::set_doing(const std::string& line, std::string text) {
  assert_on_loop(loop());
  LineState* state = parts_.lines.find(line);
  if (state == nullptr || state->doing == text) return;
  state->doing = std::move(text);
  state->last_begun = loop().now();
}

// ---- the end ----

// The first error counts.
void Mesh::end(const Error& error) noexcept {
  if (is_asked_to_end_.exchange(true)) return;
  EachStep each;
  each([&] { end_error_ = error; });
  if (!end_error_) end_error_ = Error(Status::kOutOfMemory, "out of memory");
  each([this] {
    place_.gate->run(end_, [self = shared_from_this()] { self->parts_.end.end_now(*self->end_error_, true); });
  });
}

void Mesh::leave() noexcept {
  if (is_asked_to_leave_.exchange(true)) return;
  // Posted behind the calls made before, whichever thread releases the mesh.
  place_.gate->post(leave_, [self = shared_from_this()] { self->parts_.end.begin_leaving(); });
}

}  // namespace distag
