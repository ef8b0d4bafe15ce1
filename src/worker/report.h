#pragma once

#include <string>
#include <vector>

#include "base/flight_recorder.h"
#include "coll/mesh_state.h"
#include "dautograd/snapshot.h"
#include "group/membership.h"
#include "rpc/open_call.h"
#include "rref/rrefs.h"
#include "transport/transport.h"
#include "worker/event_log.h"

namespace distag {

// The state of a worker at one moment.
struct WorkerSnapshot {
  struct Member {
    MemberRecord record;
    bool is_connected = false;
    std::string gone;  // why it is lost, or that it has left
    std::string lane;  // "lane", or why messages go without one; empty: none was sent
  };

  std::string name;
  int32_t rank = -1;
  Incarnation incarnation = 0;
  std::string state;  // "not started", "started", "shutting down", "shut down"
  Nanos now = 0;
  std::vector<Member> members;
  LaneReport lane;
  SocketReport sockets;
  std::vector<OpenCall> calls;
  std::vector<WaitingCollective> collectives;
  std::vector<ContextSnapshot> contexts;
  std::vector<OwnedValueInfo> rrefs;
  std::vector<EventLog::Event> events;
  std::vector<FlightEvent> last;
};

// In JSON, for people and tools; include/distag.h names the keys.
std::string write_report(const WorkerSnapshot& worker);
// Includes the graph behind the context's sends.
std::string write_report(const ContextSnapshot& context);
// For a context without a worker.
std::string write_local_report(Context& context);

}  // namespace distag
