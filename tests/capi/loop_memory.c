/* Memory runs out on the loop of a worker, at each allocation of a shutdown in turn: the shutdown returns in time, all
 * futures are complete, and nothing is left. Memory also runs out for good: the worker ends, and a host that waits for
 * events is told. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "capi/check.h"
#include "capi/support/group.h"
#include "capi/support/own_malloc.h"

static _Thread_local int is_loop;
static atomic_int left;        /* allocations until one fails; 0: none does */
static atomic_int is_starved;  /* the loop gets no memory at all, so that its reserve ends as well */
static _Thread_local int here; /* allocations of this thread until one fails; 0: none does */

#if HAS_OWN_MALLOC
extern void *__libc_malloc(size_t size);

/* The library uses this malloc. */
__attribute__((visibility("default"))) void *malloc(size_t size) {
  if ((is_loop && atomic_load(&left) > 0 && atomic_fetch_sub(&left, 1) == 1) || (is_loop && atomic_load(&is_starved)) ||
      (here > 0 && --here == 0)) {
    errno = ENOMEM;
    return NULL;
  }
  return __libc_malloc(size);
}
#endif

static distag_error err = DISTAG_ERROR_INIT;
static distag_reply *kept[2];
static sem_t deferred;

static int64_t now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void on_thread_start(void *user_data, const char *name) {
  (void)user_data;
  is_loop = strcmp(name, "distag-loop") == 0;
}

static distag_status defer(void *user_data, distag_invocation *invocation, distag_error *told) {
  distag_reply **reply = user_data;
  const distag_status status = distag_invocation_defer(invocation, reply, told);
  sem_post(&deferred);
  return status;
}

static void make(distag_worker *workers[2]) {
  for (int i = 0; i < 2; ++i) {
    distag_worker_options options = group_options(i, 2, "inproc://loop-memory");
    if (i == 0) options.on_thread_start = on_thread_start;
    CHECK_OK(distag_worker_create(&options, &workers[i], &err));
    CHECK_OK(distag_worker_register(workers[i], "defer", defer, &kept[i], NULL, NULL, &err));
  }
  CHECK_INT(group_start(workers, 2), 0);
}

/* Calls both ways, a value that is being made, a gathering, a context with a pass over both. */
static size_t open_all(distag_worker *workers[2], distag_future **futures, distag_context **context,
                       distag_rref **rref) {
  distag_call_options forever = DISTAG_CALL_OPTIONS_INIT;
  distag_tensor *x = NULL, *y = NULL;
  distag_value *arg, *result = NULL;
  forever.timeout_ns = DISTAG_FOREVER;
  CHECK_OK(distag_context_create(workers[0], context, &err));
  CHECK_OK(distag_ones(DISTAG_FLOAT32, NULL, 0, &x, &err));
  CHECK_OK(distag_tensor_set_requires_grad(x, 1, &err));
  arg = distag_tensor_as_value(x);
  CHECK_OK(distag_call(workers[0], *context, "w1", "neg", &arg, 1, NULL, &result, &err));
  CHECK_OK(distag_value_get_tensor(result, &y, &err));
  CHECK_OK(distag_backward(*context, &y, 1, NULL, &err));
  CHECK_OK(distag_call_async(workers[0], NULL, "w1", "defer", NULL, 0, &forever, &futures[0], &err));
  CHECK_OK(distag_call_async(workers[1], NULL, "w0", "defer", NULL, 0, &forever, &futures[1], &err));
  for (int i = 0; i < 2; ++i) {
    while (sem_wait(&deferred) != 0) {
    }
  }
  CHECK_OK(distag_remote(workers[0], NULL, "w0", "neg", &arg, 1, &forever, rref, &err));
  CHECK_OK(distag_rref_fetch_async(*rref, NULL, &forever, &futures[2], &err));
  distag_value_release(result);
  distag_tensor_release(x);
  return 3;
}

/* False when all allocations were there: the round before was the last one that failed any. */
static int run_round(int n) {
  distag_worker *workers[2] = {NULL};
  distag_future *futures[3] = {NULL};
  distag_context *context = NULL;
  distag_rref *rref = NULL;
  distag_value *report = NULL;
  make(workers);
  const size_t count = open_all(workers, futures, &context, &rref);
  const int64_t begun = now_ms();
  atomic_store(&left, n);
  const distag_status status = distag_worker_shutdown(workers[0], 50 * DISTAG_MILLISECOND, &report, &err);
  const int has_failed = atomic_exchange(&left, 0) == 0;
  CHECK_INT(status, DISTAG_OK);
  if (!CHECK(now_ms() - begun < 60000) || check_failures != 0) fprintf(stderr, "at allocation %d\n", n);
  distag_value_release(report);
  CHECK_INT(distag_future_poll(futures[0]), 1);
  CHECK_INT(distag_future_poll(futures[2]), 1);
  CHECK_OK(distag_worker_shutdown(workers[1], 50 * DISTAG_MILLISECOND, NULL, &err));
  CHECK_INT(distag_future_poll(futures[1]), 1);
  for (size_t i = 0; i < count; ++i) distag_future_release(futures[i]);
  for (int i = 0; i < 2; ++i) distag_reply_release(kept[i]);
  distag_rref_release(rref);
  distag_context_release(context);
  for (int i = 0; i < 2; ++i) distag_worker_release(workers[i]);
  CHECK_INT(distag_get_handle_count(), 0);
  return has_failed;
}

/* ---- a start that ends without the group ---- */

