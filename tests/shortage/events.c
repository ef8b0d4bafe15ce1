/* Events: "w1" calls a function that "w0" offered, and has an event posted to "w0" once the call is complete. Every
 * event that was promised comes, in time, however it is waited for. */
#include <poll.h>

#include "shortage/group.h"

enum { kTagCall = 7, kTagDone = 70, kTagAgain = 71, kAgain = 20 };

/* The ways of waiting for an event. */
typedef enum waiting { kByTake, kByWait, kByDescriptor, kWaitings } waiting;

/* Until an event may be there. 0: it is late. */
static int wait_for_event(run_result *result, distag_worker *worker, waiting by) {
  distag_error err = DISTAG_ERROR_INIT;
  if (by == kByWait) {
    for (int tries = 0; tries < kMostTries; ++tries) {
      if (RUN(result, distag_worker_wait(worker, kCallTime + DISTAG_SECOND, &err))) return 1;
      if (err.code != DISTAG_E_OUT_OF_MEMORY) return 0;
    }
  }
  if (by == kByDescriptor) {
    struct pollfd readable = {(int)distag_worker_get_fd(worker), POLLIN, 0};
    result->doing = "poll";
    if (readable.fd >= 0 && poll(&readable, 1, (int)((kCallTime + DISTAG_SECOND) / DISTAG_MILLISECOND)) != 1) {
      ++result->late;
      return 0;
    }
  }
  return 1;
}

/* The next event. Those that poll a descriptor or wait for work may find none of them yet: they wait again. */
static int take_one(run_result *result, distag_worker *worker, waiting by, distag_event *event) {
  distag_error err = DISTAG_ERROR_INIT;
  for (int tries = 0; tries < kMostTries; ++tries) {
    const distag_status status = distag_worker_take_event(worker, 0, event, &err);
    result->doing = "distag_worker_take_event";
    if (status == DISTAG_OK) return 1;
    err.code = DISTAG_OK;
    if (status == DISTAG_E_DEADLINE && by != kByTake) {
      if (!wait_for_event(result, worker, by)) return 0;
    } else if (status == DISTAG_E_DEADLINE) {
      if (RUN(result, distag_worker_take_event(worker, kCallTime + DISTAG_SECOND, event, &err))) return 1;
      if (err.code != DISTAG_E_OUT_OF_MEMORY) return 0;
    } else if (!run_note(result, "distag_worker_take_event", status, &err) && status != DISTAG_E_OUT_OF_MEMORY) {
      return 0;
    }
  }
  return 0;
}

/* An invocation that could not be finished stays the taker's. */
static void answer(run_result *result, const distag_event *event) {
  distag_error err = DISTAG_ERROR_INIT;
  int64_t number = 0;
  distag_value *sum = NULL;
  int tries = 0;
  if (event->tag != kTagCall) run_note_wrong(result, "tag", (double)event->tag, kTagCall);
  while (tries < kMostTries &&
         !(RUN(result, distag_value_get_int64(distag_invocation_get_arg(event->invocation, 0), &number, &err)) &&
           RUN(result, distag_value_create_int64(number + 1, &sum, &err)))) {
    ++tries;
  }
  while (tries < kMostTries && !RUN(result, distag_invocation_finish(event->invocation, sum, NULL, &err))) ++tries;
  if (tries == kMostTries) run_note_wrong(result, "tries to finish", tries, 0);
  distag_value_release(sum);
}

/* Takes until the event of the future is there, and answers calls meanwhile. */
static int serve_until(run_result *result, distag_worker *worker, waiting by, uint64_t tag) {
  for (;;) {
    distag_event event = DISTAG_EVENT_INIT;
    if (!take_one(result, worker, by, &event)) return 0;
    if (event.kind == DISTAG_EVENT_CALL) {
      answer(result, &event);
      continue;
    }
    if (event.tag != tag) run_note_wrong(result, "tag", (double)event.tag, (double)tag);
    if (!distag_future_poll(event.future)) run_note_wrong(result, "complete", 0, 1);
    distag_future_release(event.future);
    return 1;
  }
}

static int post(run_result *result, distag_future *future, distag_worker *worker, uint64_t tag) {
  distag_error err = DISTAG_ERROR_INIT;
  for (int tries = 0; tries < kMostTries; ++tries) {
    if (RUN(result, distag_future_post(future, worker, tag, &err))) return 1;
    if (err.code != DISTAG_E_OUT_OF_MEMORY) break;
  }
  return 0;
}

/* The answer, or the shortage that took its place. */
static int check_answer(run_result *result, distag_future *future) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_value *value = NULL;
  int64_t number = 0;
  if (!await_future(result, "distag_call_async", future)) return 0;
  if (!RUN(result, distag_future_get_value(future, &value, &err))) return 0;
  if (!RUN(result, distag_value_get_int64(value, &number, &err))) return 0;
  if (number != 42) run_note_wrong(result, "answer", (double)number, 42);
  return 1;
}

static int call_once(run_result *result, distag_worker **workers, waiting by) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_value *number = NULL;
  distag_future *future = NULL;
  int is_ok = RUN(result, distag_value_create_int64(41, &number, &err)) &&
              RUN(result, distag_call_async(workers[1], NULL, "w0", "add", &number, 1, NULL, &future, &err));
  distag_value_release(number);
  /* Once before it is complete, and many times after: all of them wait at once then, and come in order. */
  is_ok = is_ok && post(result, future, workers[0], kTagDone) && serve_until(result, workers[0], by, kTagDone);
  for (uint64_t i = 0; is_ok && i < kAgain; ++i) is_ok = post(result, future, workers[0], kTagAgain + i);
  for (uint64_t i = 0; is_ok && i < kAgain; ++i) is_ok = serve_until(result, workers[0], by, kTagAgain + i);
  is_ok = is_ok && check_answer(result, future);
  distag_future_release(future);
  return is_ok;
}

/* Nothing comes any more, and that is told. */
static void check_end_is_told(run_result *result, distag_worker *worker) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_event event = DISTAG_EVENT_INIT;
  const distag_status status = distag_worker_take_event(worker, kCallTime, &event, &err);
  if (status != DISTAG_E_INVALID_STATE) run_note_wrong(result, "status after the shutdown", status, 0);
  if (status == DISTAG_OK) distag_future_release(event.future);
}

static int offer(run_result *result, distag_worker *worker) {
  distag_error err = DISTAG_ERROR_INIT;
  for (int tries = 0; tries < kMostTries; ++tries) {
    if (RUN(result, distag_worker_offer(worker, "add", kTagCall, NULL, &err))) return 1;
  }
  return 0;
}

void run_events(const run_plan *plan, run_result *result) {
  distag_worker *workers[2] = {NULL, NULL};
  int has_started = 0;
  allocations_count_from_here(&plan->missing);
  for (int i = 0; i < 2; ++i) {
    workers[i] = make_worker(result, i, "inproc://events", NULL, i == 0 ? DISTAG_EXECUTOR_HOST : DISTAG_EXECUTOR_POOL);
  }
  if (workers[0] != NULL && offer(result, workers[0])) has_started = start_both(result, workers);
  if (has_started) {
    for (waiting by = kByTake; by < kWaitings; ++by) {
      int tries = 0;
      while (tries < kMostTries && result->late < 3 && !call_once(result, workers, by)) ++tries;
      if (tries == kMostTries) run_note_wrong(result, "tries", tries, 0);
    }
    stop_both(result, workers);
  }
  result->allocations = allocations_stop();
  if (has_started) check_end_is_told(result, workers[0]);
  release_both(result, workers);
}
