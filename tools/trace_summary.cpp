#include "trace_summary.h"

#include <algorithm>
#include <limits>
#include <set>
#include <unordered_map>

namespace distag_tool {
namespace {

using nlohmann::json;

constexpr size_t kMostFlows = 1'000'000;  // for the comparison of clocks
constexpr size_t kMostSpans = 1'000'000;  // open at a time
constexpr size_t kMostKinds = 10'000;     // of calls

struct OpenSpan {
  double begin;
  std::string peer;
  bool has_failed;
};

class Summarizer {
 public:
  explicit Summarizer(TraceSummary& summary) : summary_(summary) {}

  void take(const json& event) {
    const std::string kind = text_in(event, "ph");
    if (kind == "M") return;
    const double when = number_in(event, "ts");
    ++summary_.events;
    summary_.begin = summary_.events == 1 ? when : std::min(summary_.begin, when);
    summary_.end = summary_.events == 1 ? when : std::max(summary_.end, when);
    if (kind == "X") take_slice(event, when);
    if (kind == "b" || kind == "e") take_end_of_span(event, kind == "b", when);
    if (kind == "C" && text_in(event, "name") == "dropped events" && event.contains("args")) {
      const double dropped = number_in(event["args"], "dropped");
      if (dropped > 0 && dropped < 1e18) summary_.dropped = static_cast<uint64_t>(dropped);
    }
  }

  void finish() {
    summary_.runs = joined(std::move(runs_));
    summary_.waits = without(joined(std::move(waits_)), summary_.runs);
  }

 private:
  void take_slice(const json& event, double when) {
    const double length = number_in(event, "dur");
    if (!(length >= 0 && length < 1e15)) return;
    summary_.end = std::max(summary_.end, when + length);
    const std::string category = text_in(event, "cat");
    if (category == "run" || category == "pass") keep(runs_, when, when + length);
  }

  void take_end_of_span(const json& event, bool is_begin, double when) {
    const std::string category = text_in(event, "cat");
    if (category != "call" && category != "collective") return;
    const std::string key = category + "/" + text_in(event, "id");
    if (is_begin) {
      if (open_.size() == kMostSpans) return;
      const auto told = event.find("args");
      const bool has_told = told != event.end() && told->is_object();
      open_[key] = {when, has_told ? printable(text_in(*told, "peer")) : "", has_told && told->contains("failed")};
      return;
    }
    const auto found = open_.find(key);
    if (found == open_.end()) return;
    const OpenSpan span = std::move(found->second);
    open_.erase(found);
    if (when < span.begin) return;
    keep(waits_, span.begin, when);
    const std::pair name{printable(text_in(event, "name")), category == "call" ? span.peer : "(collective)"};
    if (summary_.calls.size() == kMostKinds && !summary_.calls.contains(name)) return;
    CallSummary& call = summary_.calls[name];
    ++call.count;
    call.failed += span.has_failed ? 1 : 0;
    call.total += when - span.begin;
    call.longest = std::max(call.longest, when - span.begin);
  }

  static void keep(Intervals& intervals, double begin, double end) { intervals.emplace_back(begin, end); }

  TraceSummary& summary_;
  Intervals runs_;
  Intervals waits_;
  std::unordered_map<std::string, OpenSpan> open_;
};

// The shortest time from the start of a message at one worker to its end at another, each by its own clock.
using Quickest = std::map<std::pair<size_t, size_t>, double>;

Quickest find_quickest(const std::vector<TraceSummary>& workers) {
  std::unordered_map<std::string, std::pair<size_t, double>> sent;
  for (size_t i = 0; i < workers.size(); ++i) {
    read_trace(workers[i].file, [&](json& event) {
      if (text_in(event, "ph") == "s" && sent.size() < kMostFlows) {
        sent.emplace(text_in(event, "id"), std::pair{i, number_in(event, "ts")});
      }
    });
  }
  Quickest quickest;
  for (size_t i = 0; i < workers.size(); ++i) {
    read_trace(workers[i].file, [&](json& event) {
      if (text_in(event, "ph") != "f") return;
      const auto found = sent.find(text_in(event, "id"));
      if (found == sent.end() || found->second.first == i) return;
      const double took = number_in(event, "ts") - found->second.second;
      const auto [known, is_new] = quickest.try_emplace({found->second.first, i}, took);
      if (!is_new) known->second = std::min(known->second, took);
    });
  }
  return quickest;
}

}  // namespace

Intervals joined(Intervals intervals) {
  std::sort(intervals.begin(), intervals.end());
  Intervals result;
  for (const auto& [begin, end] : intervals) {
    if (!result.empty() && begin <= result.back().second) {
      result.back().second = std::max(result.back().second, end);
    } else {
      result.emplace_back(begin, end);
    }
  }
  return result;
}

Intervals without(const Intervals& from, const Intervals& taken) {
  Intervals result;
  size_t next = 0;
  for (auto [begin, end] : from) {
    while (next < taken.size() && taken[next].second <= begin) ++next;
    for (size_t i = next; i < taken.size() && taken[i].first < end; ++i) {
      if (taken[i].first > begin) result.emplace_back(begin, taken[i].first);
      begin = std::max(begin, taken[i].second);
    }
    if (begin < end) result.emplace_back(begin, end);
  }
  return result;
}

double sum_of(const Intervals& intervals) {
  double sum = 0;
  for (const auto& [begin, end] : intervals) sum += end - begin;
  return sum;
}

TraceSummary summarize(const TraceFile& file) {
  TraceSummary summary;
  summary.file = file;
  Summarizer summarizer(summary);
  summary.wrong = read_trace(file, [&summarizer](json& event) { summarizer.take(event); });
  summarizer.finish();
  return summary;
}

void align_clocks(std::vector<TraceSummary>& workers) {
  std::set<std::string> hosts;
  for (const TraceSummary& worker : workers) hosts.insert(worker.file.host);
  if (hosts.size() < 2) return;
  const Quickest quickest = find_quickest(workers);
  const double unknown = std::numeric_limits<double>::infinity();
  for (size_t i = 1; i < workers.size(); ++i) workers[i].bound = unknown;
  // Shortest paths by the sum of their bounds: there are few workers, and each round settles at least one.
  for (size_t round = 0; round < workers.size(); ++round) {
    bool has_changed = false;
    for (size_t from = 0; from < workers.size(); ++from) {
      for (size_t to = 1; to < workers.size(); ++to) {
        if (from == to || workers[from].bound == unknown) continue;
        double shift = 0;
        double bound = 0;
        if (workers[from].file.host != workers[to].file.host) {
          const auto there = quickest.find({from, to});
          const auto back = quickest.find({to, from});
          if (there == quickest.end() || back == quickest.end()) continue;
          shift = (back->second - there->second) / 2;
          bound = std::max(0.0, (there->second + back->second) / 2);
        }
        if (workers[from].bound + bound >= workers[to].bound) continue;
        workers[to].bound = workers[from].bound + bound;
        workers[to].offset = workers[from].offset + shift;
        has_changed = true;
      }
    }
    if (!has_changed) break;
  }
  for (TraceSummary& worker : workers) {
    if (worker.bound == unknown) worker.bound = -1;
  }
}

}  // namespace distag_tool
