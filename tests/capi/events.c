/* Events: calls and futures that a host takes where nothing calls it back; whatever is not taken or finished ends. */
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "capi/check.h"
#include "capi/support/group.h"

enum { kTagAdd = 7, kTagLate = 8, kTagDone = 70, kCalls = 200, kTakers = 3 };

static distag_error err = DISTAG_ERROR_INIT;
static distag_worker *host, *caller; /* w0 takes events, w1 has a pool */
static distag_value *two;

static distag_event take(int64_t timeout) {
  distag_event event = DISTAG_EVENT_INIT;
  CHECK_OK(distag_worker_take_event(host, timeout, &event, &err));
  CHECK_INT(event.struct_size, sizeof event);
  return event;
}

static distag_future *call_host_within(const char *function, int64_t timeout) {
  distag_call_options options = DISTAG_CALL_OPTIONS_INIT;
  distag_future *future = NULL;
  options.timeout_ns = timeout;
  CHECK_OK(distag_call_async(caller, NULL, "w0", function, &two, 1, &options, &future, &err));
  return future;
}

static distag_future *call_host(void) { return call_host_within("add", 120 * DISTAG_SECOND); }

static void check_answer(distag_future *future, int64_t expected) {
  distag_value *value = NULL;
  int64_t whole = 0;
  CHECK_OK(distag_future_wait(future, 120 * DISTAG_SECOND, &err));
  CHECK_OK(distag_future_get_value(future, &value, &err));
  CHECK_OK(distag_value_get_int64(value, &whole, &err));
  CHECK_INT(whole, expected);
  distag_future_release(future);
}

static void check_failure(distag_future *future, distag_status status, const char *word) {
  CHECK_FAILS(distag_future_wait(future, 120 * DISTAG_SECOND, &err), status, word);
  distag_future_release(future);
}

/* The answer that a host gives to "add". */
static void add(distag_invocation *invocation, int64_t more) {
  int64_t whole = 0;
  distag_value *sum = NULL;
  CHECK_OK(distag_value_get_int64(distag_invocation_get_arg(invocation, 0), &whole, &err));
  CHECK_OK(distag_value_create_int64(whole + more, &sum, &err));
  CHECK_OK(distag_invocation_finish(invocation, sum, NULL, &err));
  distag_value_release(sum);
}

/* Waits for a call: after that, everything that the caller sent before has arrived. */
static void ask(void) {
  distag_tensor *x = NULL;
  CHECK_OK(distag_zeros(DISTAG_FLOAT32, NULL, 0, &x, &err));
  distag_value *arg = distag_tensor_as_value(x);
  CHECK_OK(distag_call(caller, NULL, "w0", "neg", &arg, 1, NULL, NULL, &err));
  distag_tensor_release(x);
}

static void start(void) {
  distag_worker *both[2];
  for (int32_t rank = 0; rank < 2; ++rank) {
    distag_worker_options options = group_options(rank, 2, "inproc://events");
    if (rank == 0) options.executor = DISTAG_EXECUTOR_HOST;
    CHECK_OK(distag_worker_create(&options, &both[rank], &err));
  }
  host = both[0];
  caller = both[1];
  CHECK_OK(distag_worker_offer(host, "add", kTagAdd, NULL, &err));
  CHECK_INT(group_start(both, 2), 0);
}

static void calls(void) {
  distag_future *future = call_host();
  struct pollfd readable = {(int)distag_worker_get_fd(host), POLLIN, 0};
  CHECK(poll(&readable, 1, 120000) == 1);
  CHECK_OK(distag_worker_wait(host, 120 * DISTAG_SECOND, &err));
  distag_event event = take(120 * DISTAG_SECOND);
  CHECK(event.kind == DISTAG_EVENT_CALL && event.tag == kTagAdd && event.future == NULL);
  CHECK_TEXT(distag_invocation_get_function(event.invocation), "add");
  CHECK_TEXT(distag_invocation_get_caller(event.invocation), "w1");
  CHECK_TEXT(distag_worker_get_name(distag_invocation_get_worker(event.invocation)), "w0");
  CHECK_INT(distag_invocation_get_arg_count(event.invocation), 1);
  CHECK(distag_invocation_get_context(event.invocation) == NULL);
  CHECK(distag_invocation_get_time_left(event.invocation) > 0);
  CHECK_INT(distag_invocation_is_cancelled(event.invocation), 0);
  add(event.invocation, 3);
  check_answer(future, 5);
}

