#include "dautograd/dautograd.h"

#include <algorithm>

#include "base/each_step.h"
#include "base/not_started.h"
#include "coll/mesh.h"
#include "dautograd/context_handle.h"
#include "dautograd/context_table.h"
#include "dautograd/joint_id.h"
#include "dautograd/passes.h"
#include "dautograd/recorder.h"
#include "dautograd/take_snapshot.h"

namespace distag {

struct Dautograd::State {
  State(Environment environment, Group& group, Rpc& rpc)
      : shared(std::make_shared<DautogradShared>(environment, group, rpc)),
        contexts(*shared),
        recorder(*shared, contexts),
        passes(*shared, contexts) {
    shared->contexts = &contexts;
    shared->passes = &passes;
  }

  const std::shared_ptr<DautogradShared> shared;
  ContextTable contexts;
  Recorder recorder;
  Passes passes;
};

Dautograd::Dautograd(Environment environment, Group& group, Rpc& rpc)
    : state_(std::make_unique<State>(environment, group, rpc)) {}

Dautograd::~Dautograd() {
  state_->shared->gate.close();
  state_->shared->contexts = nullptr;
  state_->shared->passes = nullptr;
}

void Dautograd::begin(Session& session) {
  assert_on_loop(state_->shared->environment.loop);
  state_->shared->session = &session;
  state_->shared->self = session.self();
  state_->shared->is_started = true;
}

namespace {

void check_started(const DautogradShared& shared) {
  if (shared.is_started) return;
  fail(Status::kInvalidState, "contexts are made between the start of a worker and its end: {}", kNotStarted);
}

}  // namespace

std::shared_ptr<Context> Dautograd::create_context() {
  DautogradShared& shared = *state_->shared;
  check_started(shared);
  const Id id{shared.self.incarnation, ++shared.last_context};
  auto record = std::make_shared<ContextRecord>(id, number_for_people(id, shared.self.rank));
  // Made first: nothing else would end the context.
  auto handle = std::make_shared<ContextHandle>(state_->shared, record, true);
  state_->contexts.add_own(std::move(record));
  return handle;
}

Dautograd::JointPlace Dautograd::join_context(const Mesh& mesh, uint64_t number) {
  check_started(*state_->shared);
  if (mesh.id().counter >= kMostMeshes || number >= kMostJointContexts) {
    fail(Status::kOverloaded, "mesh \"{}\" has no number left for a joint context: make a new mesh",
         mesh.shape().name());
  }
  const Id id = joint_context_id(mesh.id(), number);
  const std::vector<int32_t>& ranks = mesh.shape().ranks();
  auto record = state_->contexts.add_joint(id, *std::min_element(ranks.begin(), ranks.end()));
  for (const int32_t rank : ranks) record->add_known(rank);
  state_->shared->gate.run([shared = state_->shared, id, members = mesh.other_members()] {
    if (shared->contexts != nullptr) shared->contexts->begin_joint(id, members);
  });
  return {state_->shared, std::move(record)};
}

std::shared_ptr<Context> Dautograd::find_context(const Id& id) {
  if (!id) return nullptr;
  return std::make_shared<ContextHandle>(state_->shared, state_->contexts.find_record(id), false);
}

bool Dautograd::is_mine(const Context& context) const {
  const auto* handle = dynamic_cast<const ContextHandle*>(&context);
  return handle != nullptr && handle->is_of(*state_->shared);
}

// ---- calls ----

void Dautograd::on_call_begun(const Id& id) {
  assert_on_loop(state_->shared->environment.loop);
  const auto context = state_->contexts.find(id);
  if (context == nullptr) throw state_->contexts.missing(id);
  ++context->open_calls;
}

void Dautograd::on_call_ended(const Id& id) {
  assert_on_loop(state_->shared->environment.loop);
  const auto context = state_->contexts.find(id);
  if (context == nullptr) return;
  --context->open_calls;
  state_->contexts.release_if_over(context);
}

wire::AutogradMetadata Dautograd::on_send(const Id& context, const Peer& to, const std::vector<const Value*>& values,
                                          const std::string& call, bool is_answer) {
  assert_on_loop(state_->shared->environment.loop);
  return state_->recorder.on_send(context, to, values, call, is_answer);
}

void Dautograd::on_receive(const wire::AutogradMetadata& metadata, const Peer& from,
                           const std::vector<const Value*>& values, const std::string& call, bool is_answer) {
  assert_on_loop(state_->shared->environment.loop);
  state_->recorder.on_receive(metadata, from, values, call, is_answer);
}

void Dautograd::on_thrown_away(const wire::AutogradMetadata& metadata, const Peer& from) {
  assert_on_loop(state_->shared->environment.loop);
  state_->recorder.on_thrown_away(metadata, from);
}

// ---- messages and losses ----

Heard Dautograd::handle(const Peer& from, wire::Message& message) {
  assert_on_loop(state_->shared->environment.loop);
  const auto* release = std::get_if<wire::Release>(&message.body);
  return release == nullptr ? state_->passes.handle(from, message) : state_->contexts.on_release(from, *release);
}

void Dautograd::refuse(const Peer& from, const wire::Message& outline, const Error& why) {
  assert_on_loop(state_->shared->environment.loop);
  state_->passes.refuse(from, outline, why);
}

void Dautograd::on_lost(const Peer& peer, const Error& error) {
  assert_on_loop(state_->shared->environment.loop);
  if (!state_->shared->is_started) return;
  state_->passes.on_gone(peer.incarnation, error);
  state_->contexts.on_gone(peer.incarnation, error);
}

void Dautograd::on_left(const Peer& peer) {
  assert_on_loop(state_->shared->environment.loop);
  on_lost(peer, Error(Status::kDisconnected,
                      fmt::format("worker \"{}\" (rank {}) has left the group", peer.name, peer.rank)));
}

void Dautograd::on_long_lack(const Peer& peer, const Error& lack) {
  assert_on_loop(state_->shared->environment.loop);
  if (state_->shared->is_started) state_->passes.on_long_lack(peer.incarnation, lack);
}

void Dautograd::on_restarted(const Peer& peer, const Error& error) {
  assert_on_loop(state_->shared->environment.loop);
  state_->contexts.on_restarted(peer.incarnation, error);
}

bool Dautograd::is_idle() const {
  assert_on_loop(state_->shared->environment.loop);
  return state_->shared->counters.passes_open == 0;
}

void Dautograd::stop() {
  assert_on_loop(state_->shared->environment.loop);
  state_->shared->is_started = false;
  EachStep each;
  each([this] { state_->contexts.drop_all(Error(Status::kInvalidState, "the worker was shut down")); });
  state_->shared->session = nullptr;  // whatever has failed: it is destroyed next
  each.check();
}

DautogradStats Dautograd::stats() const {
  const auto& counters = state_->shared->counters;
  return {counters.contexts,    counters.passes_run,     counters.passes_failed,
          counters.passes_open, counters.passes_planned, counters.passes_searched};
}

std::vector<PassSnapshot> Dautograd::open_passes(size_t most) const {
  assert_on_loop(state_->shared->environment.loop);
  std::vector<PassSnapshot> result;
  for (const auto& [id, context] : state_->shared->open_passes.all()) {
    const auto pass = context->passes.find(id);
    if (result.size() == most) break;
    if (pass != context->passes.end() && pass->second.part != nullptr)
      result.push_back(take_snapshot(id, pass->second));
  }
  return result;
}

std::vector<ContextSnapshot> Dautograd::contexts() const {
  assert_on_loop(state_->shared->environment.loop);
  std::vector<ContextSnapshot> result;
  for (const auto& context : state_->contexts.all()) result.push_back(take_snapshot(*state_->shared, *context));
  std::sort(result.begin(), result.end(),
            [](const ContextSnapshot& a, const ContextSnapshot& b) { return a.record->number() < b.record->number(); });
  return result;
}

ContextSnapshot Dautograd::context(const Id& id) const {
  assert_on_loop(state_->shared->environment.loop);
  const auto context = state_->contexts.find(id);
  if (context == nullptr) throw state_->contexts.missing(id);
  ContextSnapshot snapshot = take_snapshot(*state_->shared, *context);
  add_sends(snapshot, *state_->shared, *context);
  return snapshot;
}

}  // namespace distag
