/* distag_worker_wait: until there is something to poll, on any thread, running nothing. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "capi/check.h"
#include "capi/support/group.h"

enum { kWaiters = 3 };

static distag_error err = DISTAG_ERROR_INIT;
static distag_worker *host, *caller;
static atomic_int served;
static _Atomic(distag_status) answers[kWaiters];

static distag_status serve(void *user_data, distag_invocation *invocation, distag_error *told) {
  (void)user_data, (void)invocation, (void)told;
  atomic_fetch_add(&served, 1);
  return DISTAG_OK;
}

/* On a thread of the pool of the other worker: waits there, too. */
static distag_status wait_in_function(void *user_data, distag_invocation *invocation, distag_error *told) {
  (void)user_data, (void)invocation;
  return distag_worker_wait(host, 120 * DISTAG_SECOND, told);
}

static distag_future *call_host(void) {
  distag_future *future = NULL;
  CHECK_OK(distag_call_async(caller, NULL, "w0", "serve", NULL, 0, NULL, &future, &err));
  return future;
}

static void finish(distag_future *future) {
  while (!distag_future_poll(future) && check_failures == 0) {
    CHECK_OK(distag_worker_wait(host, 120 * DISTAG_SECOND, &err));
    CHECK_OK(distag_worker_poll(host, 0, DISTAG_FOREVER, NULL, &err));
    if (distag_future_wait(future, DISTAG_SECOND, NULL) == DISTAG_OK) break;
  }
  distag_future_release(future);
}

static void until_there_is_something(void) {
  CHECK_OK(distag_worker_poll(host, 0, DISTAG_FOREVER, NULL, &err));
  CHECK_FAILS(distag_worker_wait(host, 0, &err), DISTAG_E_DEADLINE, "0 ms");
  CHECK_FAILS(distag_worker_wait(host, 5 * DISTAG_MILLISECOND, &err), DISTAG_E_DEADLINE, "5 ms");
  distag_future *future = call_host();
  CHECK_OK(distag_worker_wait(host, DISTAG_FOREVER, &err));
  CHECK_INT(atomic_load(&served), 0); /* it runs nothing */
  CHECK_OK(distag_worker_wait(host, 0, &err));
  CHECK_OK(distag_worker_wait(host, DISTAG_FOREVER, &err)); /* still there */
  finish(future);
  CHECK_INT(atomic_load(&served), 1);
  CHECK_FAILS(distag_worker_wait(host, 0, &err), DISTAG_E_DEADLINE, "poll");
}

static void *wait_for_it(void *place) {
  distag_error told = DISTAG_ERROR_INIT;
  distag_status status = DISTAG_OK;
  /* Tasks of the worker itself may come and go: waits until the worker is down. */
  while (status == DISTAG_OK || status == DISTAG_E_DEADLINE) {
    told.code = DISTAG_OK;
    status = distag_worker_wait(host, DISTAG_FOREVER, &told);
  }
  atomic_store((_Atomic(distag_status) *)place, status);
  return NULL;
}

/* Two other threads: one polls, one waits. */
static void on_threads_of_others(void) {
  distag_future *future = NULL, *waiting = NULL;
  CHECK_OK(distag_call_async(caller, NULL, "w1", "wait_in_function", NULL, 0, NULL, &waiting, &err));
  future = call_host();
  while (!distag_future_poll(waiting)) sched_yield(); /* a wait of this thread would run what there is */
  CHECK_OK(distag_future_wait(waiting, 0, &err));
  distag_future_release(waiting);
  finish(future);
}

static void wrong_workers(void) {
  CHECK_FAILS(distag_worker_wait(caller, 0, &err), DISTAG_E_INVALID_STATE, "DISTAG_EXECUTOR_HOST");
  CHECK_FAILS(distag_worker_wait(host, -7, &err), DISTAG_E_INVALID_ARGUMENT, "timeout_ns");
  distag_value *text = NULL;
  CHECK_OK(distag_value_create_text("w0", &text, &err));
  CHECK_FAILS(distag_worker_wait((distag_worker *)text, 0, &err), DISTAG_E_INVALID_ARGUMENT, "a value handle");
  distag_value_release(text);
}

/* A shutdown wakes waiting threads; later waits are refused. */
static void beside_a_shutdown(void) {
  pthread_t waiters[kWaiters];
  for (int i = 0; i < kWaiters; ++i) CHECK_INT(pthread_create(&waiters[i], NULL, wait_for_it, (void *)&answers[i]), 0);
  distag_future *future = NULL;
  CHECK_OK(distag_worker_shutdown_async(caller, 120 * DISTAG_SECOND, &future, &err));
  CHECK_OK(distag_worker_shutdown(host, 120 * DISTAG_SECOND, NULL, &err));
  CHECK_OK(distag_future_wait(future, DISTAG_FOREVER, &err));
  distag_future_release(future);
  for (int i = 0; i < kWaiters; ++i) {
    pthread_join(waiters[i], NULL);
    CHECK_INT(atomic_load(&answers[i]), DISTAG_E_INVALID_STATE);
  }
  CHECK_FAILS(distag_worker_wait(host, DISTAG_FOREVER, &err), DISTAG_E_INVALID_STATE, "down");
}

/* Never started: there may be something to poll all the same, and a shutdown ends the wait. */
static void before_the_start(void) {
  distag_worker_options options = group_options(0, 1, "inproc://waits-unstarted");
  options.executor = DISTAG_EXECUTOR_HOST;
  CHECK_OK(distag_worker_create(&options, &host, &err));
  CHECK_FAILS(distag_worker_wait(host, DISTAG_MILLISECOND, &err), DISTAG_E_DEADLINE, "poll");
  CHECK_OK(distag_worker_shutdown(host, 0, NULL, &err));
  CHECK_FAILS(distag_worker_wait(host, DISTAG_FOREVER, &err), DISTAG_E_INVALID_STATE, "down");
  distag_worker_release(host);
}

int main(void) {
  distag_worker *both[2];
  before_the_start();
  for (int32_t rank = 0; rank < 2; ++rank) {
    distag_worker_options options = group_options(rank, 2, "inproc://waits");
    if (rank == 0) options.executor = DISTAG_EXECUTOR_HOST;
    CHECK_OK(distag_worker_create(&options, &both[rank], &err));
    CHECK_OK(distag_worker_register(both[rank], "serve", serve, NULL, NULL, NULL, &err));
    CHECK_OK(distag_worker_register(both[rank], "wait_in_function", wait_in_function, NULL, NULL, NULL, &err));
  }
  host = both[0];
  caller = both[1];
  CHECK_INT(group_start(both, 2), 0);
  until_there_is_something();
  on_threads_of_others();
  wrong_workers();
  beside_a_shutdown();
  distag_worker_release(host);
  distag_worker_release(caller);
  return check_end();
}
