/* Credit: "w0" asks "w1" for more than max_in_flight_bytes. The asynchronous calls beyond what may wait are OVERLOADED,
 * the synchronous one waits; what was taken is answered, and the room is there again. */
#include <stdio.h>

#include "shortage/group.h"

enum { kCalls = 12, kElements = 512, kRoom = 16384 }; /* of 4 KiB each: three on their way, three that wait */

static distag_status total(void *user_data, distag_invocation *invocation, distag_error *err) {
  distag_tensor *x = NULL, *sum = NULL;
  (void)user_data;
  distag_invocation_get_tensor(invocation, 0, &x, err);
  distag_sum(x, NULL, 0, 0, &sum, err);
  distag_invocation_return(invocation, distag_tensor_as_value(sum), err);
  distag_tensor_release(sum);
  return err->code;
}

static int check_total(run_result *result, distag_value *answer) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_tensor *sum = NULL;
  double number = 0;
  if (!RUN(result, distag_value_get_tensor(answer, &sum, &err)) ||
      !RUN(result, distag_tensor_get_item(sum, &number, &err))) {
    return 0;
  }
  if (number != kElements) run_note_wrong(result, "total", number, kElements);
  return 1;
}

/* How a future ends: 1: with the right answer; 0: refused, for want of room, which `overloaded` counts, or of memory.
 */
static int finish(run_result *result, distag_future *future, int *overloaded) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_status status = DISTAG_E_OUT_OF_MEMORY;
  distag_value *answer = NULL;
  result->doing = "distag_future_wait";
  for (int waits = 0; status == DISTAG_E_OUT_OF_MEMORY && waits < kMostTries; ++waits) {
    err.code = DISTAG_OK;
    status = distag_future_wait(future, kCallTime + DISTAG_SECOND, &err);
    if (distag_future_poll(future)) break;
  }
  *overloaded += status == DISTAG_E_OVERLOADED;
  if (status == DISTAG_E_OVERLOADED || !run_note(result, "distag_call_async", status, &err)) return 0;
  return RUN(result, distag_future_get_value(future, &answer, &err)) && check_total(result, answer);
}

/* 1: as much as fits was answered, the rest was OVERLOADED, and the call that waits got its answer. */
static int flood_once(run_result *result, distag_worker *worker) {
  distag_error err = DISTAG_ERROR_INIT;
  const int64_t shape[1] = {kElements};
  distag_tensor *x = NULL;
  distag_value *answer = NULL;
  distag_future *futures[kCalls] = {NULL};
  int overloaded = 0, answered = 0;
  int is_ok = RUN(result, distag_ones(DISTAG_FLOAT64, shape, 1, &x, &err));
  distag_value *const args[1] = {distag_tensor_as_value(x)};
  for (int i = 0; i < kCalls && is_ok; ++i) {
    is_ok = RUN(result, distag_call_async(worker, NULL, "w1", "total", args, 1, NULL, &futures[i], &err));
  }
  /* Runs those that wait, in this thread, and itself behind them. */
  is_ok = is_ok && RUN(result, distag_call(worker, NULL, "w1", "total", args, 1, NULL, &answer, &err)) &&
          check_total(result, answer);
  for (int i = 0; i < kCalls; ++i) {
    if (futures[i] != NULL) answered += finish(result, futures[i], &overloaded);
    distag_future_release(futures[i]);
  }
  distag_value_release(answer);
  distag_tensor_release(x);
  if (!is_ok || answered + overloaded < kCalls) return 0;
  if (overloaded == 0 || answered == 0) run_note_wrong(result, "calls without room", overloaded, kCalls / 2);
  return 1;
}

static int offer_total(run_result *result, distag_worker *worker) {
  distag_error err = DISTAG_ERROR_INIT;
  for (int tries = 0; tries < kMostTries; ++tries) {
    if (RUN(result, distag_worker_register(worker, "total", total, NULL, NULL, NULL, &err))) return 1;
  }
  return 0;
}

/* Has this thread poll it, so that its functions run where this thread waits. */
static int begin_to_poll(run_result *result, distag_worker *worker) {
  distag_error err = DISTAG_ERROR_INIT;
  for (int tries = 0; tries < kMostTries; ++tries) {
    if (RUN(result, distag_worker_poll(worker, 0, 0, NULL, &err))) return 1;
  }
  return 0;
}

void run_credit(const run_plan *plan, run_result *result) {
  distag_worker *workers[2] = {NULL, NULL};
  int tries = 0;
  allocations_count_from_here(&plan->missing);
  for (int i = 0; i < 2; ++i) {
    distag_worker_options options = DISTAG_WORKER_OPTIONS_INIT;
    options.rank = i;
    options.rendezvous = "inproc://credit";
    options.executor = i == 0 ? DISTAG_EXECUTOR_POOL : DISTAG_EXECUTOR_HOST;
    options.max_in_flight_bytes = kRoom;
    workers[i] = make_worker_with(result, &options);
  }
  const int has_started = workers[1] != NULL && offer_total(result, workers[1]) && start_both(result, workers) &&
                          begin_to_poll(result, workers[1]);
  if (has_started) {
    while (tries < kMostTries && result->late < 3 && !flood_once(result, workers[0])) ++tries;
    if (tries == kMostTries) run_note_wrong(result, "tries", tries, 0);
  }
  result->allocations = allocations_stop();
  if (has_started && !flood_once(result, workers[0])) run_note_wrong(result, "flood with all memory", 0, 1);
  stop_both(result, workers);
  release_both(result, workers);
}
