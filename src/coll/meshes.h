#pragma once

#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include "base/log.h"
#include "coll/mesh.h"

namespace distag {

// The meshes of which one worker is a member: makes them, and passes messages and losses on to them. Public methods may
// be called on any thread unless they say otherwise.
class Meshes {
 public:
  struct Environment {
    Loop& loop;
    Executor& compute;
    Nanos call_timeout;
    std::string host;                        // the machine of this worker
    uint64_t max_early = uint64_t{1} << 30;  // see MeshEnvironment
  };

  Meshes(Environment environment, Group& group);
  ~Meshes();

  using Made = std::shared_ptr<Future<std::shared_ptr<Mesh>>>;

  // Completes once all ranks of the request have called it alike. Without ranks: all living members of the group,
  // ascending. An empty shape has all of them on its first axis. Without granules: the hosts. Throws INVALID_ARGUMENT
  // for a request that does not fit, or that leaves out this worker. The future fails with DIVERGED (different requests
  // elsewhere), DEADLINE naming the missing, DISCONNECTED. `timeout` is also that of the mesh's calls that take none;
  // 0: the call timeout of the worker. To cancel the future takes this worker out of a mesh that others may have.
  Made create(layout::MeshRequest request, Nanos timeout, const MeshPolicy& policy = {});
  // The creation of a mesh of that name here, as the error of a cancelled one names it.
  std::string describe_creation(const std::string& mesh) const;

  // On the loop, before messages come; and at the shutdown.
  void begin(const Peer& self) {
    assert_on_loop(environment_.loop);
    self_ = self;
  }
  void stop();

  // On the loop. Throws Violation.
  Heard handle(const Peer& from, const wire::Message& message);
  // Comes instead of handle(), when there is no memory for the payload.
  void refuse(const Peer& from, const wire::Message& outline, const Error& why);
  void on_lost(const Peer& peer, const Error& error);
  void on_left(const Peer& peer);
  // The peer cannot answer for long (SessionConfig::on_lack): meshes of it with calls under way end with `lack`.
  void on_long_lack(const Peer& peer, const Error& lack);
  bool is_idle() const;
  // On the loop: at most that many collectives under way.
  std::vector<WaitingCollective> waiting(size_t most) const;
  // Whether this worker's program may still use that mesh, whose number this worker gave.
  bool may_be_used(const Id& mesh) const;

 private:
  // A message of a mesh whose creation has not ended here. It is kept as long as a creation is under way that began
  // before it came.
  struct Early {
    Id mesh;
    Peer from;
    wire::Body body;
    std::optional<Error> refused;  // why the body could not be kept, which ends the mesh
    uint64_t last_creation = 0;    // the latest one here when it came
    size_t bytes = 0;
  };
  // A creation under way.
  struct Creation {
    layout::MeshRequest request;
    std::string text;  // members must agree on this
    Nanos timeout;
    MeshPolicy policy;
    Made made;
    uint64_t proposed = 0;                  // the counter in this worker's request
    std::weak_ptr<Future<Value>> gathered;  // the requests of all
    TaskPlace cancelled;
  };

  void gather(const std::shared_ptr<Creation>& creation);
  void on_agreed(Creation& creation, const Value& requests);
  void end_creation(uint64_t proposed) noexcept;
  Heard keep(const Id& mesh, const Peer& from, const wire::Body& body);
  Heard keep_early(Early early);
  Heard lead(Mesh& mesh, const Peer& from, const wire::Body& body);
  void lead_early(const std::shared_ptr<Mesh>& mesh);
  void forget_ended();

  const Environment environment_;
  Group& group_;
  const std::shared_ptr<LoopGate> gate_;

  // On the loop.
  Peer self_;
  uint64_t last_mesh_ = 0;
  std::map<Id, std::shared_ptr<Mesh>> meshes_;
  std::list<Early> early_;
  std::set<uint64_t> creations_;  // under way here, each by the counter that it has proposed
};

}  // namespace distag
