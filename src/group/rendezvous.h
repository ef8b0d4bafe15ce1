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
  int32_t world_size = 0;  // -1: an open world, where a rank of -1 and an empty name are given by the group
  Peer self;               // rank, name, endpoint, incarnation
  Nanos deadline = kNever;
  std::string host = {};  // the machine and the process of this worker, for the one that refuses it to name
  uint64_t process = 0;
  // Of one that serves others: asks a member for a sign of life, upon which `on_alive` runs; else on_gone() is called.
  std::function<void(Incarnation, Task on_alive)> probe = {};
};

// Where the members of a group find each other. One object per worker, for as long as it is a member: its end makes
// room for another one of its name. On the loop.
class Rendezvous {
 public:
  // Exactly once: the whole group (self included, with the rank, name and generation given), or why not: DEADLINE
  // listing who is missing; DISCONNECTED when there is no rendezvous; INVALID_STATE for a name or rank in use; DENIED;
  // PROTOCOL. A generation above 1 may have come to a running group, as everyone does in an open world.
  struct Outcome {
    std::vector<Peer> members;
    Error error;
    bool ok = false;
  };
  using Callback = std::function<void(Outcome)>;

  virtual ~Rendezvous() = default;  // stops; rank 0 stops serving
  virtual void join(const JoinRequest& request, Callback done) = 0;
  // This worker has lost a member, or it has left: its place is free.
  virtual void on_gone(Incarnation) {}
  // After a join that was ok: who is it? nullopt: no member that is known here. No answer comes while the rendezvous
  // cannot be asked.
  using Answer = UniqueFunction<void(const std::optional<Peer>&)>;
  virtual void look_up(Incarnation incarnation, Answer answer) = 0;
  // Of one that serves others: the JOINs and connections that it has refused so far.
  virtual uint64_t refused() const { return 0; }
};

// The target that "env://" and the options name, resolved before anything starts. Throws INVALID_ARGUMENT naming what
// is missing.
struct RendezvousTarget {
  std::string uri;  // tcp://host:port, file:///dir, inproc://name, etcd://host:port/prefix, pmix://
  int32_t rank = -1;
  int32_t world_size = 0;     // -1: open; 0: PMIx tells
  std::string launcher = {};  // whose variables gave rank and size; empty: the options did
};
RendezvousTarget resolve_rendezvous(const std::string& uri, int32_t rank, int32_t world_size,
                                    const std::function<const char*(const char*)>& get_environment);

constexpr size_t kLongestName = 127;  // of a worker or a job
bool is_worker_name(const std::string& name);
std::string default_name(int32_t rank);  // of a worker that gives itself none

// All that a rendezvous is made from; it outlives the rendezvous.
struct RendezvousTools {
  Loop& loop;
  Transport& transport;
  Log& log;
  std::function<const char*(const char*)> get_environment = {};  // for etcd://, as is the next one
  std::function<HttpClient&()> http = {};
  std::function<JobBoard&()> board = {};  // for pmix://
};

// For a resolved uri. Throws INVALID_ARGUMENT for an unknown scheme, UNSUPPORTED for one that is not there so far.
std::unique_ptr<Rendezvous> make_rendezvous(const std::string& uri, const RendezvousTools& tools);

}  // namespace distag
