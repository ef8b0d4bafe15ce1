#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace distag_tool {

// A trace of one worker, which may be cut off, damaged or made by somebody else: nothing in it is believed.
struct TraceFile {
  std::string path;
  std::string worker;  // as it may be printed: without control characters
  int64_t rank = -1;
  std::string host;
};

// Of names in a folder, ascending, those that end in ".trace.json". Throws for a folder that cannot be read.
std::vector<std::string> find_traces(const std::string& folder);

// Opens it and reads who wrote it. Throws std::runtime_error saying why it is no trace of distag.
TraceFile open_trace(const std::string& path);

using TakeEvent = std::function<void(nlohmann::json& event)>;
// Every event in its order; each has "ph", and all but metadata "ts" as a finite number. Gives what is wrong with the
// file, or nothing: lines that are no events are left out.
std::string read_trace(const TraceFile& trace, const TakeEvent& take);

// Members of an event, whatever their types are.
std::string text_in(const nlohmann::json& event, const char* name);
double number_in(const nlohmann::json& event, const char* name);  // 0: there is none

// Without what a terminal would obey.
std::string printable(std::string_view text);

}  // namespace distag_tool