/* Calls are finished with null, with a failure, and with an invalid answer. */
static void answers(void) {
  distag_error told = DISTAG_ERROR_INIT, broken = DISTAG_ERROR_INIT;
  distag_value *value = NULL;
  distag_future *future = call_host();
  CHECK_OK(distag_invocation_finish(take(120 * DISTAG_SECOND).invocation, NULL, NULL, &err));
  CHECK_OK(distag_future_wait(future, 120 * DISTAG_SECOND, &err));
  CHECK_OK(distag_future_get_value(future, &value, &err));
  CHECK_INT(distag_value_get_kind(value), DISTAG_VALUE_NULL);
  distag_future_release(future);

  future = call_host();
  distag_error_set(&told, 1042, "no such sum");
  CHECK_OK(distag_invocation_finish(take(120 * DISTAG_SECOND).invocation, two, &told, &err));
  CHECK_FAILS(distag_future_wait(future, 120 * DISTAG_SECOND, &err), 1042, "no such sum");
  CHECK(err.origin_rank == 0 && err.flags == DISTAG_ERROR_MAY_HAVE_RUN);
  distag_future_release(future);

  future = call_host();
  distag_invocation *kept = take(120 * DISTAG_SECOND).invocation;
  CHECK_FAILS(distag_invocation_finish(kept, (distag_value *)host, NULL, &err), DISTAG_E_INVALID_ARGUMENT, "worker");
  broken.struct_size = 3;
  CHECK_FAILS(distag_invocation_finish(kept, NULL, &broken, &err), DISTAG_E_INVALID_ARGUMENT, "struct_size");
  CHECK_FAILS(distag_invocation_return(kept, two, &err), DISTAG_E_INVALID_STATE, "deferred");
  distag_reply *reply = NULL;
  CHECK_FAILS(distag_invocation_defer(kept, &reply, &err), DISTAG_E_INVALID_STATE, "deferred");
  add(kept, 1); /* it is still the taker's */
  check_answer(future, 3);
}

static void futures(void) {
  distag_future *future = call_host();
  distag_value *value = NULL;
  CHECK_OK(distag_future_post(future, host, kTagDone, &err));
  distag_event event = take(120 * DISTAG_SECOND);
  add(event.invocation, 4);
  event = take(120 * DISTAG_SECOND);
  CHECK(event.kind == DISTAG_EVENT_FUTURE && event.tag == kTagDone && event.invocation == NULL);
  CHECK_INT(distag_future_poll(event.future), 1);
  distag_future_release(future); /* the event has a reference of its own */
  CHECK_OK(distag_future_get_value(event.future, &value, &err));
  CHECK_INT(distag_value_get_kind(value), DISTAG_VALUE_INT64);
  /* A future that is complete already is posted twice: each post gives an event. */
  CHECK_OK(distag_future_post(event.future, host, 1, &err));
  CHECK_OK(distag_future_post(event.future, host, 2, &err));
  distag_future_release(event.future);
  for (uint64_t tag = 1; tag <= 2; ++tag) {
    event = take(120 * DISTAG_SECOND);
    CHECK_INT(event.tag, tag);
    distag_future_release(event.future);
  }
  /* A cancelled future is complete as well. */
  future = call_host();
  CHECK_OK(distag_future_post(future, host, 3, &err));
  distag_future_cancel(future);
  do {
    event = take(120 * DISTAG_SECOND); /* the call may have come before its end */
    if (event.kind == DISTAG_EVENT_CALL) CHECK_OK(distag_invocation_finish(event.invocation, NULL, NULL, &err));
  } while (event.kind == DISTAG_EVENT_CALL && check_failures == 0);
  CHECK_INT(event.tag, 3);
  ask(); /* if the call comes only now, it is over when it is looked at */
  CHECK_FAILS(distag_future_wait(event.future, 0, &err), DISTAG_E_CANCELLED, "cancelled");
  distag_future_release(event.future);
  distag_future_release(future);
}

