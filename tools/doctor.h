#pragma once

namespace distag_tool {

// Checks this machine, and prints a page. Gives the exit code: 0, or 1 when something is to be mended.
int print_doctor(bool as_json);

}  // namespace distag_tool
