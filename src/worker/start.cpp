#include "worker/start.h"

#include <utility>

#include "base/each_step.h"
#include "transport/socket/address.h"

namespace distag {

Start::Start(const WorkerEnvironment& environment, const WorkerOptions& options, WorkerPhase& phase, Layers& layers,
             GroupLinks& links, WorkerView& view, EventLog& events, StartGate& gate, Members& members)
    : environment_(environment),
      options_(options),
      phase_(phase),
      layers_(layers),
      links_(links),
      view_(view),
      events_(events),
      gate_(gate),
      members_(members),
      finder_(std::make_shared<PlaceFinder>(environment.loop, environment.compute, environment.places)) {}

void Start::begin(Owed<Value> outcome, Nanos deadline, SessionEvents& arrivals) {
  assert_on_loop(environment_.loop);
  if (phase_ != WorkerPhase::kCreated) {
    outcome->fail(Error(Status::kInvalidState, fmt::format("start: the worker is {}", phase_text(phase_))));
    return;
  }
  phase_ = WorkerPhase::kStarting;
  outcome_ = outcome.take();
  deadline_ = deadline;
  try {
    finder_->find(options_, deadline, [this, &arrivals](const Places& found, const std::optional<Error>& error) {
      try {
        if (error) throw *error;
        open(found, arrivals);
      } catch (...) {
        abandon(current_error());
      }
    });
  } catch (...) {
    if (phase_ != WorkerPhase::kStarting) throw;  // by abandon() itself
    abandon(current_error());
  }
}

void Start::cancel(const Future<Value>* outcome) {
  assert_on_loop(environment_.loop);
  if (phase_ == WorkerPhase::kStarting && outcome_.get() == outcome) abandon(outcome_->cancelled());
}

// ---- the way to the group ----

// Each step needs those before it. The links keep all that is made, so abandon() finds it after a step has
// thrown.
void Start::open(const Places& found, SessionEvents& arrivals) {
  const RendezvousTarget& target = found.target;
  if (!target.launcher.empty()) {
    environment_.log.write(LogLevel::kInfo, fmt::format("started by {}: rank {} of {}, which meet at {}",
                                                        target.launcher, target.rank, target.world_size, target.uri));
  }
  links_.transport = environment_.make_transport(target.uri);
  // With a rendezvous on another machine, and no address to listen at, listens at the address that leads there.
  const std::string& bind = found.bind.empty() ? found.own_host : found.bind;
  const bool has_lanes = bind.rfind("tcp://", 0) != 0 && links_.transport->lane_report().is_on;
  if (target.world_size > 0 && !has_lanes) {
    links_.transport->check_descriptors(static_cast<size_t>(target.world_size));
  }
  const SessionConfig config = make_config(target);
  links_.opened = environment_.loop.now();
  links_.wanted_size = target.world_size;
  if (environment_.make_server) links_.local_server = environment_.make_server(config.self.incarnation);
  links_.session = std::make_unique<Session>(environment_.loop, *links_.transport, environment_.random,
                                             environment_.log, config, arrivals);
  links_.session->listen(bind.empty() ? links_.transport->private_address() : bind);
  check_advertised(found.advertise);
  join(found);
}

SessionConfig Start::make_config(const RendezvousTarget& target) {
  SessionConfig config;
  config.job = options_.job;
  config.lease = options_.lease;
  config.memory = environment_.memory;
  config.decoder = &environment_.decoder;
  config.on_lack = [this](const Peer& peer, const Error& lack, bool is_long) {
    if (gate_.is_open()) layers_.on_lack(peer, lack, is_long);  // the start has its own deadline
  };
  config.limits.max_message_bytes = options_.max_message_bytes;
  config.self.rank = target.rank;
  config.self.name = options_.name.empty() && target.rank >= 0 ? default_name(target.rank) : options_.name;
  // No worker has the incarnation 0.
  do {
    config.self.incarnation = environment_.random.next();
  } while (config.self.incarnation == 0);
  return config;
}

// Throws for an address that members cannot dial: they would take this worker for lost.
void Start::check_advertised(const std::string& address) const {
  if (address.empty()) return;
  try {
    links_.transport->check_endpoint(address);
  } catch (...) {
    throw current_error().add_context("advertise");
  }
}

void Start::join(const Places& found) {
  const RendezvousTarget& target = found.target;
  links_.rendezvous = environment_.make_rendezvous(target.uri, *links_.transport);
  JoinRequest request;
  request.job = options_.job;
  request.world_size = target.world_size;
  request.self = links_.session->self();
  request.self.endpoint =
      found.advertise.empty() ? dialable(links_.session->endpoint(), found.own_host) : found.advertise;
  request.deadline = deadline_;
  request.host = environment_.host.substr(0, environment_.host.find('/'));
  request.process = environment_.process;
  request.probe = [this](Incarnation member, Task on_alive) { members_.probe(member, std::move(on_alive)); };
  links_.rendezvous->join(request, [this](Rendezvous::Outcome outcome) { on_joined(std::move(outcome)); });
}

// ---- the group is known ----

void Start::on_joined(Rendezvous::Outcome outcome) {
  assert_on_loop(environment_.loop);
  if (phase_ != WorkerPhase::kStarting) return;
  if (!outcome.ok) return fail_soon(std::move(outcome.error));
  try {
    meet(std::move(outcome.members));
  } catch (...) {
    fail_soon(current_error());
  }
}

void Start::meet(std::vector<Peer> members) {
  roster_ = std::move(members);
  for (const Peer& member : roster_) {
    if (member.incarnation == links_.session->self().incarnation) {
      links_.session->set_self(member);
    } else {
      links_.session->add_peer(member);
    }
  }
  links_.session->hear_strangers_again();
  const bool is_running_group = links_.is_open_world() || links_.session->self().generation > 1;
  if (!is_running_group) return begin_service_soon();
  greeting_ = std::make_unique<Greeting>(environment_.loop, *links_.session,
                                         [this](std::optional<Error> error) { on_greeted(std::move(error)); });
  greeting_->begin(roster_, deadline_);
}

void Start::on_lost(const Peer& peer, const Error& error) {
  assert_on_loop(environment_.loop);
  if (greeting_ && error.status() == Status::kDenied) greeting_->on_denied(error);
  on_left(peer);
}

void Start::on_left(const Peer& peer) {
  assert_on_loop(environment_.loop);
  if (greeting_) greeting_->on_gone(peer.incarnation);
}

// A task of its own: both tasks do work for each of hundreds of members.
void Start::begin_service_soon() {
  environment_.loop.post_or_drop([this, begun = outcome_] {
    if (phase_ == WorkerPhase::kStarting && outcome_ == begun) on_greeted({});
  });
}

void Start::on_greeted(std::optional<Error> error) {
  assert_on_loop(environment_.loop);
  if (phase_ != WorkerPhase::kStarting) return;
  if (error) return fail_soon(*std::move(error));
  try {
    begin_service();
  } catch (...) {
    fail_soon(current_error());
  }
}

void Start::begin_service() {
  // From here on the start cannot be cancelled.
  if (!outcome_->claim()) throw outcome_->cancelled();
  WorkerView::Facts fresh;
  fresh.name = links_.session->self().name;
  fresh.rank = links_.session->self().rank;
  fresh.world_size = static_cast<int32_t>(roster_.size());
  fresh.is_open_world = links_.is_open_world();
  fresh.started = true;
  layers_.begin(*links_.session, roster_, links_.is_open_world());
  phase_ = WorkerPhase::kStarted;
  // The worker has started: failures from here on are failures of its loop.
  EachStep each;
  each([this, &fresh] { view_.set(fresh); });
  each([this] {
    for (const Peer& member : roster_) members_.tell_of(member);
  });
  each([this, &fresh] {
    events_.add(fmt::format("started as \"{}\" (rank {}) in a group of {}", fresh.name, fresh.rank, fresh.world_size));
  });
  // A graceful end waits until all sent calls have come: refused ones count too.
  each([this] { gate_.open([this](const Peer& from) { layers_.group.count_received(from); }); });
  each([this] { std::exchange(outcome_, nullptr)->complete(Value()); });
  if (!each.has_failed()) return;
  environment_.loop.post_or_drop(failure_place_, [each] { each.check(); });
}

// ---- a start that fails ----

// Posted, since the caller is destroyed by a failed start.
void Start::fail_soon(Error error) {
  environment_.loop.post_or_drop([this, begun = outcome_, error = std::move(error)] {
    if (phase_ == WorkerPhase::kStarting && outcome_ == begun) abandon(error);
  });
}

void Start::abandon(const Error& error) {
  assert_on_loop(environment_.loop);
  forget();
  phase_ = WorkerPhase::kCreated;
  const std::shared_ptr<Future<Value>> outcome = std::exchange(outcome_, nullptr);
  EachStep each;  // the caller is told even if memory is lacking
  each([this, &error] { events_.add("start failed: " + error.message()); });
  each([&outcome, &error] { outcome->fail(Error(error).add_context("start")); });
  if (!outcome->is_done()) outcome->fail(Error(Status::kOutOfMemory, "no memory"));  // needs no memory
  each.check();
}

void Start::drop() {
  assert_on_loop(environment_.loop);
  forget();
  drop_outcome();
}

void Start::drop_outcome() noexcept {
  assert_on_loop(environment_.loop);
  if (outcome_) fail_dropped(*std::exchange(outcome_, nullptr));
}

// The greeting refers to the session, so it is destroyed before the links.
void Start::forget() {
  finder_->stop();
  greeting_.reset();
  roster_.clear();
  gate_.close();
  links_.close();
}

}  // namespace distag
