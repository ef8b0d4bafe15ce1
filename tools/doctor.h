#pragma once

namespace distag_tool {

// Checks this machine and tells on one page. Gives the code to leave with: 0, or 1 when something is to be mended.
int print_doctor(bool as_json);

}  // namespace distag_tool
