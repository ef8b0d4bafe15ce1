#include "worker/layers.h"

#include "autograd/autograd.h"
#include "base/violation.h"
#include "spmd/tensors.h"

namespace distag {

namespace {

// Finds entries for passes in which another member of a mesh asks for its calls.
decltype(Dautograd::Environment::find_entry) make_find_entry(const spmd::ProgramTable& programs) {
  return [&programs](const Peer& peer, const autograd::EntryName& name) -> std::shared_ptr<autograd::Node> {
    const auto program = programs.find(name.mesh);
    if (program == nullptr) return nullptr;
    if (!program->mesh().position_of(peer.incarnation)) {
      violation("worker \"{}\" names a call of mesh \"{}\", in which it is not", peer.name, program->shape().name());
    }
    return program->find_entry({name.call, name.line});
  };
}

}  // namespace

Layers::Layers(const WorkerEnvironment& environment, const WorkerOptions& options)
    : group(Group::Environment{environment.loop, environment.random, options.lease}),
      rpc(group, Rpc::Environment{environment.loop, environment.functions, environment.compute, environment.log},
          RpcConfig{options.call_timeout, options.max_in_flight}),
      rrefs(Rrefs::Environment{environment.loop, environment.compute, environment.log, environment.random,
                               options.call_timeout},
            group, rpc),
      meshes(Meshes::Environment{environment.loop, environment.compute, options.call_timeout, environment.host,
                                 options.max_early},
             group),
      dautograd(Dautograd::Environment{environment.loop, environment.compute, environment.functions, environment.log,
                                       options.lease, make_find_entry(programs),
                                       [this](const Id& mesh) { return meshes.may_be_used(mesh); }, options.lineage,
                                       options.max_sends},
                group, rpc),
      places(rrefs),
      optim(environment.loop, environment.compute, group, rpc, dautograd) {
  rpc.set_hook(&dautograd);
  rpc.set_reference_hook(&rrefs);
  rpc.set_op_runner(&autograd::apply);
  optim.set_places(&places);
  optim.set_part_of(&spmd::part_of_state);
  group.add_idle_check([this] { return rrefs.is_idle(); });
  group.add_idle_check([this] { return meshes.is_idle(); });
  group.add_idle_check([this] { return dautograd.is_idle(); });
}

// The group is last: from then on requests are sent and received, and find each layer begun.
void Layers::begin(Session& session, const std::vector<Peer>& roster, bool is_open_world) {
  rrefs.begin(session.self());
  meshes.begin(session.self());
  dautograd.begin(session);
  optim.begin(session.self());
  group.begin(session, roster, is_open_world);
}

// The group is last: the other layers send through it.
void Layers::stop(EachStep& each) {
  each([this] { meshes.stop(); });
  each([this] { rrefs.stop(); });
  each([this] { dautograd.stop(); });
  each([this] { group.cut_off(); });
}

void Layers::on_lost(const Peer& peer, const Error& error) {
  meshes.on_lost(peer, error);
  dautograd.on_lost(peer, error);
  optim.on_gone(peer);
  group.on_lost(peer, error);
  rrefs.on_gone(peer);
}

void Layers::on_left(const Peer& peer) {
  meshes.on_left(peer);
  dautograd.on_left(peer);
  optim.on_gone(peer);
  group.on_left(peer);
  rrefs.on_gone(peer);
}

void Layers::on_lack(const Peer& peer, const Error& lack, bool is_long) {
  EachStep each;  // reported again at the next check, as long as it lasts
  each([&] {
    if (is_long) meshes.on_long_lack(peer, lack);
  });
  each([&] {
    if (is_long) dautograd.on_long_lack(peer, lack);
  });
  each([&] { group.on_lack(peer, lack, is_long); });
}

}  // namespace distag
