#include "worker/reports.h"

#include <algorithm>
#include <utility>

#include "base/host_executor.h"
#include "group/shared.h"
#include "worker/report_words.h"

namespace distag {

namespace {

// Limits of a report.
constexpr size_t kMostEnded = 100;
constexpr size_t kMostCollectives = 256;

// Limits of a look, which must take a loop less than a millisecond, however much is open.
constexpr size_t kMostCallsSeen = 128;
constexpr size_t kMostWaits = 32;

// If the call cannot be sent, its failure is the answer.
void ask_member(Rpc& rpc, const Peer& peer, Nanos timeout, const std::shared_ptr<GroupReport>& report, size_t place,
                const std::shared_ptr<Future<std::string>>& done) {
  CallRequest request;
  request.to = peer.name;
  request.to_incarnation = peer.incarnation;
  request.function = kLook;
  request.timeout = timeout;
  request.is_control = true;
  const std::shared_ptr<Future<Value>> answer = rpc.call(std::move(request));
  report->begin_one();
  try {
    answer->on_done([report, place, done, outcome = answer.get()] {
      try {
        const bool is_text = outcome->error() == nullptr && outcome->value().kind() == ValueKind::kText;
        report->take(place, outcome->error(), is_text ? outcome->value().as_text() : "");
        report->end_one(*done);
      } catch (...) {
        done->fail(current_error());  // no memory
      }
    });
  } catch (...) {
    report->take_back_one();
    throw;
  }
}

}  // namespace

Reports::Reports(const WorkerEnvironment& environment, const WorkerOptions& options, Layers& layers,
                 const GroupLinks& links, const WorkerView& view, const EventLog& events, const WorkerPhase& phase)
    : environment_(environment),
      options_(options),
      layers_(layers),
      links_(links),
      view_(view),
      events_(events),
      phase_(phase),
      flight_log_(std::make_shared<FlightLog>(FlightLog::Environment{environment.loop, environment.log,
                                                                     layers.group.shared()->trace.recorder(),
                                                                     [this] { return under_way(); }})) {
  // Any thread may notice a break, also while this worker ends: so the trace does not keep the log alive.
  layers.group.shared()->trace.set_on_break([weak = std::weak_ptr(flight_log_)] {
    if (const auto alive = weak.lock()) alive->tell_soon();
  });
  layers.rpc.register_internal(kLook, [this](Invocation& call) { call.set_result(Value::text(write_look(look()))); });
}

// A bounded part of the work under way, for a log.
UnderWay Reports::under_way() const {
  constexpr size_t kMostCalls = 256;
  constexpr size_t kMostOthers = 16;
  return {layers_.rpc.open_calls(kMostCalls), layers_.dautograd.open_passes(kMostOthers),
          layers_.meshes.waiting(kMostOthers)};
}

WorkerSnapshot Reports::begin_snapshot() const {
  WorkerSnapshot snapshot;
  const WorkerView::Facts seen = view_.get();
  snapshot.name = seen.name;
  snapshot.rank = seen.rank;
  snapshot.now = environment_.loop.now();
  snapshot.last = layers_.group.shared()->trace.recorder().last(kMostEnded);
  for (MemberRecord& member : layers_.group.membership().all()) {
    snapshot.members.push_back({std::move(member), false, "", ""});
  }
  return snapshot;
}

WorkerSnapshot Reports::snapshot_at_rest() const {
  WorkerSnapshot snapshot = begin_snapshot();
  snapshot.state = snapshot.rank < 0 ? "not started" : "shut down";
  return snapshot;
}

WorkerSnapshot Reports::snapshot() const {
  assert_on_loop(environment_.loop);
  WorkerSnapshot snapshot = begin_snapshot();
  snapshot.state = phase_ == WorkerPhase::kStarted ? "started" : phase_text(phase_);
  if (links_.session) {
    snapshot.incarnation = links_.session->self().incarnation;
    for (WorkerSnapshot::Member& member : snapshot.members) {
      member.is_connected = links_.session->is_connected(member.record.peer.incarnation);
      const Error* gone = links_.session->gone(member.record.peer.incarnation);
      if (gone != nullptr) member.gone = gone->message();
    }
  }
  if (links_.transport) {
    snapshot.lane = links_.transport->lane_report();
    snapshot.sockets = links_.transport->socket_report();
  }
  for (WorkerSnapshot::Member& member : snapshot.members) {
    const auto way = snapshot.lane.ways.find(member.record.peer.endpoint);
    if (way != snapshot.lane.ways.end()) member.lane = way->second;
  }
  snapshot.calls = layers_.rpc.open_calls();
  snapshot.collectives = layers_.meshes.waiting(kMostCollectives);
  snapshot.contexts = layers_.dautograd.contexts();
  snapshot.rrefs = layers_.rrefs.owned_values();
  snapshot.events.assign(events_.events().begin(), events_.events().end());
  return snapshot;
}

WorkerLook Reports::look() const {
  assert_on_loop(environment_.loop);
  const WorkerView::Facts seen = view_.get();
  WorkerLook look;
  look.name = links_.session ? links_.session->self().name : seen.name;
  look.rank = links_.session ? links_.session->self().rank : seen.rank;
  look.incarnation = links_.session ? links_.session->self().incarnation : 0;
  look.world_size = links_.wanted_size;
  look.job = options_.job;
  look.state = phase_ == WorkerPhase::kStarted ? "started" : phase_text(phase_);
  look.host = environment_.host;
  look.age = links_.opened == 0 ? 0 : environment_.loop.now() - links_.opened;
  look.is_pumped = environment_.pump != nullptr;
  look.is_in_task = look.is_pumped && environment_.pump->is_running();
  look.tasks_waiting = environment_.functions.waiting();
  if (phase_ == WorkerPhase::kStarted || phase_ == WorkerPhase::kStopping) {
    look.passes = layers_.dautograd.open_passes(kMostWaits);
    look.collectives = layers_.meshes.waiting(kMostWaits);
    look.gatherings = layers_.group.missing_at_gatherings(kMostWaits);
  }
  // Read after the waits: so each function that waits is among the calls.
  look.calls = layers_.rpc.open_calls(kMostCallsSeen);
  // The looks themselves are left out.
  const size_t looks = std::erase_if(look.calls, [](const OpenCall& call) { return call.function == kLook; });
  look.calls_open = layers_.rpc.stats().calls_open;
  look.calls_open -= std::min<uint64_t>(looks, look.calls_open);
  return look;
}

void Reports::ask_group(Nanos timeout, const std::shared_ptr<Future<std::string>>& done) const {
  assert_on_loop(environment_.loop);
  std::vector<MemberRecord> records = layers_.group.membership().all();
  if (phase_ != WorkerPhase::kStarted) records.clear();
  std::vector<GroupReport::Member> members;
  for (const MemberRecord& record : records) {
    const Peer& peer = record.peer;
    members.push_back({peer.name, peer.rank, peer.incarnation, state_word(record.state), "", ""});
  }
  const auto report = std::make_shared<GroupReport>(environment_.loop, view_.get().name, std::move(members));
  for (size_t i = 0; i < records.size(); ++i) {
    const Peer& peer = records[i].peer;
    if (peer.incarnation == links_.session->self().incarnation) {
      report->set_report(i, write_look(look()));
    } else if (records[i].state != Standing::kMember) {
      const Error* const gone = links_.session->gone(peer.incarnation);
      report->set_silent(i, gone == nullptr ? "it is gone" : gone->message());
    } else if (timeout == 0) {
      report->set_silent(i, "it was not waited for");
    } else {
      try {
        ask_member(layers_.rpc, peer, timeout, report, i, done);
      } catch (...) {
        report->set_silent(i, current_error().message());
      }
    }
  }
  report->end_one(*done);
}

}  // namespace distag
