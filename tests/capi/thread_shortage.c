/* The system makes no more thread: a function that waits for what its own worker is to run fails soon, naming the lack,
 * however long it may wait; and works again once there is room. */
#define _GNU_SOURCE
#include "capi/check.h"
#include "capi/support/group.h"
#include "capi/support/stacks.h"

static distag_error err = DISTAG_ERROR_INIT;
static distag_worker *worker;

static distag_status call(const char *function, distag_error *told) {
  distag_call_options options = DISTAG_CALL_OPTIONS_INIT;
  options.timeout_ns = DISTAG_FOREVER;
  return distag_call(worker, NULL, "w0", function, NULL, 0, &options, NULL, told);
}

static distag_status inner(void *user_data, distag_invocation *invocation, distag_error *told) {
  (void)user_data, (void)invocation, (void)told;
  return DISTAG_OK;
}

static distag_status outer(void *user_data, distag_invocation *invocation, distag_error *told) {
  (void)invocation;
  return call(user_data, told);
}

static distag_status then_call(void *user_data, distag_invocation *invocation, distag_error *told) {
  (void)user_data, (void)invocation;
  distag_future *future = NULL;
  distag_call_options options = DISTAG_CALL_OPTIONS_INIT;
  options.timeout_ns = DISTAG_FOREVER;
  distag_call_async(worker, NULL, "w0", "inner", NULL, 0, &options, &future, told);
  distag_future_wait(future, DISTAG_FOREVER, told);
  distag_future_release(future);
  return told->code;
}

static void try_all(int has_room) {
  static const char *const functions[] = {"outer", "outermost", "then_call"};
  for (size_t i = 0; i < sizeof functions / sizeof functions[0]; ++i) {
    if (has_room) {
      CHECK_OK(call(functions[i], &err));
    } else {
      CHECK_FAILS(call(functions[i], &err), DISTAG_E_OUT_OF_MEMORY, "ulimit -u");
    }
  }
}

int main(void) {
  distag_worker_options options = group_options(0, 1, "inproc://thread-shortage");
  options.thread_count = 1;
  CHECK_OK(distag_worker_create(&options, &worker, &err));
  CHECK_OK(distag_worker_register(worker, "inner", inner, NULL, NULL, NULL, &err));
  CHECK_OK(distag_worker_register(worker, "outer", outer, "inner", NULL, NULL, &err));
  CHECK_OK(distag_worker_register(worker, "outermost", outer, "outer", NULL, NULL, &err));
  CHECK_OK(distag_worker_register(worker, "then_call", then_call, NULL, NULL, NULL, &err));
  CHECK_OK(distag_worker_start(worker, 120 * DISTAG_SECOND, &err));
  CHECK_OK(call("inner", &err));
  set_stack_size(kNoRoomForAStack);
  try_all(0);
  CHECK_OK(call("inner", &err)); /* what needs no more thread goes on */
  set_stack_size(kPlainStack);
  try_all(1);
  CHECK_OK(distag_worker_shutdown(worker, 120 * DISTAG_SECOND, NULL, &err));
  distag_worker_release(worker);
  return check_end();
}
