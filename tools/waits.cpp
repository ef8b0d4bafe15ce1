#include "waits.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <set>

#include "trace_file.h"

namespace distag_tool {
namespace {

using nlohmann::json;

constexpr size_t kMostChains = 256;
constexpr size_t kMostNames = 8;

const json& list_in(const json& object, const char* name) {
  static const json kNothing = json::array();
  const auto found = object.find(name);
  return found != object.end() && found->is_array() ? *found : kNothing;
}

bool is_true(const json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_boolean() && found->get<bool>();
}

double age_in(const json& object) {
  const auto found = object.find("age_ms");
  return found != object.end() && found->is_number() ? found->get<double>() : -1;
}

std::string clean(const json& object, const char* name) { return printable(text_in(object, name)); }

int64_t whole(const json& object, const char* name, double least) {
  return static_cast<int64_t>(std::clamp(number_in(object, name), least, 1e15));
}

Node::Call read_call(const json& told) {
  Node::Call call;
  call.is_made = is_true(told, "made_here");
  call.function = clean(told, "function");
  call.peer = clean(told, "peer");
  call.rank = whole(told, "rank", -1);
  call.state = clean(told, "state");
  call.within = clean(told, "within");
  call.age_ms = age_in(told);
  return call;
}

std::vector<int64_t> read_ranks(const json& told) {
  std::vector<int64_t> ranks;
  for (const json& rank : list_in(told, "ranks")) {
    if (rank.is_number_integer()) ranks.push_back(rank.get<int64_t>());
  }
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

// A pass reports its waits as texts: `worker "w1" (rank 1)`, `the gradient of ... call "f" on "w1"`.
void read_names(const json& told, Node::Wait& wait) {
  for (const json& text : list_in(told, "texts")) {
    if (!text.is_string()) continue;
    const std::string line = text.get<std::string>();
    for (const char* before : {"worker \"", " on \""}) {
      const size_t begin = line.find(before);
      if (begin == std::string::npos) continue;
      const size_t from = begin + std::string_view(before).size();
      const std::string name = printable(line.substr(from, line.find('"', from) - from));
      if (std::find(wait.names.begin(), wait.names.end(), name) == wait.names.end()) wait.names.push_back(name);
    }
  }
}

Node::Wait read_wait(const json& told) {
  Node::Wait wait;
  wait.what = clean(told, "what");
  wait.age_ms = age_in(told);
  wait.is_gathering = text_in(told, "kind") == "gathering";
  wait.is_pass = text_in(told, "kind") == "pass";
  wait.ranks = read_ranks(told);
  if (wait.is_pass) read_names(told, wait);
  return wait;
}

std::string in_quotes(const std::string& text) { return "\"" + text + "\""; }

std::string aged(const std::string& text, double age_ms) {
  return age_ms < 0 ? text : text + " for " + describe_age(age_ms);
}

// A gathering of other workers that meet here, not a wait of the worker's own.
bool is_meeting(const Node::Wait& wait) { return wait.is_gathering && wait.call.empty(); }

// Follows waits from worker to worker.
class Search {
 public:
  explicit Search(const std::vector<Node>& nodes) : nodes_(nodes) {
    for (size_t i = 0; i < nodes.size(); ++i) {
      by_rank_[{nodes[i].group, nodes[i].rank}] = i;
      by_name_[{nodes[i].group, nodes[i].name}] = i;
    }
  }

  std::vector<Chain> run();

 private:
  struct Place {
    size_t node;
    size_t wait;
    auto operator<=>(const Place&) const = default;
  };

  Chain follow(Place from);
  // The worker that the wait leads to; false: the chain ends here.
  bool step(Chain& chain, const Place& at, Place& next);
  size_t find_target(const Node& node, const Node::Wait& wait) const;
  bool go_on(Chain& chain, size_t target, const Node::Wait& wait, const Node::Call* running, Place& next) const;
  bool find_wait(size_t node, const std::string& within, double age_ms, Place& found) const;
  bool end_at(Chain& chain, const Node& node, const char* end, const std::string& text, double age_ms) const;
  bool explain_call(Chain& chain, size_t caller, size_t target, const Node::Wait& wait, Place& next) const;
  const Node::Call* find_served(const Node& caller, const Node& target, const Node::Wait& wait) const;
  static const Node::Call* find_running(const Node& node);

  const std::vector<Node>& nodes_;
  std::map<std::pair<int, int64_t>, size_t> by_rank_;
  std::map<std::pair<int, std::string>, size_t> by_name_;
  std::set<Place> seen_;  // waits that others lead to
};

const Node::Call* Search::find_running(const Node& node) {
  for (const Node::Call& call : node.calls) {
    if (!call.is_made && call.state == "running") return &call;
  }
  return nullptr;
}

// The call with the same function and caller whose age is most similar.
const Node::Call* Search::find_served(const Node& caller, const Node& target, const Node::Wait& wait) const {
  const Node::Call* best = nullptr;
  for (const Node::Call& call : target.calls) {
    if (call.is_made || call.function != wait.call || call.rank != caller.rank) continue;
    if (best == nullptr || std::abs(call.age_ms - wait.age_ms) < std::abs(best->age_ms - wait.age_ms)) best = &call;
  }
  return best;
}

bool Search::end_at(Chain& chain, const Node& node, const char* end, const std::string& text, double age_ms) const {
  chain.steps.push_back({node.name, node.rank, text, age_ms});
  chain.end = end;
  chain.culprit = node.name;
  return false;
}

// Finds the wait that holds up a function which began `age_ms` ago: a wait made by that function, if that is known,
// else a wait that began after it.
bool Search::find_wait(size_t node, const std::string& within, double age_ms, Place& found) const {
  const std::vector<Node::Wait>& waits = nodes_[node].waits;
  for (size_t i = 0; i < waits.size(); ++i) {
    if (!within.empty() && waits[i].within == within) return found = {node, i}, true;
  }
  for (size_t i = 0; i < waits.size(); ++i) {
    const bool is_of_nobody = waits[i].within.empty();
    const bool is_later = age_ms < 0 || waits[i].age_ms < 0 || waits[i].age_ms <= age_ms;
    if (is_of_nobody && is_later && !is_meeting(waits[i])) return found = {node, i}, true;
  }
  return false;
}

bool Search::explain_call(Chain& chain, size_t caller, size_t target, const Node::Wait& wait, Place& next) const {
  const Node& node = nodes_[target];
  const Node::Call* const served = find_served(nodes_[caller], node, wait);
  if (served == nullptr) {
    const bool is_cut = node.calls_open > static_cast<int64_t>(node.calls.size());
    return end_at(chain, node, "under way",
                  is_cut ? "has so many calls open that it does not tell of this one"
                         : "has no such call now: it, or its answer, is under way",
                  -1);
  }
  if (served->state == "waiting" && node.is_pumped && !node.is_in_task) {
    return end_at(chain, node, "not polled",
                  "is not polled: " + std::to_string(node.tasks_waiting) + " tasks wait for its host to call poll",
                  served->age_ms);
  }
  const Node::Call* running = served;
  if (served->state == "waiting") {
    running = find_running(node);
    if (running == nullptr) return end_at(chain, node, "under way", "has no thread free for it", served->age_ms);
  }
  if (find_wait(target, running->function, running->age_ms, next)) return true;
  if (served->state == "deferred") {
    return end_at(chain, node, "runs", in_quotes(served->function) + " has returned there and owes the answer",
                  served->age_ms);
  }
  return end_at(chain, node, "runs",
                (served == running ? "runs " : "has no thread free: it runs ") + in_quotes(running->function),
                running->age_ms);
}

// The first silent one, else the first that has not come.
size_t Search::find_target(const Node& node, const Node::Wait& wait) const {
  std::vector<size_t> targets;
  for (const int64_t rank : wait.ranks) {
    const auto found = by_rank_.find({node.group, rank});
    if (found != by_rank_.end()) targets.push_back(found->second);
  }
  for (const std::string& name : wait.names) {
    const auto found = by_name_.find({node.group, name});
    if (found != by_name_.end()) targets.push_back(found->second);
  }
  for (const size_t target : targets) {
    if (!nodes_[target].silent.empty()) return target;
  }
  return targets.empty() ? nodes_.size() : targets.front();
}

// Continues at a member that others wait for in a collective or a pass.
bool Search::go_on(Chain& chain, size_t target, const Node::Wait& wait, const Node::Call* running, Place& next) const {
  const Node& node = nodes_[target];
  const std::vector<Node::Wait>& waits = node.waits;
  for (size_t i = 0; i < waits.size(); ++i) {
    const bool is_other = wait.is_pass ? waits[i].is_pass : !is_meeting(waits[i]);
    if (is_other) return next = {target, i}, true;
  }
  if (running != nullptr) return end_at(chain, node, "runs", "runs " + in_quotes(running->function), running->age_ms);
  if (node.is_pumped && !node.is_in_task && node.tasks_waiting > 0) {
    return end_at(chain, node, "not polled",
                  "is not polled: " + std::to_string(node.tasks_waiting) + " tasks wait for its host to call poll", -1);
  }
  return end_at(
      chain, node, "has not come",
      wait.is_pass ? "computes, or waits for what is under way" : "has not come to it: its program does something else",
      -1);
}

bool Search::step(Chain& chain, const Place& at, Place& next) {
  const Node& node = nodes_[at.node];
  const Node::Wait& wait = node.waits[at.wait];
  chain.steps.push_back({node.name, node.rank, wait.what, wait.age_ms});
  chain.age_ms = std::max(chain.age_ms, wait.age_ms);
  const size_t target = find_target(node, wait);
  if (target == nodes_.size()) {
    if (wait.is_pass) return end_at(chain, node, "runs", "runs tasks of that pass", -1);
    chain.end = "gone";
    chain.culprit = wait.ranks.empty() ? "" : "rank " + std::to_string(wait.ranks.front());
    chain.steps.push_back({chain.culprit, wait.ranks.empty() ? -1 : wait.ranks.front(), "is not in the group", -1});
    return false;
  }
  const Node& other = nodes_[target];
  if (!other.silent.empty()) return end_at(chain, other, "silent", other.silent, -1);
  if (!wait.call.empty()) {
    // All gather at the lowest rank: so it knows the missing ranks.
    for (size_t i = 0; wait.is_gathering && i < other.waits.size(); ++i) {
      const std::vector<int64_t>& missing = other.waits[i].ranks;
      const bool is_that = is_meeting(other.waits[i]) && !std::binary_search(missing.begin(), missing.end(), node.rank);
      if (is_that) return next = {target, i}, true;
    }
    return explain_call(chain, at.node, target, wait, next);
  }
  return go_on(chain, target, wait, find_running(other), next);
}

Chain Search::follow(Place from) {
  Chain chain;
  chain.node = from.node;
  std::vector<Place> way;
  for (Place at = from;;) {
    const auto before = std::find(way.begin(), way.end(), at);
    if (before != way.end()) {
      chain.end = "cycle";
      std::set<std::string> names;
      for (auto place = before; place != way.end(); ++place) names.insert(nodes_[place->node].name);
      for (const std::string& name : names) chain.culprit += (chain.culprit.empty() ? "" : ", ") + name;
      chain.steps.push_back({nodes_[at.node].name, nodes_[at.node].rank, "which closes a circle", -1});
      return chain;
    }
    if (!way.empty()) seen_.insert(at);
    way.push_back(at);
    Place next{};
    if (!step(chain, at, next)) return chain;
    at = next;
  }
}

std::vector<Chain> Search::run() {
  std::vector<std::pair<Place, Chain>> all;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    for (size_t j = 0; j < nodes_[i].waits.size() && all.size() < 16 * kMostChains; ++j) {
      const Node::Wait& wait = nodes_[i].waits[j];
      if (!is_meeting(wait)) all.push_back({{i, j}, follow({i, j})});
    }
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const auto& one, const auto& other) { return one.second.age_ms > other.second.age_ms; });
  std::vector<Chain> result;
  std::set<std::string> circles;
  for (auto& [place, chain] : all) {
    const bool is_circle = chain.end == "cycle";
    if (seen_.contains(place) && !(is_circle && circles.insert(chain.culprit).second)) continue;
    if (is_circle) circles.insert(chain.culprit);
    if (result.size() < kMostChains) result.push_back(std::move(chain));
  }
  return result;
}

}  // namespace

