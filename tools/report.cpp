#include "report.h"

#include <algorithm>
#include <cstdio>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "files.h"
#include "table.h"
#include "trace_summary.h"

namespace distag_tool {
namespace {

using nlohmann::json;

constexpr size_t kMostCalls = 40;    // in the table
constexpr double kPageWidth = 1000;  // of the timeline
constexpr double kRowHeight = 28;

struct Report {
  std::vector<TraceSummary> workers;
  std::vector<std::string> notes;
};

std::string format(const char* text, double number) {
  char buffer[64];
  std::snprintf(buffer, sizeof buffer, text, number);
  return buffer;
}

std::string share(double part, double whole) { return whole <= 0 ? "-" : format("%.1f%%", 100 * part / whole); }

std::string clock_text(const TraceSummary& worker) {
  if (worker.bound < 0) return "unknown";
  return worker.bound == 0 && worker.offset == 0 ? "shared" : "within " + format("%.0f us", worker.bound);
}

// Notes missing ranks, and ranks with several files.
void note_ranks(Report& report) {
  std::map<int64_t, size_t> ranks;
  for (const TraceSummary& worker : report.workers) ++ranks[worker.file.rank];
  for (const auto& [rank, count] : ranks) {
    if (count > 1) {
      report.notes.push_back("rank " + std::to_string(rank) + " has " + std::to_string(count) +
                             " traces here: it was started again, or there are several runs in the folder");
    }
  }
  std::string missing;
  for (int64_t rank = 0, listed = 0; rank < ranks.rbegin()->first && listed < 16; ++rank) {
    if (!ranks.contains(rank)) missing += (listed++ == 0 ? "" : ", ") + std::to_string(rank);
  }
  if (!missing.empty()) report.notes.push_back("no trace of rank " + missing);
}

Report make_report(const std::string& folder) {
  Report report;
  for (const std::string& path : find_traces(folder)) {
    try {
      report.workers.push_back(summarize(open_trace(path)));
    } catch (const std::exception& error) {
      report.notes.push_back("\"" + printable(path) + "\" " + error.what());
    }
  }
  std::stable_sort(report.workers.begin(), report.workers.end(),
                   [](const auto& one, const auto& other) { return one.file.rank < other.file.rank; });
  if (report.workers.empty()) return report;
  align_clocks(report.workers);
  for (const TraceSummary& worker : report.workers) {
    if (!worker.wrong.empty()) report.notes.push_back("\"" + printable(worker.file.path) + "\" " + worker.wrong);
    if (worker.bound < 0) {
      report.notes.push_back("the clock of \"" + worker.file.worker +
                             "\" could not be compared: no messages both ways to workers of other machines");
    }
  }
  note_ranks(report);
  return report;
}

Table workers_table(const Report& report) {
  Table table{{"worker", "rank", "seconds", "runs", "waits", "other", "events", "dropped", "clock"}};
  for (const TraceSummary& worker : report.workers) {
    const double whole = worker.end - worker.begin;
    const double runs = sum_of(worker.runs);
    const double waits = sum_of(worker.waits);
    table.push_back({worker.file.worker, std::to_string(worker.file.rank), format("%.3f", whole / 1e6),
                     share(runs, whole), share(waits, whole), share(std::max(0.0, whole - runs - waits), whole),
                     std::to_string(worker.events), std::to_string(worker.dropped), clock_text(worker)});
  }
  return table;
}

// The calls that took longest in sum.
Table calls_table(const Report& report) {
  struct Row {
    const TraceSummary* worker;
    const std::pair<std::string, std::string>* name;
    const CallSummary* call;
  };
  std::vector<Row> rows;
  for (const TraceSummary& worker : report.workers) {
    for (const auto& [name, call] : worker.calls) rows.push_back({&worker, &name, &call});
  }
  std::stable_sort(rows.begin(), rows.end(),
                   [](const Row& one, const Row& other) { return one.call->total > other.call->total; });
  Table table{{"caller", "function", "callee", "calls", "failed", "total ms", "mean ms", "longest ms"}};
  for (const Row& row : rows) {
    if (table.size() > kMostCalls) break;
    const CallSummary& call = *row.call;
    table.push_back({row.worker->file.worker, row.name->first, row.name->second, std::to_string(call.count),
                     std::to_string(call.failed), format("%.3f", call.total / 1e3),
                     format("%.3f", call.total / 1e3 / static_cast<double>(call.count)),
                     format("%.3f", call.longest / 1e3)});
  }
  return table;
}

// ---- one file of all traces ----

// Tracks of two files get their index here as a name: ranks of two runs may be the same.
void write_merged(const Report& report, const std::string& path) {
  OutFile file(path);
  file.write("[\n");
  for (size_t i = 0; i < report.workers.size(); ++i) {
    const TraceSummary& worker = report.workers[i];
    read_trace(worker.file, [&](json& event) {
      event["pid"] = i + 1;
      const std::string kind = text_in(event, "ph");
      if (kind != "M") event["ts"] = number_in(event, "ts") + worker.offset;
      if (kind == "b" || kind == "e") event["id"] = std::to_string(i + 1) + "/" + text_in(event, "id");
      if (text_in(event, "name") == "distag_worker" && kind == "M" && event["args"].is_object()) {
        event["args"]["clock_offset_us"] = worker.offset;
        if (worker.bound >= 0) event["args"]["clock_error_us"] = worker.bound;
      }
      file.write(event.dump(-1, ' ', false, json::error_handler_t::replace) + ",\n");
    });
  }
  file.write("{\"ph\":\"M\",\"name\":\"merged\",\"pid\":1,\"args\":{\"traces\":" +
             std::to_string(report.workers.size()) + "}}\n]\n");
}

// ---- the page ----

std::string html(std::string_view text) {
  std::string clean;
  for (const char c : text) {
    if (c == '&') {
      clean += "&amp;";
    } else if (c == '<') {
      clean += "&lt;";
    } else if (c == '>') {
      clean += "&gt;";
    } else if (c == '"') {
      clean += "&quot;";
    } else if (c == '\'') {
      clean += "&#39;";
    } else {
      clean += c;
    }
  }
  return clean;
}

std::string html(const Table& table) {
  std::string text = "<table>\n";
  for (const auto& row : table) {
    text += "<tr>";
    for (const std::string& cell : row) text += &row == &table.front() ? "<th>" + html(cell) : "<td>" + html(cell);
    text += "\n";
  }
  return text + "</table>\n";
}

// At most one rectangle for each unit of the width.
std::string bars(const Intervals& intervals, double begin, double unit, double y, const char* kind) {
  std::string text;
  double drawn = 0;
  for (const auto& [from, to] : intervals) {
    const double x = std::max((from - begin) / unit, drawn);
    const double end = std::min(kPageWidth, std::max((to - begin) / unit, x + 1));
    if (end <= x) continue;
    if ((to - begin) / unit <= drawn) continue;
    text += "<rect class=" + std::string(kind) + format(" x=%.1f", x) + format(" y=%.0f", y) +
            format(" width=%.1f", end - x) + " height=16 />\n";
    drawn = end;
  }
  return text;
}

std::string timeline(const Report& report) {
  double begin = 0;
  double end = 0;
  for (const TraceSummary& worker : report.workers) {
    const bool is_first = &worker == &report.workers.front();
    begin = is_first ? worker.begin + worker.offset : std::min(begin, worker.begin + worker.offset);
    end = is_first ? worker.end + worker.offset : std::max(end, worker.end + worker.offset);
  }
  const double unit = std::max(end - begin, 1.0) / kPageWidth;
  const double height = kRowHeight * static_cast<double>(report.workers.size());
  std::string text = format("<svg role=img viewBox=\"0 0 1000 %.0f\">\n<title>", height) +
                     "what each worker does over " + format("%.3f s</title>\n", (end - begin) / 1e6);
  double y = 0;
  for (const TraceSummary& worker : report.workers) {
    text += format("<text x=0 y=%.0f>", y + 9) + html(worker.file.worker) + "</text>\n";
    text += bars(worker.waits, begin - worker.offset, unit, y + 11, "waits");
    text += bars(worker.runs, begin - worker.offset, unit, y + 11, "runs");
    y += kRowHeight;
  }
  return text + "</svg>\n";
}

constexpr const char* kPageHead =
    "<!DOCTYPE html>\n<html lang=en>\n<meta charset=utf-8>\n"
    "<meta http-equiv=Content-Security-Policy content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
    "<title>distag report</title>\n<style>\n:root{color-scheme:light dark}\nbody{font:14px sans-serif;margin:2em}\n"
    "table{border-collapse:collapse}\nth,td{text-align:left;padding:2px 12px 2px 0}\n"
    "svg{width:100%;max-width:1200px}\ntext{font:9px sans-serif;fill:CanvasText}\n"
    ".runs{fill:#2a7f3f}\n.waits{fill:#d98a1f}\n</style>\n<h1>distag report</h1>\n";

void write_page(const Report& report, const std::string& path) {
  std::string text = kPageHead;
  text +=
      "<p>Green: functions and backward passes run. Orange: calls and collectives are under way and nothing "
      "runs.</p>\n";
  text += timeline(report) + "<h2>Workers</h2>\n" + html(workers_table(report)) + "<h2>Calls</h2>\n" +
          html(calls_table(report));
  if (!report.notes.empty()) text += "<h2>Notes</h2>\n<ul>\n";
  for (const std::string& note : report.notes) text += "<li>" + html(note) + "\n";
  text += report.notes.empty() ? "</html>\n" : "</ul>\n</html>\n";
  OutFile(path).write(text);
}

}  // namespace

int print_report(const ReportOptions& options) {
  const Report report = make_report(options.folder);
  for (const std::string& note : report.notes) std::fprintf(stderr, "distag report: %s\n", note.c_str());
  if (report.workers.empty()) {
    std::fprintf(stderr, "distag report: \"%s\" has no trace: run the workers with DISTAG_TRACE=FOLDER\n",
                 printable(options.folder).c_str());
    return 1;
  }
  print_table(workers_table(report));
  std::printf("\n");
  print_table(calls_table(report));
  std::printf("\n");
  if (!options.merged.empty()) write_merged(report, options.merged);
  if (!options.page.empty()) write_page(report, options.page);
  return 0;
}

}  // namespace distag_tool
