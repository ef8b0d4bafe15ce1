// The first half of a start: addresses as numbers, sockets, and the way to the rendezvous.

#include <utility>

#include "base/each_step.h"
#include "group/etcd_settings.h"
#include "transport/socket/address.h"
#include "worker/worker_state.h"

namespace distag {

void Worker::State::begin_start(Nanos deadline, SessionEvents& events, const std::shared_ptr<State>& self) {
  Places wanted;
  wanted.target = resolve_rendezvous(options.rendezvous, options.rank, options.world_size, environment.get_environment);
  wanted.bind = options.bind;
  wanted.advertise = options.advertise;
  start_deadline = deadline;
  if (wanted.target.world_size == 0 && !environment.ask_pmix) {
    fail(Status::kUnsupported, "rendezvous: PMIx, which tells the size of the world, is not spoken here");
  }
  if (environment.resolve_address) {
    resolve(std::move(wanted), events, self);
  } else {
    open(wanted, events);
  }
}

// Off the loop, as a name server may be mute; the start ends by its deadline all the same.
void Worker::State::resolve(Places wanted, SessionEvents& events, const std::shared_ptr<State>& self) {
  if (start_deadline != kNever) {
    resolve_timer = environment.loop.start_timer(start_deadline, [this] {
      resolve_timer = 0;
      fail_start_soon(Error(Status::kDeadline, "the name server has not answered in time; give addresses as numbers"));
    });
  }
  environment.compute.post_or_drop([self, begun = start_future, &events, wanted = std::move(wanted)]() mutable {
    std::optional<Error> error;
    try {
      const std::string towards = self->ask_launcher(wanted.target);
      self->resolve_one("rendezvous", wanted.target.uri);
      self->resolve_one("bind", wanted.bind);
      self->resolve_one("advertise", wanted.advertise);
      if (self->environment.own_address_towards) {
        wanted.own_host = self->own_address_towards(towards.empty() ? wanted.target.uri : towards);
      }
    } catch (...) {
      error = current_error();
    }
    Loop& loop = self->environment.loop;
    loop.post_or_drop([self, begun, &events, wanted = std::move(wanted), error = std::move(error)] {
      if (self->phase == WorkerPhase::kStarting && self->start_future == begun)
        self->on_resolved(wanted, events, error);
    });
  });
}

// Any thread. Gives the address of another machine of the job, where there is one that the target does not name.
std::string Worker::State::ask_launcher(RendezvousTarget& target) const {
  const bool meets_by_pmix = target.uri.starts_with("pmix://");
  if (target.world_size != 0 && !meets_by_pmix) return {};
  const PmixPlace told = environment.ask_pmix();
  if (target.world_size == 0) target.world_size = told.place.world_size;
  if (!meets_by_pmix || told.other_node.empty()) return {};
  return environment.resolve_address("tcp://" + told.other_node + ":1");  // of the port nothing depends
}

// Any thread. `option` is the one that gave the address.
void Worker::State::resolve_one(const char* option, std::string& address) const {
  try {
    address = environment.resolve_address(address);
  } catch (...) {
    throw current_error().add_context(option);
  }
}

// Any thread.
std::string Worker::State::own_address_towards(const std::string& uri) const {
  if (!uri.starts_with("etcd://")) return environment.own_address_towards(uri);
  return find_way_to_etcd(uri, [this](const std::string& server) {
    return environment.own_address_towards(environment.resolve_address(server));
  });
}

void Worker::State::on_resolved(const Places& found, SessionEvents& events, const std::optional<Error>& error) {
  environment.loop.cancel_timer(std::exchange(resolve_timer, 0));
  try {
    if (error) throw *error;
    open(found, events);
  } catch (...) {
    abandon_start(current_error());
  }
}

void Worker::State::open(const Places& found, SessionEvents& events) {
  const RendezvousTarget& target = found.target;
  is_open_world = target.world_size < 0;
  if (!target.launcher.empty()) {
    environment.log.write(LogLevel::kInfo, fmt::format("started by {}: rank {} of {}, which meet at {}",
                                                       target.launcher, target.rank, target.world_size, target.uri));
  }
  transport = environment.make_transport(target.uri);
  // A rendezvous on another machine, and no address to listen at: others come by the way that leads there.
  const std::string& bind = found.bind.empty() ? found.own_host : found.bind;
  const bool has_lanes = bind.rfind("tcp://", 0) != 0 && transport->lane_report().is_on;
  if (target.world_size > 0 && !has_lanes) transport->check_descriptors(static_cast<size_t>(target.world_size));
  SessionConfig config;
  config.job = options.job;
  config.lease = options.lease;
  config.memory = environment.memory;
  config.decoder = &environment.decoder;
  config.on_lack = [this](const Peer& peer, const Error& lack, bool is_long) {
    if (!gate.is_open()) return;  // the start has its own deadline
    EachStep each;                // it is told again at the next look, as long as it lasts
    each([&] {
      if (is_long) meshes.on_long_lack(peer, lack);
    });
    each([&] {
      if (is_long) dautograd.on_long_lack(peer, lack);
    });
    each([&] { group.on_lack(peer, lack, is_long); });
  };
  config.limits.max_message_bytes = options.max_message_bytes;
  config.self.rank = target.rank;
  config.self.name = options.name.empty() && target.rank >= 0 ? default_name(target.rank) : options.name;
  do {
    config.self.incarnation = environment.random.next();
  } while (config.self.incarnation == 0);
  opened = environment.loop.now();
  wanted_size = target.world_size;
  if (environment.make_server) local_server = environment.make_server(config.self.incarnation);
  session =
      std::make_unique<Session>(environment.loop, *transport, environment.random, environment.log, config, events);
  session->listen(bind.empty() ? transport->private_address() : bind);
  check_advertised(found.advertise);
  join(found);
}

// Members that cannot dial it would hear of a member that is lost.
void Worker::State::check_advertised(const std::string& address) const {
  if (address.empty()) return;
  try {
    transport->check_endpoint(address);
  } catch (...) {
    throw current_error().add_context("advertise");
  }
}

void Worker::State::join(const Places& found) {
  const RendezvousTarget& target = found.target;
  rendezvous = environment.make_rendezvous(target.uri, *transport);
  JoinRequest request;
  request.job = options.job;
  request.world_size = target.world_size;
  request.self = session->self();
  request.self.endpoint = found.advertise.empty() ? dialable(session->endpoint(), found.own_host) : found.advertise;
  request.deadline = start_deadline;
  request.probe = [this](Incarnation member, Task on_alive) { probe(member, std::move(on_alive)); };
  rendezvous->join(request, [this](Rendezvous::Outcome outcome) { on_joined(std::move(outcome)); });
}

}  // namespace distag
