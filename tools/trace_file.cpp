#include "trace_file.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <stdexcept>

#include "files.h"

namespace distag_tool {
namespace {

using nlohmann::json;

constexpr std::string_view kEnding = ".trace.json";
constexpr size_t kLongestName = 128;
constexpr int kHeadLines = 16;

enum class Line { kEvent, kFrame, kOther };

// Parses an event on a line of its own, as distag writes them.
Line parse_line(std::string line, json& event) {
  while (!line.empty() && (line.back() == ',' || line.back() == '\r' || line.back() == ' ')) line.pop_back();
  if (line.empty() || line == "[" || line == "]") return Line::kFrame;
  event = json::parse(line, nullptr, false);
  if (!event.is_object() || text_in(event, "ph").size() != 1) return Line::kOther;
  if (text_in(event, "ph") == "M") return Line::kEvent;
  const auto when = event.find("ts");
  return when != event.end() && when->is_number() && std::isfinite(when->get<double>()) ? Line::kEvent : Line::kOther;
}

}  // namespace

std::string text_in(const json& event, const char* name) {
  const auto found = event.find(name);
  return found != event.end() && found->is_string() ? found->get<std::string>() : std::string();
}

double number_in(const json& event, const char* name) {
  const auto found = event.find(name);
  return found != event.end() && found->is_number() ? found->get<double>() : 0;
}

std::string printable(std::string_view text) {
  std::string clean(text.substr(0, kLongestName));
  for (char& c : clean) {
    if (static_cast<unsigned char>(c) < ' ' || c == '\x7f') c = '?';
  }
  return clean;
}

std::vector<std::string> find_traces(const std::string& folder) {
  std::vector<std::string> paths;
  if (!std::filesystem::is_directory(folder)) throw std::runtime_error("\"" + folder + "\" is no folder");
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name.size() > kEnding.size() && name.ends_with(kEnding)) paths.push_back(entry.path().string());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

TraceFile open_trace(const std::string& path) {
  if (!std::filesystem::is_regular_file(path)) throw std::runtime_error("is no file");
  FileLines lines(path);
  if (!lines.is_open()) throw std::runtime_error("cannot be read");
  std::string line;
  if (!lines.next(line)) throw std::runtime_error("is empty: its worker ended before it wrote anything");
  TraceFile trace{path, "", -1, ""};
  for (int i = 0; i < kHeadLines && lines.next(line); ++i) {
    json event;
    if (parse_line(line, event) != Line::kEvent || text_in(event, "name") != "distag_worker") continue;
    const auto told = event.find("args");
    if (told == event.end() || !told->is_object()) continue;
    trace.worker = printable(text_in(*told, "name"));
    trace.host = printable(text_in(*told, "host"));
    trace.rank = static_cast<int64_t>(std::clamp(number_in(*told, "rank"), -1.0, 65535.0));
    if (!trace.worker.empty()) return trace;
  }
  throw std::runtime_error("is no trace of distag: it does not say which worker wrote it");
}

std::string read_trace(const TraceFile& trace, const TakeEvent& take) {
  FileLines lines(trace.path);
  uint64_t others = 0;
  bool was_other = false;
  bool is_closed = false;
  for (std::string line; lines.next(line);) {
    json event;
    const Line kind = parse_line(line, event);
    was_other = kind == Line::kOther;
    is_closed = line == "]";
    if (was_other) ++others;
    if (kind == Line::kEvent) take(event);
  }
  std::string wrong;
  if (!is_closed) wrong = "was not closed: its worker was killed, or still runs";
  if (was_other) wrong += ", and ends within an event";
  if (others > (was_other ? 1u : 0u)) {
    wrong += (wrong.empty() ? "" : "; ") + std::to_string(others - (was_other ? 1 : 0)) + " of its lines are no events";
  }
  return wrong;
}

}  // namespace distag_tool
