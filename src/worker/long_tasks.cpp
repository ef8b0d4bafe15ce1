#include "worker/long_tasks.h"

#include <errno.h>
#include <fmt/format.h>

#include "base/process.h"
#include "base/regular_file.h"

namespace distag {

#ifdef DISTAG_LONG_TASKS_FILE

FdLoop::Watchdog note_long_tasks() {
  return [](const char* what, const FdLoop::Cost& cost) {
    constexpr Nanos kLong = 5 * kMillisecond;
    if (cost.taken <= kLong) return;
    // A single write for the line, as several programs append theirs.
    append_to_file(DISTAG_LONG_TASKS_FILE, fmt::format("{} {} {} {} {}\n", cost.taken / kMicrosecond, cost.page_faults,
                                                       process_id(), program_invocation_short_name, what));
  };
}

#else

FdLoop::Watchdog note_long_tasks() { return {}; }

#endif

}  // namespace distag
