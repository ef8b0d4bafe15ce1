#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/future.h"
#include "base/loop.h"
#include "coll/mesh_state.h"
#include "dautograd/snapshot.h"
#include "rpc/open_call.h"
#include "transport/transport.h"

namespace distag {

class Worker;

// The activity of a worker at one moment, and its waits: short, however much is open.
struct WorkerLook {
  std::string name;
  int32_t rank = -1;
  int32_t world_size = 0;
  std::string job;
  std::string state;
  uint64_t incarnation = 0;
  std::string host;
  Nanos age = 0;
  bool is_pumped = false;  // the host polls it, and may be inside one of its tasks
  bool is_in_task = false;
  size_t tasks_waiting = 0;
  uint64_t calls_open = 0;
  std::vector<OpenCall> calls;  // the oldest ones
  std::vector<PassSnapshot> passes;
  std::vector<WaitingCollective> collectives;
  std::vector<std::vector<int32_t>> gatherings;  // missing ranks of the gatherings that meet here
};

std::string write_look(const WorkerLook& look);

// The report of a group while its members are asked. On the loop; shared with the calls to them.
class GroupReport {
 public:
  struct Member {
    std::string name;
    int32_t rank = -1;
    uint64_t incarnation = 0;
    std::string state;   // "alive", "lost", "left"
    std::string silent;  // why there is no report
    std::string report;
  };

  GroupReport(Loop& loop, std::string asked, std::vector<Member> members)
      : loop_(loop), asked_(std::move(asked)), members_(std::move(members)) {}

  void set_report(size_t place, std::string report) { members_[place].report = std::move(report); }
  // Why there is no report, in a text that may come from others.
  void set_silent(size_t place, const std::string& why);
  void begin_one() { ++open_; }
  void take_back_one() { --open_; }
  // Takes the answer of a member that was asked, which may be no report.
  void take(size_t place, const Error* error, const std::string& text);
  // Called once all are asked, and after each answer. Writes the report when none is left.
  void end_one(Future<std::string>& done);

 private:
  std::string write() const;

  Loop& loop_;
  const std::string asked_;
  std::vector<Member> members_;
  size_t open_ = 1;  // calls, and the caller that makes them
};

// Answers a question at a worker's socket: "look", or "group MILLISECONDS". On the loop. nullptr: it is unknown.
std::shared_ptr<Future<std::string>> answer_question(Worker& worker, const std::string& question);

}  // namespace distag
