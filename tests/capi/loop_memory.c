/* Memory that runs out on the loop of a worker, at each allocation it makes while it is shut down in turn: the shutdown
 * returns in time, all futures are complete, and nothing is left. */
#define _GNU_SOURCE
#include <errno.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "capi/check.h"
#include "capi/support/group.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HAS_OWN_MALLOC 0 /* the sanitizer's is in its place */
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define HAS_OWN_MALLOC 0
#endif
#endif
#ifndef HAS_OWN_MALLOC
#define HAS_OWN_MALLOC 1
#endif

static _Thread_local int is_loop;
static atomic_int left; /* allocations until one fails; 0: none does */

#if HAS_OWN_MALLOC
extern void *__libc_malloc(size_t size);

/* The library finds it here. */
__attribute__((visibility("default"))) void *malloc(size_t size) {
  if (is_loop && atomic_load(&left) > 0 && atomic_fetch_sub(&left, 1) == 1) {
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
  if (!CHECK(now_ms() - begun < 4000) || check_failures != 0) fprintf(stderr, "at allocation %d\n", n);
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

int main(void) {
  int n = 1;
  sem_init(&deferred, 0, 0);
  if (!HAS_OWN_MALLOC) return 0;
  while (run_round(n) && check_failures == 0) ++n;
  fprintf(stderr, "%d allocations\n", n - 1);
  CHECK(n > 10);
  return check_end();
}