std::string describe_age(double ms) {
  char text[64];
  if (ms < 1000) {
    std::snprintf(text, sizeof text, "%.0f ms", ms);
  } else if (ms < 120e3) {
    std::snprintf(text, sizeof text, "%.1f s", ms / 1e3);
  } else {
    std::snprintf(text, sizeof text, "%.0f min", ms / 60e3);
  }
  return text;
}

Node read_node(const json& look) {
  Node node;
  const auto found = look.find("worker");
  const json worker = found != look.end() && found->is_object() ? *found : json::object();
  node.name = clean(worker, "name");
  node.rank = whole(worker, "rank", -1);
  node.id = clean(worker, "incarnation");
  if (node.id.starts_with("0x")) node.id.erase(0, 2);
  node.job = clean(worker, "job");
  node.state = clean(worker, "state");
  node.host = clean(worker, "host");
  node.process = whole(worker, "process", 0);
  node.world_size = whole(worker, "world_size", -1);
  node.tasks_waiting = whole(worker, "tasks_waiting", 0);
  node.calls_open = whole(look, "calls_open", 0);
  node.age_ms = number_in(worker, "age_ms");
  node.is_pumped = text_in(worker, "executor") == "host";
  node.is_in_task = is_true(worker, "in_task");
  for (const json& told : list_in(look, "calls")) {
    if (!told.is_object()) continue;
    Node::Call call = read_call(told);
    if (call.is_made) {
      Node::Wait wait;
      wait.is_gathering = call.function == "distag.all_gather";
      wait.call = call.function;
      wait.what = wait.is_gathering ? "all_gather" : "call " + in_quotes(call.function) + " on " + call.peer;
      wait.age_ms = call.age_ms;
      wait.within = call.within;
      wait.ranks = {call.rank};
      node.waits.push_back(std::move(wait));
    }
    node.calls.push_back(std::move(call));
  }
  for (const json& told : list_in(look, "waits")) {
    if (told.is_object()) node.waits.push_back(read_wait(told));
  }
  return node;
}

std::string describe_state(const Node& node) {
  if (!node.silent.empty()) return node.silent;
  for (const Node::Wait& wait : node.waits) {
    if (is_meeting(wait)) continue;
    std::string names;
    for (size_t i = 0; wait.call.empty() && i < std::min(wait.ranks.size(), kMostNames); ++i) {
      names += (i == 0 ? " with rank " : ", ") + std::to_string(wait.ranks[i]);
    }
    for (size_t i = 0; i < std::min(wait.names.size(), kMostNames); ++i)
      names += (i == 0 ? ": " : ", ") + wait.names[i];
    return aged(wait.what + names, wait.age_ms);
  }
  for (const Node::Call& call : node.calls) {
    if (call.is_made) continue;
    if (call.state == "running") return aged("runs " + in_quotes(call.function), call.age_ms);
    if (call.state == "waiting" && node.is_pumped && !node.is_in_task) return aged("to be polled", call.age_ms);
    if (call.state == "deferred") return aged("owes the answer of " + in_quotes(call.function), call.age_ms);
  }
  return node.state == "starting" ? "its group" : "";
}

std::vector<Chain> find_chains(const std::vector<Node>& nodes) { return Search(nodes).run(); }

}  // namespace distag_tool
