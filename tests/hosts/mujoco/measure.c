/* The sample of samples/hosts/mujoco as a test runs it: frames lie between its waits. */
#define _GNU_SOURCE
#include "../watched.h"

int robot_main(int argc, char** argv); /* the sample's main */
int __real_clock_nanosleep(clockid_t clock, int flags, const struct timespec* time, struct timespec* rest);
int __wrap_clock_nanosleep(clockid_t clock, int flags, const struct timespec* time, struct timespec* rest);

static frames all;

void note_call(const char* name, int blocks) { count_call(name, blocks); }
void note_return(void) {}

int __wrap_clock_nanosleep(clockid_t clock, int flags, const struct timespec* time, struct timespec* rest) {
  if (is_in_frame) {
    note_frame(milliseconds_since(CLOCK_THREAD_CPUTIME_ID, all.processor), count_sleeps() > all.sleeps);
    end_frame(&all);
  }
  const int result = __real_clock_nanosleep(clock, flags, time, rest);
  is_in_frame = 1;
  begin_frame(&all);
  return result;
}

int main(int argc, char** argv) {
  const left before = count_left();
  printf("robot: process %d\n", (int)getpid());
  fflush(stdout);
  const int code = robot_main(argc, argv);
  const left now = count_left_since(before);
  distag_tensor_release(inputs), distag_tensor_release(targets); /* where it is left before its first step is done */
  tell_frames();
  printf("robot: left with %d: %d threads, %d descriptors, %d handles, %d steps under way\n", code,
         now.threads - before.threads, now.descriptors - before.descriptors, (int)distag_get_handle_count(),
         open_at_the_end);
  return code;
}
