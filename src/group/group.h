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

// The group as one member sees it: who is in it, what goes to them and is counted, gathering, and the way out. On the
// loop unless it says otherwise.
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
  // Whether anything of an upper layer is under way (passes): all must answer true for the worker to be idle.
  void add_idle_check(std::function<bool()> is_idle);

  // The streams are up and the group is known; requests may go.
  void begin(Session& session, std::vector<Peer> members, bool is_open_world = false);
  Session& session();
  const Membership& membership() const;  // any thread; locks inside

  // A message of an upper layer that a graceful shutdown waits for to arrive. Dropped when the peer is gone.
  void send(const Peer& to, wire::Body body, Task on_acknowledged);
  void count_received(const Peer& from);
  // The peer has sent something that no correct one sends.
  void fence(Incarnation peer, const Error& why);
  std::shared_ptr<const Peer> find_peer(Incarnation incarnation) const;  // nullptr: unknown
  bool is_gone(Incarnation incarnation) const;                           // or unknown

  void on_lost(const Peer& peer, const Error& error);
  void on_left(const Peer& peer);
  void on_lack(const Peer& peer, const Error& lack, bool is_long);
  // Someone has joined the running group; its name and rank are its own from now on.
  void on_joined(const Peer& peer);

  Heard handle(const Peer& from, wire::Message& message);

  // Any thread. Brings the values of several members to each of them, once all have come: AllGather::begin.
  std::shared_ptr<Future<Value>> all_gather(const Value& value, std::optional<std::vector<int32_t>> ranks,
                                            Nanos timeout);
  // The ranks that each of the gatherings still waits for that meet at this worker; at most that many gatherings.
  std::vector<std::vector<int32_t>> missing_at_gatherings(size_t most) const;
  // Before the start. The functions under which other members reach this one's part in it. They throw Error to refuse.
  struct Function {
    const char* name;
    std::function<void(const GroupCall&)> run;
  };
  std::vector<Function> functions();

  // Graceful: goes on serving until the group is quiet, or the deadline; then sends LEAVE, ends what is open with
  // CANCELLED, and completes with the report. In an open world it refuses new requests of others, and waits for those
  // that run and its own only. With a deadline that is past: at once. Again: an earlier deadline counts.
  std::shared_ptr<Future<ShutdownReport>> shutdown(Nanos deadline);
  // Leaves at once, because this worker cannot go on: what is open ends with `why`. False when it has begun to leave
  // before. All that is open has ended even if this throws; the streams may not have.
  bool leave_for(const Error& why);
  // The end without a word, before the session goes, if leaving has not come so far. May be tried again.
  void cut_off();

  // For the calls.
  const std::shared_ptr<GroupShared>& shared() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
  std::shared_ptr<GroupShared> shared_;
};

}  // namespace distag
