#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace distag_tool {

// A worker as it reports itself, or as others report it. All texts are printable.
struct Node {
  int group = 0;  // the same for all workers of a group
  std::string name;
  int64_t rank = -1;
  std::string id;  // incarnation: 16 hexadecimal digits
  std::string job;
  std::string state;
  std::string host;
  int64_t process = 0;  // 0: not known
  int64_t world_size = 0;
  int64_t tasks_waiting = 0;
  int64_t calls_open = 0;
  double age_ms = 0;
  bool is_pumped = false;
  bool is_in_task = false;
  std::string silent;  // why the rest is not known

  struct Call {
    bool is_made = false;
    std::string function;
    int64_t rank = -1;  // of the other side
    std::string peer;
    std::string state;
    double age_ms = 0;
    std::string within;
  };
  std::vector<Call> calls;  // oldest first
  struct Wait {
    std::string what;
    double age_ms = -1;  // -1: not known
    std::string within;  // the function that waits, if it is known
    std::string call;    // for a call: the function
    bool is_gathering = false;
    bool is_pass = false;
    std::vector<int64_t> ranks;  // that it waits for
    std::vector<std::string> names;
  };
  std::vector<Wait> waits;
};

Node read_node(const nlohmann::json& look);

// "call \"f\" on w1, 12.3 s", "runs \"f\", 4.0 s"; empty: it does nothing.
std::string describe_state(const Node& node);

struct Chain {
  struct Step {
    std::string worker;
    int64_t rank = -1;
    std::string text;
    double age_ms = -1;
  };
  std::vector<Step> steps;
  std::string end;      // "runs", "silent", "not polled", "has not come", "cycle", "under way"
  std::string culprit;  // a worker; all workers of a cycle
  double age_ms = -1;   // of the chain's longest wait
  size_t node = 0;      // the start of the chain
};

// Chains of waits, each from a worker that no other waits for, to its end.
std::vector<Chain> find_chains(const std::vector<Node>& nodes);

std::string describe_age(double ms);

}  // namespace distag_tool
