#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace distag_tool {

// A trace of one worker, which may be cut off, damaged or made by another program: nothing in it is trusted.
struct TraceFile {
  std::string path;
  std::string worker;  // printable: without control characters
  int64_t rank = -1;
  std::string host;
};

// The files of a folder whose names end in ".trace.json", ascending. Throws for a folder that cannot be read.
std::vector<std::string> find_traces(const std::string& folder);

// Opens the file and reads its worker. Throws std::runtime_error if the file is no trace of distag.
TraceFile open_trace(const std::string& path);

using TakeEvent = std::function<void(nlohmann::json& event)>;
// Takes every event in order; each has "ph", and all but metadata have "ts" as a finite number. Gives the fault of the
// file, or an empty text: lines that are no events are left out.
std::string read_trace(const TraceFile& trace, const TakeEvent& take);

// Members of an event, which may have any type.
std::string text_in(const nlohmann::json& event, const char* name);
double number_in(const nlohmann::json& event, const char* name);  // 0: no such number

// The text without bytes that a terminal would obey.
std::string printable(std::string_view text);

}  // namespace distag_tool
