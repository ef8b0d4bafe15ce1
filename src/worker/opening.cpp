// The first half of a start: sockets, and the way to the rendezvous.

#include <utility>

#include "transport/socket/address.h"
#include "worker/worker_state.h"

namespace distag {

void Worker::State::begin_start(Nanos deadline, SessionEvents& events) {
  start_deadline = deadline;
  finder->find(options, deadline, [this, &events](const Places& found, const std::optional<Error>& error) {
    try {
      if (error) throw *error;
      open(found, events);
    } catch (...) {
      abandon_start(current_error());
    }
  });
}

void Worker::State::open(const Places& found, SessionEvents& events) {
  const RendezvousTarget& target = found.target;
  if (!target.launcher.empty()) {
    environment.log.write(LogLevel::kInfo, fmt::format("started by {}: rank {} of {}, which meet at {}",
                                                       target.launcher, target.rank, target.world_size, target.uri));
  }
  links.transport = environment.make_transport(target.uri);
  // A rendezvous on another machine, and no address to listen at: others come by the way that leads there.
  const std::string& bind = found.bind.empty() ? found.own_host : found.bind;
  const bool has_lanes = bind.rfind("tcp://", 0) != 0 && links.transport->lane_report().is_on;
  if (target.world_size > 0 && !has_lanes) links.transport->check_descriptors(static_cast<size_t>(target.world_size));
  SessionConfig config;
  config.job = options.job;
  config.lease = options.lease;
  config.memory = environment.memory;
  config.decoder = &environment.decoder;
  config.on_lack = [this](const Peer& peer, const Error& lack, bool is_long) {
    if (gate.is_open()) layers.on_lack(peer, lack, is_long);  // the start has its own deadline
  };
  config.limits.max_message_bytes = options.max_message_bytes;
  config.self.rank = target.rank;
  config.self.name = options.name.empty() && target.rank >= 0 ? default_name(target.rank) : options.name;
  do {
    config.self.incarnation = environment.random.next();
  } while (config.self.incarnation == 0);
  links.opened = environment.loop.now();
  links.wanted_size = target.world_size;
  if (environment.make_server) links.local_server = environment.make_server(config.self.incarnation);
  links.session = std::make_unique<Session>(environment.loop, *links.transport, environment.random, environment.log,
                                            config, events);
  links.session->listen(bind.empty() ? links.transport->private_address() : bind);
  check_advertised(found.advertise);
  join(found);
}

// Members that cannot dial it would hear of a member that is lost.
void Worker::State::check_advertised(const std::string& address) const {
  if (address.empty()) return;
  try {
    links.transport->check_endpoint(address);
  } catch (...) {
    throw current_error().add_context("advertise");
  }
}

void Worker::State::join(const Places& found) {
  const RendezvousTarget& target = found.target;
  links.rendezvous = environment.make_rendezvous(target.uri, *links.transport);
  JoinRequest request;
  request.job = options.job;
  request.world_size = target.world_size;
  request.self = links.session->self();
  request.self.endpoint =
      found.advertise.empty() ? dialable(links.session->endpoint(), found.own_host) : found.advertise;
  request.deadline = start_deadline;
  request.probe = [this](Incarnation member, Task on_alive) { members.probe(member, std::move(on_alive)); };
  links.rendezvous->join(request, [this](Rendezvous::Outcome outcome) { on_joined(std::move(outcome)); });
}

}  // namespace distag