static void refusals(void) {
  distag_event event = DISTAG_EVENT_INIT;
  distag_function_options options = DISTAG_FUNCTION_OPTIONS_INIT;
  distag_future *future = call_host();
  CHECK_FAILS(distag_worker_offer(caller, "f", 1, NULL, &err), DISTAG_E_INVALID_STATE, "DISTAG_EXECUTOR_HOST");
  CHECK_FAILS(distag_future_post(future, caller, 1, &err), DISTAG_E_INVALID_STATE, "DISTAG_EXECUTOR_HOST");
  CHECK_FAILS(distag_worker_take_event(caller, 0, &event, &err), DISTAG_E_INVALID_STATE, "DISTAG_EXECUTOR_HOST");
  CHECK_FAILS(distag_worker_offer(host, "add", 1, NULL, &err), DISTAG_E_INVALID_STATE, "registered");
  CHECK_FAILS(distag_worker_offer(host, "distag.f", 1, NULL, &err), DISTAG_E_INVALID_ARGUMENT, "distag.");
  options.reserved = 1;
  CHECK_FAILS(distag_worker_offer(host, "f", 1, &options, &err), DISTAG_E_UNSUPPORTED, "reserved");
  CHECK_FAILS(distag_worker_take_event(host, -5, &event, &err), DISTAG_E_INVALID_ARGUMENT, "timeout_ns");
  event.struct_size = 8;
  CHECK_FAILS(distag_worker_take_event(host, DISTAG_FOREVER, &event, &err), DISTAG_E_INVALID_ARGUMENT, "distag_event");
  CHECK_FAILS(distag_invocation_finish((distag_invocation *)two, NULL, NULL, &err), DISTAG_E_INVALID_ARGUMENT, "value");
  add(take(120 * DISTAG_SECOND).invocation, 0); /* none of that took it */
  check_answer(future, 2);
  event.struct_size = sizeof event;
  event.tag = 9;
  CHECK_FAILS(distag_worker_take_event(host, 0, &event, &err), DISTAG_E_DEADLINE, "no event");
  CHECK(event.tag == 0 && event.kind == 0);
  CHECK_FAILS(distag_worker_take_event(host, 5 * DISTAG_MILLISECOND, &event, &err), DISTAG_E_DEADLINE, "5 ms");
}

/* A function that is called back cannot finish what it is lent. */
static distag_status finish_what_is_lent(void *user_data, distag_invocation *invocation, distag_error *told) {
  (void)user_data, (void)told;
  CHECK_TEXT(distag_invocation_get_function(invocation), "lent");
  CHECK_FAILS(distag_invocation_finish(invocation, NULL, NULL, &err), DISTAG_E_INVALID_STATE, "lent");
  return DISTAG_OK;
}

static void what_is_lent(void) {
  distag_event event = DISTAG_EVENT_INIT;
  CHECK_OK(distag_worker_register(host, "lent", finish_what_is_lent, NULL, NULL, NULL, &err));
  distag_future *future = call_host_within("lent", 120 * DISTAG_SECOND);
  /* Callbacks run in here, as in every blocking call of the thread that polls. */
  while (!distag_future_poll(future) && check_failures == 0) {
    CHECK_FAILS(distag_worker_take_event(host, 20 * DISTAG_MILLISECOND, &event, &err), DISTAG_E_DEADLINE, "event");
  }
  CHECK_OK(distag_future_wait(future, 0, &err));
  distag_future_release(future);
}

/* A deadline ends the call, not the invocation: a late answer is dropped. A call in the queue is not even taken. */
static void late(void) {
  distag_event event = DISTAG_EVENT_INIT;
  distag_future *future = NULL;
  distag_invocation *taken = NULL;
  /* The timeout grows each time: a machine that stops may end the call before it is taken. */
  for (int64_t timeout = 30 * DISTAG_MILLISECOND; taken == NULL && timeout < 60 * DISTAG_SECOND; timeout *= 2) {
    future = call_host_within("add", timeout);
    if (distag_worker_take_event(host, timeout, &event, NULL) == DISTAG_OK) taken = event.invocation;
    check_failure(future, DISTAG_E_DEADLINE, "add");
  }
  if (!CHECK(taken != NULL)) return;
  while (!distag_invocation_is_cancelled(taken)) sched_yield();
  CHECK_INT(distag_invocation_get_arg_count(taken), 1);
  add(taken, 1);
  future = call_host();
  CHECK_OK(distag_worker_wait(host, 120 * DISTAG_SECOND, &err));
  CHECK_OK(distag_worker_poll(host, 0, DISTAG_FOREVER, NULL, &err)); /* it waits as an event now */
  distag_future_cancel(future);
  check_failure(future, DISTAG_E_CANCELLED, "cancelled");
  ask(); /* the host knows that no caller waits for it */
  future = call_host();
  event = take(120 * DISTAG_SECOND);
  CHECK(distag_invocation_get_time_left(event.invocation) > DISTAG_SECOND);
  add(event.invocation, 1);
  check_answer(future, 3);
}

