#include "worker/long_tasks.h"

#include <errno.h>
#include <fmt/format.h>

#include "base/regular_file.h"

namespace distag {

#ifdef DISTAG_LONG_TASKS_FILE

FdLoop::Watchdog note_long_tasks() {
  return [](const char* what, Nanos taken) {
    constexpr Nanos kLong = 5 * kMillisecond;
    if (taken <= kLong) return;
    // One write for the line, as several programs write theirs.
    append_to_file(DISTAG_LONG_TASKS_FILE,
                   fmt::format("{} {} {}\n", taken / kMicrosecond, program_invocation_short_name, what));
  };
}

#else

FdLoop::Watchdog note_long_tasks() { return {}; }

#endif

}  // namespace distag
