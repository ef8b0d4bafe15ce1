#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "base/future.h"
#include "base/loop.h"
#include "base/random.h"
#include "base/task.h"
#include "group/membership.h"
#include "group/report.h"
#include "group/service.h"
#include "session/session.h"
#include "tensor/value.h"
#include "wire/message.h"

namespace distag {

struct GroupShared;

// The group, as one member sees it: its members, the messages and counts between them, gathering, and the shutdown. On
// the loop unless it says otherwise.
class Group {
 public:
  struct Environment {
    Loop& loop;
    Random& random;
    Nanos lease = 5 * kSecond;
  };

  explicit Group(Environment environment);
  ~Group();

  // Before the start.
  void set_service(GroupService& service);
  // Adds a check whether an upper layer is idle (passes): all checks must return true for the worker to be idle.
  void add_idle_check(std::function<bool()> is_idle);

  // The streams are up and the group is known: requests may be sent from now on.
  void begin(Session& session, std::vector<Peer> members, bool is_open_world = false);
  Session& session();
  const Membership& membership() const;  // any thread; locks inside

  // Sends a message of an upper layer; a graceful shutdown waits for its arrival. It is dropped when the peer is gone.
  void send(const Peer& to, wire::Body body, Task on_acknowledged);
  void count_received(const Peer& from);
  // The peer has sent a message that no correct peer sends.
  void fence(Incarnation peer, const Error& why);
  std::shared_ptr<const Peer> find_peer(Incarnation incarnation) const;  // nullptr: unknown
  bool is_gone(Incarnation incarnation) const;                           // true also if unknown

  void on_lost(const Peer& peer, const Error& error);
  void on_left(const Peer& peer);
  void on_lack(const Peer& peer, const Error& lack, bool is_long);
  // A worker has joined the running group and owns its name and rank from now on.
  void on_joined(const Peer& peer);

  Heard handle(const Peer& from, wire::Message& message);

  // Any thread. Brings the values of several members to each of them, once all have come: AllGather::begin.
  std::shared_ptr<Future<Value>> all_gather(const Value& value, std::optional<std::vector<int32_t>> ranks,
                                            Nanos timeout);
  // For each of at most `most` gatherings that meet at this worker: the ranks that it still waits for.
  std::vector<std::vector<int32_t>> missing_at_gatherings(size_t most) const;
  // Before the start. The functions by which other members call this one's part of the group. They throw Error to
  // refuse.
  struct Function {
    const char* name;
    std::function<void(const GroupCall&)> run;
  };
  std::vector<Function> functions();

  // Graceful: goes on serving until the group is quiet or the deadline comes. Then it sends LEAVE, ends open work with
  // CANCELLED, and completes with the report. In an open world it refuses new requests of others, and waits only for
  // running requests and its own. A deadline in the past ends it at once. When called again, the earlier deadline
  // counts.
  std::shared_ptr<Future<ShutdownReport>> shutdown(Nanos deadline);
  // Leaves at once because this worker cannot go on; open work ends with `why`. Returns false if it has begun to leave
  // before. All open work has ended even if this throws; the streams may not have.
  bool leave_for(const Error& why);
  // Ends without LEAVE, before the session is destroyed, unless leaving has come that far. May be tried again.
  void cut_off();

  // For the layer of calls.
  const std::shared_ptr<GroupShared>& shared() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
  std::shared_ptr<GroupShared> shared_;
};

}  // namespace distag