static void withdrawn(void) {
  CHECK_OK(distag_worker_offer(host, "once", kTagLate, NULL, &err));
  distag_future *future = call_host_within("once", 120 * DISTAG_SECOND);
  distag_event event = take(120 * DISTAG_SECOND);
  CHECK_INT(event.tag, kTagLate);
  CHECK_OK(distag_worker_unregister(host, "once", 120 * DISTAG_SECOND, &err)); /* its answer is still owed */
  check_failure(call_host_within("once", 120 * DISTAG_SECOND), DISTAG_E_NOT_FOUND, "once");
  add(event.invocation, 1);
  check_answer(future, 3);
}

/* ---- many threads ---- */

static atomic_int answered, refused;

static void *take_and_answer(void *unused) {
  distag_error told = DISTAG_ERROR_INIT;
  (void)unused;
  for (;;) {
    distag_event event = DISTAG_EVENT_INIT;
    told.code = DISTAG_OK;
    distag_status status = distag_worker_take_event(host, 20 * DISTAG_MILLISECOND, &event, &told);
    if (status == DISTAG_E_DEADLINE && atomic_load(&answered) < kCalls) continue;
    if (status != DISTAG_OK) break;
    told.code = DISTAG_OK;
    status = distag_invocation_finish(event.invocation, distag_invocation_get_arg(event.invocation, 0), NULL, &told);
    atomic_fetch_add(status == DISTAG_OK ? &answered : &refused, 1);
  }
  return NULL;
}

static void side_by_side(void) {
  pthread_t takers[kTakers];
  static distag_future *open[kCalls];
  for (int i = 0; i < kCalls; ++i) open[i] = call_host();
  for (int i = 0; i < kTakers; ++i) CHECK_INT(pthread_create(&takers[i], NULL, take_and_answer, NULL), 0);
  for (int i = 0; i < kTakers; ++i) pthread_join(takers[i], NULL);
  for (int i = 0; i < kCalls; ++i) check_answer(open[i], 2);
  CHECK(atomic_load(&answered) == kCalls && atomic_load(&refused) == 0);
}

/* ---- the end ---- */

static _Atomic(distag_status) last_answer;

static void *take_until_the_end(void *unused) {
  distag_error told = DISTAG_ERROR_INIT;
  distag_event event = DISTAG_EVENT_INIT;
  (void)unused;
  atomic_store(&last_answer, distag_worker_take_event(host, DISTAG_FOREVER, &event, &told));
  return NULL;
}

/* A call is taken and never finished, another is an event, a third a task; a future is posted and never completes. */
static void left_open(void) {
  distag_event event = DISTAG_EVENT_INIT;
  static const int32_t all[] = {0, 1};
  distag_rref *rref = NULL;
  distag_context *context = NULL;
  distag_future *first = NULL, *gathered = NULL;
  CHECK_OK(distag_rref_create(host, two, &rref, &err));
  CHECK_OK(distag_context_create(host, &context, &err));
  distag_value *arg = distag_rref_as_value(rref);
  CHECK_OK(distag_call_async(host, context, "w0", "add", &arg, 1, NULL, &first, &err));
  CHECK_OK(distag_worker_all_gather_async(host, two, all, 2, DISTAG_FOREVER, &gathered, &err));
  CHECK_OK(distag_future_post(gathered, host, 1, &err));
  distag_future_release(gathered);
  distag_invocation *taken = take(120 * DISTAG_SECOND).invocation;
  CHECK_INT(distag_value_get_kind(distag_invocation_get_arg(taken, 0)), DISTAG_VALUE_RREF); /* both hold the worker */
  CHECK(distag_invocation_get_context(taken) != NULL);
  distag_future *second = call_host();
  CHECK_OK(distag_worker_wait(host, 120 * DISTAG_SECOND, &err));
  CHECK_OK(distag_worker_poll(host, 0, DISTAG_FOREVER, NULL, &err));
  distag_future *third = call_host();
  CHECK_OK(distag_worker_wait(host, 120 * DISTAG_SECOND, &err));
  CHECK_OK(distag_worker_shutdown(host, 0, NULL, &err));
  check_failure(first, DISTAG_E_CANCELLED, "shut down");
  distag_context_release(context);
  distag_rref_release(rref);
  check_failure(second, DISTAG_E_DISCONNECTED, "w0");
  check_failure(third, DISTAG_E_DISCONNECTED, "w0");
  CHECK_FAILS(distag_worker_take_event(host, DISTAG_FOREVER, &event, &err), DISTAG_E_INVALID_STATE, "down");
  CHECK_FAILS(distag_worker_offer(host, "g", 1, NULL, &err), DISTAG_E_INVALID_STATE, "down");
  CHECK_FAILS(distag_invocation_finish(taken, NULL, NULL, &err), DISTAG_E_INVALID_STATE, "shut down");
  CHECK_TEXT(distag_invocation_get_function(taken), "add"); /* safe until its worker is released */
  CHECK_OK(distag_worker_shutdown(caller, 0, NULL, &err));
  distag_worker_release(host);
  distag_worker_release(caller);
  CHECK_INT(distag_get_handle_count(), 1); /* two; what was never finished has ended */
}

