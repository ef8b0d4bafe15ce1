/* The sample of samples/hosts/nodelet as a test runs it. The calls of distag from one poll to the next are a frame. */
#define _GNU_SOURCE
#include "../watched.h"

void before_distag_future_wait(distag_future* future, int64_t timeout, distag_error* err);

static frames call; /* under way, the outermost */
static int depth, has_slept;
static double milliseconds;

/* A wait for a future that is complete returns at once: C++ reads its value so. */
void note_call(const char* name, int blocks) {
  if (depth++ > 0 || is_checking) {
    count_call(name, blocks && strcmp(name, "distag_future_wait") != 0);
    return;
  }
  if (strcmp(name, "distag_worker_poll") == 0) {
    if (is_in_frame) note_frame(milliseconds, has_slept);
    is_in_frame = 1, milliseconds = 0, has_slept = 0;
  }
  count_call(name, blocks && strcmp(name, "distag_future_wait") != 0);
  if (strcmp(name, "distag_worker_shutdown") == 0) tell_frames(), fflush(stdout);
  begin_frame(&call);
}

void note_return(void) {
  if (--depth > 0) return;
  milliseconds += milliseconds_since(CLOCK_THREAD_CPUTIME_ID, call.processor);
  has_slept |= count_sleeps() > call.sleeps;
}

void before_distag_future_wait(distag_future* future, int64_t timeout, distag_error* err) {
  (void)timeout, (void)err;
  if (is_in_frame && !is_checking && distag_future_poll(future) != 1) note_blocking("distag_future_wait");
}

__attribute__((destructor)) static void tell_what_is_left(void) {
  distag_tensor_release(inputs), distag_tensor_release(targets); /* where it is left before its first step is done */
  printf("robot: left with %d handles, %d steps under way\n", (int)distag_get_handle_count(), open_at_the_end);
  fflush(stdout);
}

__attribute__((constructor)) static void tell_process(void) {
  printf("robot: process %d\n", (int)getpid());
  fflush(stdout);
}
