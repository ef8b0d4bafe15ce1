#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "trace_file.h"

namespace distag_tool {

// Times in microseconds, ascending, that do not overlap.
using Intervals = std::vector<std::pair<double, double>>;
Intervals joined(Intervals intervals);
// The times in `from` that are not in `taken`; both joined.
Intervals without(const Intervals& from, const Intervals& taken);
double sum_of(const Intervals& intervals);

struct CallSummary {
  uint64_t count = 0;
  uint64_t failed = 0;
  double total = 0;
  double longest = 0;
};

// The trace of one worker, in numbers. Times are by its clock.
struct TraceSummary {
  TraceFile file;
  std::string wrong;  // the fault of the file
  uint64_t events = 0;
  uint64_t dropped = 0;
  double begin = 0;
  double end = 0;
  Intervals runs;   // functions and backward passes
  Intervals waits;  // calls and collectives under way while nothing runs here
  std::map<std::pair<std::string, std::string>, CallSummary> calls;  // by function and callee
  double offset = 0;                                                 // added to times, gives the first worker's clock
  double bound = 0;  // of the offset's error; negative: the clocks could not be compared
};

TraceSummary summarize(const TraceFile& file);

// Sets offset and bound of all but the first worker. Workers of one machine share a clock; others are compared by their
// quickest messages in both directions.
void align_clocks(std::vector<TraceSummary>& workers);

}  // namespace distag_tool