/* A taker that waits is woken; the future of the shutdown comes as the last event. */
static void ends_by_events(void) {
  pthread_t taker;
  distag_event event = DISTAG_EVENT_INIT;
  distag_future *down = NULL, *other = NULL;
  start();
  CHECK_INT(pthread_create(&taker, NULL, take_until_the_end, NULL), 0);
  CHECK_OK(distag_worker_shutdown_async(caller, 120 * DISTAG_SECOND, &other, &err));
  CHECK_OK(distag_worker_shutdown(host, 120 * DISTAG_SECOND, NULL, &err));
  pthread_join(taker, NULL);
  CHECK_INT(atomic_load(&last_answer), DISTAG_E_INVALID_STATE);
  CHECK_OK(distag_future_wait(other, 120 * DISTAG_SECOND, &err));
  CHECK_FAILS(distag_future_post(other, host, 1, &err), DISTAG_E_INVALID_STATE, "down");
  distag_future_release(other);
  distag_worker_release(host);
  distag_worker_release(caller);

  start();
  CHECK_OK(distag_worker_shutdown_async(host, 120 * DISTAG_SECOND, &down, &err));  // waits for the other one
  CHECK_OK(distag_future_post(down, host, kTagDone, &err));
  CHECK_OK(distag_worker_shutdown_async(caller, 120 * DISTAG_SECOND, &other, &err));
  event = take(120 * DISTAG_SECOND);
  CHECK(event.kind == DISTAG_EVENT_FUTURE && event.tag == kTagDone);
  distag_future_release(event.future);
  CHECK_FAILS(distag_worker_take_event(host, DISTAG_FOREVER, &event, &err), DISTAG_E_INVALID_STATE, "down");
  /* The worker has left, and no thread has waited for its future yet. */
  CHECK_FAILS(distag_worker_wait(host, DISTAG_FOREVER, &err), DISTAG_E_INVALID_STATE, "down");
  CHECK_FAILS(distag_future_post(down, host, kTagDone, &err), DISTAG_E_INVALID_STATE, "down");
  CHECK_FAILS(distag_worker_offer(host, "late", 1, NULL, &err), DISTAG_E_INVALID_STATE, "down");
  CHECK_OK(distag_future_wait(down, 120 * DISTAG_SECOND, &err));
  CHECK_OK(distag_future_wait(other, 120 * DISTAG_SECOND, &err));
  distag_future_release(down);
  distag_future_release(other);
  distag_worker_release(host);
  distag_worker_release(caller);
}

/* A worker is released without a shutdown, with events in the queue; another was never started. */
static void released(void) {
  distag_worker_options options = group_options(0, 1, "inproc://events-unstarted");
  distag_event event = DISTAG_EVENT_INIT;
  start();
  distag_future *future = call_host();
  CHECK_OK(distag_worker_wait(host, 120 * DISTAG_SECOND, &err));
  CHECK_OK(distag_worker_poll(host, 0, DISTAG_FOREVER, NULL, &err));
  CHECK_OK(distag_future_post(future, host, 1, &err));
  distag_worker_release(host);
  check_failure(future, DISTAG_E_DISCONNECTED, "w0");
  CHECK_OK(distag_worker_shutdown(caller, 0, NULL, &err));
  distag_worker_release(caller);
  while (distag_get_handle_count() > 1) sched_yield();

  options.executor = DISTAG_EXECUTOR_HOST;
  CHECK_OK(distag_worker_create(&options, &host, &err));
  CHECK_OK(distag_worker_offer(host, "add", kTagAdd, NULL, &err));
  CHECK_FAILS(distag_worker_take_event(host, DISTAG_MILLISECOND, &event, &err), DISTAG_E_DEADLINE, "no event");
  distag_worker_release(host);
}

int main(void) {
  CHECK_OK(distag_value_create_int64(2, &two, &err));
  start();
  calls();
  answers();
  futures();
  refusals();
  what_is_lent();
  late();
  withdrawn();
  side_by_side();
  left_open();
  ends_by_events();
  released();
  distag_value_release(two);
  return check_end();
}
