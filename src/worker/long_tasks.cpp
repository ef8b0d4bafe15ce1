#include "worker/long_tasks.h"

#include <cerrno>
#include <cstdio>
#include <memory>

namespace distag {

#ifdef DISTAG_LONG_TASKS_FILE

FdLoop::Watchdog note_long_tasks() {
  return [](const char* what, Nanos taken) {
    constexpr Nanos kLong = 5 * kMillisecond;
    if (taken <= kLong) return;
    // One write per line: several programs note theirs at once.
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(DISTAG_LONG_TASKS_FILE, "ae"), &std::fclose);
    if (!file) return;
    std::fprintf(file.get(), "%lld %s %s\n", static_cast<long long>(taken / kMicrosecond),
                 program_invocation_short_name, what);
  };
}

#else

FdLoop::Watchdog note_long_tasks() { return {}; }

#endif

}  // namespace distag
