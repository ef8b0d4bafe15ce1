#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/loop.h"
#include "base/task.h"
#include "group/http_client.h"
#include "group/job_board.h"
#include "session/session.h"
#include "transport/transport.h"

namespace distag {

struct JoinRequest {
  std::string job;
  int32_t world_size = 0;  // -1: an open world, where the group assigns a missing rank (-1) or name
  Peer self;               // with rank, name, endpoint, incarnation
  Nanos deadline = kNever;
  std::string host = {};  // machine and process of this worker, named by the worker that refuses it
  uint64_t process = 0;
  // For a rendezvous that serves others: asks a member for a sign of life. If it lives `on_alive` runs; else on_gone()
  // is called.
  std::function<void(Incarnation, Task on_alive)> probe = {};
};

// The service by which the members of a group find each other. One object per worker, as long as it is a member: its
// destruction frees the place for another worker of its name. On the loop.
class Rendezvous {
 public:
  // Reported exactly once: the whole group (self included, with the assigned rank, name and generation), or the error:
  // DEADLINE, which lists the missing; DISCONNECTED without a rendezvous; INVALID_STATE for a name or rank in use;
  // DENIED; PROTOCOL. A generation above 1 may have come to a running group, as all do in an open world.
  struct Outcome {
    std::vector<Peer> members;
    Error error;
    bool ok = false;
  };
  using Callback = std::function<void(Outcome)>;

  virtual ~Rendezvous() = default;  // stops; rank 0 stops serving
  virtual void join(const JoinRequest& request, Callback done) = 0;
  // This worker has lost a member, or the member has left: its place is free.
  virtual void on_gone(Incarnation) {}
  // After a successful join: describes an incarnation. nullopt: no member that is known here. No answer comes while the
  // rendezvous cannot be reached.
  using Answer = UniqueFunction<void(const std::optional<Peer>&)>;
  virtual void look_up(Incarnation incarnation, Answer answer) = 0;
  // The number of JOINs and connections that it has refused so far; 0 unless this process hosts the rendezvous.
  virtual uint64_t refused() const = 0;
};

// The target that "env://" and the options name, resolved before anything starts. Throws INVALID_ARGUMENT, which names
// the missing settings.
struct RendezvousTarget {
  std::string uri;  // tcp://host:port, file:///dir, inproc://name, etcd://host:port/prefix, pmix://
  int32_t rank = -1;
  int32_t world_size = 0;     // -1: open; 0: PMIx will provide it
  std::string launcher = {};  // the launcher that gave rank and size; empty: the options did
};
RendezvousTarget resolve_rendezvous(const std::string& uri, int32_t rank, int32_t world_size,
                                    const std::function<const char*(const char*)>& get_environment);

constexpr size_t kLongestName = 127;  // limit for names of workers and jobs
bool is_worker_name(const std::string& name);
std::string default_name(int32_t rank);  // for a worker without a name

// The services that a rendezvous uses; they outlive the rendezvous.
struct RendezvousTools {
  Loop& loop;
  Transport& transport;
  Log& log;
  std::function<const char*(const char*)> get_environment = {};  // for etcd://, like `http`
  std::function<HttpClient&()> http = {};
  std::function<JobBoard&()> board = {};  // for pmix://
};

// For a resolved uri. Throws INVALID_ARGUMENT for an unknown scheme, UNSUPPORTED for one that is not available here.
std::unique_ptr<Rendezvous> make_rendezvous(const std::string& uri, const RendezvousTools& tools);

}  // namespace distag
