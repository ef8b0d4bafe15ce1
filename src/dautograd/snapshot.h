#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "autograd/node.h"
#include "dautograd/context_record.h"

namespace distag {

// The state that a worker holds of contexts and passes at one moment, for reports.

struct PassSnapshot {
  Id pass;
  bool is_initiator = false;
  bool is_fast = false;
  std::string stage;                   // "searching" (SMART), "running", "done" (waits for the verdict)
  std::vector<std::string> waits_for;  // workers, and gradients of calls
  Nanos age = 0;
};

struct SendSnapshot {
  std::string call;  // `call "embed" ("layer 3") on "ps1"`
  bool is_answer = false;
  std::string peer;
  bool has_fired = false;
  std::shared_ptr<autograd::Node> node;
};

struct ContextSnapshot {
  std::shared_ptr<ContextRecord> record;  // number and counts
  std::string creator;
  bool is_own = false;
  std::vector<int32_t> known_ranks;
  std::vector<PassSnapshot> passes;
  std::vector<SendSnapshot> sends;  // only where they are asked for
};

}  // namespace distag
