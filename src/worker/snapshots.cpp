#include <utility>

#include "worker/worker_state.h"

namespace distag {

namespace {

// In a report.
constexpr size_t kMostEnded = 100;
constexpr size_t kMostCollectives = 256;

}  // namespace

const char* phase_text(WorkerPhase phase) {
  switch (phase) {
    case WorkerPhase::kCreated:
      return "not started";
    case WorkerPhase::kStarting:
      return "starting";
    case WorkerPhase::kStarted:
      return "started already";
    case WorkerPhase::kStopping:
      return "shutting down";
    case WorkerPhase::kStopped:
      return "shut down";
  }
  return "in an unknown state";
}

// A bounded part of it, for a log.
UnderWay Worker::State::under_way() const {
  constexpr size_t kMostCalls = 256;
  constexpr size_t kMostOthers = 16;
  return {layers.rpc.open_calls(kMostCalls), layers.dautograd.open_passes(kMostOthers),
          layers.meshes.waiting(kMostOthers)};
}

WorkerSnapshot Worker::State::snapshot() const {
  WorkerSnapshot snapshot;
  const WorkerView::Facts seen = view.get();
  snapshot.name = seen.name;
  snapshot.rank = seen.rank;
  snapshot.now = environment.loop.now();
  snapshot.last = layers.group.shared()->trace.recorder().last(kMostEnded);
  for (MemberRecord& member : layers.group.membership().all())
    snapshot.members.push_back({std::move(member), false, "", ""});
  return snapshot;
}

WorkerSnapshot Worker::snapshot_at_rest() const {
  WorkerSnapshot snapshot = state_->snapshot();
  snapshot.state = snapshot.rank < 0 ? "not started" : "shut down";
  return snapshot;
}

std::shared_ptr<Future<WorkerSnapshot>> Worker::fetch_snapshot() {
  auto future = Future<WorkerSnapshot>::make();
  state_->environment.loop.post_or_drop([state = state_, owed = Owed(future)] {
    WorkerSnapshot snapshot = state->snapshot();
    snapshot.state = state->phase == WorkerPhase::kStarted ? "started" : phase_text(state->phase);
    if (state->links.session) {
      snapshot.incarnation = state->links.session->self().incarnation;
      for (WorkerSnapshot::Member& member : snapshot.members) {
        member.is_connected = state->links.session->is_connected(member.record.peer.incarnation);
        const Error* gone = state->links.session->gone(member.record.peer.incarnation);
        if (gone != nullptr) member.gone = gone->message();
      }
    }
    if (state->links.transport) {
      snapshot.lane = state->links.transport->lane_report();
      snapshot.sockets = state->links.transport->socket_report();
    }
    for (WorkerSnapshot::Member& member : snapshot.members) {
      const auto way = snapshot.lane.ways.find(member.record.peer.endpoint);
      if (way != snapshot.lane.ways.end()) member.lane = way->second;
    }
    snapshot.calls = state->layers.rpc.open_calls();
    snapshot.collectives = state->layers.meshes.waiting(kMostCollectives);
    snapshot.contexts = state->layers.dautograd.contexts();
    snapshot.rrefs = state->layers.rrefs.owned_values();
    snapshot.events.assign(state->event_log.events().begin(), state->event_log.events().end());
    owed->complete(std::move(snapshot));
  });
  return future;
}

std::shared_ptr<Future<ContextSnapshot>> Worker::fetch_snapshot(const Id& context) {
  auto future = Future<ContextSnapshot>::make();
  state_->environment.loop.post_or_drop([state = state_, owed = Owed(future), context] {
    try {
      owed->complete(state->layers.dautograd.context(context));
    } catch (...) {
      owed->fail(current_error());
    }
  });
  return future;
}

}  // namespace distag
