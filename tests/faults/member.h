#pragma once

#include <distag.h>

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "processes/handles.h"

namespace distag::faults {

using Rref = testing::Owned<distag_rref, distag_rref_release>;
using Optimizer = testing::Owned<distag_optimizer, distag_optimizer_release>;
using Mesh = testing::Owned<distag_mesh, distag_mesh_release>;
using testing::Context;
using testing::Future;
using testing::Gradients;
using testing::Reply;
using testing::Tensor;
using testing::Value;

constexpr int kMembers = 3;

struct MemberOptions {
  int rank = 0;            // "A", "B" or "C"
  std::string rendezvous;  // of a static world of three
  std::string bind;        // empty: a private address
  int64_t lease_ns = 0;
  bool allow_insecure = false;
};

// A worker of the matrix, with what the others call:
//   add(a, b)                 a + b
//   echo(value)               the value
//   relay(to, function, ...)  what `function` of `to` answers to the other arguments, in the same context
//   sum_all(x, ...)           the sum of all tensors
//   silence()                 never answers
//   keep(x)                   x, as a parameter that stays here
//   times(a, b)               a * b; a may be a reference, which is fetched
//   backward(x)               runs the FAST pass of the sum of x in the context of the call
//   stage(x)                  this member's part of x * (1, 2, 3, 4), which it computes together with the other one
//   stage_on_line(x)          the same on a line of the mesh of its own
class Member {
 public:
  explicit Member(const MemberOptions& options);

  distag_worker* worker() { return worker_.get(); }
  const std::string& name() const { return name_; }
  nlohmann::json start(int64_t timeout_ns);
  // Leaves the group, then releases the worker.
  nlohmann::json stop(int64_t timeout_ns);
  // Waits until the worker holds nothing for others and nothing is open, at most for so long. What it has then.
  nlohmann::json settle(int64_t timeout_ns);
  // When on_member of this one reported the loss of that member: nanoseconds; 0: not in time.
  int64_t wait_until_told(const std::string& name, int64_t timeout_ns);

  void keep(distag_reply* reply);
  // Makes the mesh of B and C on which "stage" computes. Both at once.
  void take_stage(distag_error* err);
  distag_status run_stage(distag_invocation* invocation, bool is_on_line, distag_error* err);

 private:
  static void note_member(void* user_data, distag_worker* worker, const distag_member* member);
  nlohmann::json held();
  void drop_replies();

  const std::string name_;
  testing::Worker worker_;
  Mesh stage_mesh_, stage_line_;
  Tensor stage_weight_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, int64_t> lost_;
  std::vector<Reply> replies_;
};

std::string name_of(int rank);

// The operations of a phase, in order, each with its times and its failure.
class Record {
 public:
  // `run` says whether what came is right; looked at where nothing failed. False: it was not, or failed.
  bool run(const char* what, const std::function<bool(distag_error*)>& run);
  const nlohmann::json& operations() const { return operations_; }

 private:
  nlohmann::json operations_ = nlohmann::json::array();
};

// Does what the phase of that name does on this member; throws std::out_of_range for one that there is not.
nlohmann::json run_phase(Member& member, const std::string& phase);
// A call and a pass with each of these members.
nlohmann::json check_with(Member& member, const std::vector<std::string>& others);

}  // namespace distag::faults