/* `n`: the allocation that fails; 0: all do. False when it made fewer. */
static int run_failed_start(int n) {
  distag_worker *worker = NULL;
  distag_future *start = NULL;
  distag_worker_options options = group_options(0, 2, "inproc://lonely-loop");
  options.on_thread_start = on_thread_start;
  CHECK_OK(distag_worker_create(&options, &worker, &err));
  CHECK_OK(distag_worker_start_async(worker, 20 * DISTAG_MILLISECOND, &start, &err));
  atomic_store(&left, n);
  atomic_store(&is_starved, n == 0);
  distag_error told = DISTAG_ERROR_INIT;
  distag_future_wait(start, 60 * DISTAG_SECOND, &told);
  if (!CHECK_INT(distag_future_poll(start), 1)) fprintf(stderr, "at allocation %d of a start\n", n);
  CHECK(told.code == DISTAG_E_DEADLINE || told.code == DISTAG_E_OUT_OF_MEMORY);
  const int has_failed = atomic_exchange(&left, 0) == 0;
  atomic_store(&is_starved, 0);
  CHECK_OK(distag_worker_shutdown(worker, 0, NULL, &err));
  distag_future_release(start);
  distag_worker_release(worker);
  CHECK_INT(distag_get_handle_count(), 0);
  return has_failed;
}

static void a_start_is_told_of_its_end(void) {
  int n = 1;
  run_failed_start(0);
  while (run_failed_start(n) && check_failures == 0) ++n;
  fprintf(stderr, "%d allocations of a start\n", n - 1);
  CHECK(n > 2);
}

/* ---- a host that waits for events ---- */

typedef distag_status (*waiting)(distag_worker *worker, int64_t timeout, distag_error *err);

/* The calls that come meanwhile are not answered: they end with the worker. */
static distag_status take_all(distag_worker *worker, int64_t timeout, distag_error *told) {
  distag_event event = DISTAG_EVENT_INIT;
  distag_status status;
  while ((status = distag_worker_take_event(worker, timeout, &event, told)) == DISTAG_OK) {
    CHECK_INT(event.kind, DISTAG_EVENT_CALL);
  }
  return status;
}

static distag_status wait_and_take_all(distag_worker *worker, int64_t timeout, distag_error *told) {
  while (distag_worker_wait(worker, timeout, told) == DISTAG_OK) {
    if (take_all(worker, 0, told) != DISTAG_E_DEADLINE) return told->code;
    told->code = DISTAG_OK;
  }
  return told->code;
}

/* Gives the loop of the other worker work until no thread waits for it any more. */
static void *feed(void *caller) {
  while (atomic_load(&is_starved)) {
    distag_error told = DISTAG_ERROR_INIT;
    distag_future *future = NULL;
    distag_call_async(caller, NULL, "w0", "event", NULL, 0, NULL, &future, &told);
    distag_future_wait(future, DISTAG_MILLISECOND, &told);
    distag_future_release(future);
  }
  return NULL;
}

/* `n`: the allocation that a shutdown is refused before; 0: none is asked for. False when it made fewer. */
static int run_starved_round(waiting wait, int n) {
  distag_worker *workers[2] = {NULL};
  distag_future *leaving = NULL;
  pthread_t feeder;
  for (int i = 0; i < 2; ++i) {
    distag_worker_options options = group_options(i, 2, "inproc://starved-loop");
    if (i == 0) options.on_thread_start = on_thread_start;
    if (i == 0) options.executor = DISTAG_EXECUTOR_HOST;
    CHECK_OK(distag_worker_create(&options, &workers[i], &err));
  }
  CHECK_OK(distag_worker_offer(workers[0], "event", 1, NULL, &err));
  CHECK_INT(group_start(workers, 2), 0);
  here = n;
  distag_error refused = DISTAG_ERROR_INIT;
  if (n > 0) distag_worker_shutdown_async(workers[0], DISTAG_FOREVER, &leaving, &refused);
  const int has_failed = here == 0;
  here = 0;
  atomic_store(&is_starved, 1);
  const int64_t begun = now_ms();
  CHECK_INT(pthread_create(&feeder, NULL, feed, workers[1]), 0);
  CHECK_FAILS(wait(workers[0], 120 * DISTAG_SECOND, &err), DISTAG_E_INVALID_STATE, "left its group");
  if (!CHECK(now_ms() - begun < 60000) || check_failures != 0) fprintf(stderr, "at allocation %d of the host\n", n);
  atomic_store(&is_starved, 0);
  pthread_join(feeder, NULL);
  if (leaving != NULL) CHECK_INT(distag_future_poll(leaving), 1);
  distag_future_release(leaving);
  for (int i = 0; i < 2; ++i) {
    CHECK_OK(distag_worker_shutdown(workers[i], 50 * DISTAG_MILLISECOND, NULL, &err));
    distag_worker_release(workers[i]);
  }
  CHECK_INT(distag_get_handle_count(), 0);
  return has_failed;
}

static void takers_are_told(void) {
  run_starved_round(take_all, 0);
  run_starved_round(wait_and_take_all, 0);
  int n = 1;
  while (run_starved_round(take_all, n) && check_failures == 0) ++n;
  fprintf(stderr, "%d allocations of the host\n", n - 1);
  CHECK(n > 2);
}

int main(void) {
  int n = 1;
  sem_init(&deferred, 0, 0);
  if (!HAS_OWN_MALLOC) return 0;
  a_start_is_told_of_its_end();
  takers_are_told();
  while (run_round(n) && check_failures == 0) ++n;
  fprintf(stderr, "%d allocations\n", n - 1);
  CHECK(n > 10);
  return check_end();
}
