#include "ps.h"

#include <algorithm>
#include <cstdio>
#include <map>

#include "asking.h"
#include "table.h"
#include "trace_file.h"

namespace distag_tool {
namespace {

using nlohmann::json;
using Json = nlohmann::ordered_json;

constexpr int kPatienceMs = 1000;  // of the command, for a worker
constexpr int kGroupMs = 900;      // of a worker, for the members of its group
constexpr int kTalkMs = 200;       // the extra time of the command

Node make_node(const LocalWorker& worker) {
  Node node;
  if (worker.answer.is_object()) {
    node = read_node(worker.answer);
  } else {
    node.name = "?";
    node.silent = worker.silent;
  }
  node.id = worker.id;
  node.process = worker.process;
  return node;
}

json part_of(const json& object, const char* name) {
  const auto found = object.find(name);
  return found == object.end() ? json() : *found;
}

// A member as another member reports it; `local`: its own answer on this machine, if any.
Node make_member(const json& told, const Node* local) {
  const json report = part_of(told, "report");
  Node node = report.is_object() ? read_node(report) : Node();
  std::string id = printable(text_in(told, "incarnation"));
  node.id = id.starts_with("0x") ? id.substr(2) : id;
  node.name = printable(text_in(told, "name"));
  node.rank = static_cast<int64_t>(std::clamp(number_in(told, "rank"), -1.0, 2147483647.0));
  if (!report.is_object()) node.silent = printable(text_in(told, "silent"));
  if (local == nullptr) return node;
  if (!report.is_object() && local->silent.empty()) {
    // The two may have lost each other: the member's own answer counts.
    const std::string name = node.name;
    node = *local;
    node.name = name;
  }
  node.process = local->process;
  if (!local->silent.empty() && !node.silent.empty()) node.silent = local->silent;
  return node;
}

// Adds the group of one worker, as reported by its members.
void add_group(const json& answer, int group, const std::map<std::string, Node>& here, std::vector<Node>& nodes,
               std::map<std::string, bool>& covered) {
  const json members = part_of(answer, "members");
  if (!members.is_array()) return;
  for (const json& told : members) {
    if (!told.is_object()) continue;
    std::string id = text_in(told, "incarnation");
    if (id.starts_with("0x")) id.erase(0, 2);
    const auto local = here.find(id);
    Node node = make_member(told, local == here.end() ? nullptr : &local->second);
    node.group = group;
    if (text_in(told, "state") == "left") continue;
    covered[id] = true;
    nodes.push_back(std::move(node));
  }
}

Json describe(const Node& node) {
  return {{"name", node.name},       {"rank", node.rank},        {"job", node.job},
          {"process", node.process}, {"host", node.host},        {"state", node.silent.empty() ? node.state : "silent"},
          {"age_ms", node.age_ms},   {"calls", node.calls_open}, {"waits_for", describe_state(node)}};
}

void print_nodes(const std::vector<Node>& nodes) {
  std::vector<std::vector<std::string>> table{
      {"worker", "rank", "job", "process", "age", "state", "calls", "does or waits for"}};
  for (const Node& node : nodes) {
    const bool is_silent = !node.silent.empty();
    table.push_back({node.name, node.rank < 0 ? "-" : std::to_string(node.rank), is_silent ? "-" : node.job,
                     node.process == 0 ? "-" : std::to_string(node.process),
                     is_silent ? "-" : describe_age(node.age_ms), is_silent ? "silent" : node.state,
                     is_silent ? "-" : std::to_string(node.calls_open), describe_state(node)});
  }
  print_table(table);
}

double longest_wait(const std::vector<Node>& nodes) {
  double longest = -1;
  for (const Node& node : nodes) {
    for (const Node::Wait& wait : node.waits) longest = std::max(longest, wait.age_ms);
    if (node.state == "starting") longest = std::max(longest, node.age_ms);
  }
  return longest;
}

int code_of(const std::vector<Node>& nodes, const LookOptions& options) {
  return options.longer >= 0 && longest_wait(nodes) > options.longer * 1e3 ? 3 : 0;
}

// The missing ranks of jobs: those that no worker on this machine has.
std::vector<Chain> find_missing(const std::vector<Node>& nodes) {
  struct Job {
    std::map<int64_t, const Node*> came;
    int64_t size = 0;
  };
  std::map<std::string, Job> jobs;
  for (const Node& node : nodes) {
    if (node.state != "starting" || node.world_size <= 0) continue;
    jobs[node.job].came[node.rank] = &node;
    jobs[node.job].size = node.world_size;
  }
  std::vector<Chain> chains;
  for (const auto& [name, job] : jobs) {
    std::string missing;
    for (int64_t rank = 0, count = 0; rank < job.size && count < 16; ++rank) {
      if (!job.came.contains(rank)) missing += (count++ == 0 ? "" : ", ") + std::to_string(rank);
    }
    if (missing.empty()) continue;
    const Node& first = *job.came.begin()->second;
    Chain chain;
    chain.end = "has not come";
    chain.culprit = "rank " + missing;
    chain.age_ms = first.age_ms;
    chain.steps.push_back({first.name, first.rank, "waits for its group of " + std::to_string(job.size), first.age_ms});
    chain.steps.push_back({"rank " + missing, -1, "has not come: not on this machine", -1});
    chains.push_back(std::move(chain));
  }
  return chains;
}

bool concerns(const Chain& chain, const std::string& name) {
  return std::any_of(chain.steps.begin(), chain.steps.end(),
                     [&name](const Chain::Step& step) { return step.worker == name; });
}

std::vector<Chain> explain(const std::vector<Node>& nodes, const std::string& name) {
  std::vector<Chain> chains = find_chains(nodes);
  for (Chain& chain : find_missing(nodes)) chains.push_back(std::move(chain));
  if (!name.empty()) std::erase_if(chains, [&name](const Chain& chain) { return !concerns(chain, name); });
  return chains;
}

void print_chains(const std::vector<Chain>& chains) {
  for (const Chain& chain : chains) {
    const char* before = "";
    for (const Chain::Step& step : chain.steps) {
      const std::string age = step.age_ms < 0 ? "" : " (" + describe_age(step.age_ms) + ")";
      std::printf("%s%s: %s%s\n", before, step.worker.c_str(), step.text.c_str(), age.c_str());
      before = "  -> ";
    }
  }
}

Json describe(const std::vector<Chain>& chains) {
  Json list = Json::array();
  for (const Chain& chain : chains) {
    Json steps = Json::array();
    for (const Chain::Step& step : chain.steps) {
      steps.push_back({{"worker", step.worker}, {"rank", step.rank}, {"text", step.text}, {"age_ms", nullptr}});
      if (step.age_ms >= 0) steps.back()["age_ms"] = step.age_ms;
    }
    list.push_back({{"steps", steps}, {"end", chain.end}, {"culprit", chain.culprit}, {"age_ms", nullptr}});
    if (chain.age_ms >= 0) list.back()["age_ms"] = chain.age_ms;
  }
  return list;
}

void print_silent(const std::vector<Node>& nodes) {
  for (const Node& node : nodes) {
    if (node.silent.empty()) continue;
    const std::string process = node.process == 0 ? "" : " (process " + std::to_string(node.process) + ")";
    std::printf("%s%s %s\n", node.name.c_str(), process.c_str(), node.silent.c_str());
  }
}

}  // namespace

std::vector<Node> look_here() {
  std::vector<LocalWorker> workers = find_workers();
  ask(workers, "look", kPatienceMs);
  std::vector<Node> nodes;
  for (const LocalWorker& worker : workers) nodes.push_back(make_node(worker));
  std::stable_sort(nodes.begin(), nodes.end(), [](const Node& one, const Node& other) {
    return std::tie(one.job, one.rank) < std::tie(other.job, other.rank);
  });
  return nodes;
}

std::vector<Node> look_at_groups() {
  std::vector<LocalWorker> workers = find_workers();
  ask(workers, "look", kPatienceMs);
  std::map<std::string, Node> here;
  for (const LocalWorker& worker : workers) here[worker.id] = make_node(worker);
  std::vector<Node> nodes;
  std::map<std::string, bool> covered;
  int group = 0;
  for (const LocalWorker& worker : workers) {
    if (covered.contains(worker.id) || here[worker.id].state != "started") continue;
    std::vector<LocalWorker> one{worker};
    ask(one, "group " + std::to_string(kGroupMs), kGroupMs + kTalkMs);
    if (!one.empty() && one.front().answer.is_object()) add_group(one.front().answer, ++group, here, nodes, covered);
  }
  for (const auto& [id, node] : here) {
    if (covered.contains(id)) continue;
    nodes.push_back(node);
    nodes.back().group = ++group;
  }
  std::stable_sort(nodes.begin(), nodes.end(), [](const Node& one, const Node& other) {
    return std::tie(one.group, one.rank) < std::tie(other.group, other.rank);
  });
  return nodes;
}

int print_ps(const LookOptions& options) {
  const std::vector<Node> nodes = look_here();
  if (options.as_json) {
    Json list = Json::array();
    for (const Node& node : nodes) list.push_back(describe(node));
    std::printf("%s\n", Json{{"workers", list}}.dump(2, ' ', false, Json::error_handler_t::replace).c_str());
  } else if (nodes.empty()) {
    std::printf("no workers of this user run on this machine\n");
  } else {
    print_nodes(nodes);
  }
  return code_of(nodes, options);
}

int print_why(const LookOptions& options) {
  const std::vector<Node> nodes = look_at_groups();
  const auto is_named = [&options](const Node& node) { return node.name == options.name; };
  if (!options.name.empty() && std::none_of(nodes.begin(), nodes.end(), is_named)) {
    std::fprintf(stderr, "distag why: there is no worker \"%s\" in a group that has a member of this user here\n",
                 printable(options.name).c_str());
    return 1;
  }
  const std::vector<Chain> chains = explain(nodes, options.name);
  if (options.as_json) {
    Json list = Json::array();
    for (const Node& node : nodes) list.push_back(describe(node));
    const Json all{{"workers", list}, {"chains", describe(chains)}};
    std::printf("%s\n", all.dump(2, ' ', false, Json::error_handler_t::replace).c_str());
    return code_of(nodes, options);
  }
  print_chains(chains);
  print_silent(nodes);
  if (chains.empty()) std::printf("nobody waits: %zu workers\n", nodes.size());
  return code_of(nodes, options);
}

void print_all() {
  const std::vector<Node> nodes = look_at_groups();
  print_nodes(nodes);
  std::printf("\n");
  print_chains(explain(nodes, ""));
}

}  // namespace distag_tool
