#pragma once

#include <string>

namespace distag_tool {

struct ReportOptions {
  std::string folder;
  std::string merged;  // empty: no file of all traces
  std::string page;    // empty: no page
};

// Prints a report of the traces in a folder. Gives 0, or 1 if the folder has no trace.
int print_report(const ReportOptions& options);

}  // namespace distag_tool
