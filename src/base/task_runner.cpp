#include "base/task_runner.h"

#include <sys/resource.h>

#include <ctime>

namespace distag {
namespace {

int64_t faults_of_thread() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_minflt;
}
Nanos time_of_thread() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<Nanos>(time.tv_sec) * kSecond + time.tv_nsec;
}

}  // namespace

FdLoop::Cost TaskRunner::cost_so_far() { return {time_of_thread(), faults_of_thread()}; }

// Counting page faults costs as much as a short task, for which they do not matter.
FdLoop::Cost TaskRunner::cost_since(const FdLoop::Cost& begin) {
  const Nanos taken = time_of_thread() - begin.taken;
  return {taken, taken < kMillisecond ? 0 : faults_of_thread() - begin.page_faults};
}

}  // namespace distag
