/* Functions that are withdrawn: while they run, from within, and registered again under the name. */
#include <pthread.h>
#include <stdatomic.h>

#include "capi/check.h"
#include "capi/support/group.h"

static distag_worker *w;
static atomic_int destroyed, runs, go;

static void count_destroy(void *user_data) { atomic_fetch_add((atomic_int *)user_data, 1); }

static distag_status answer_int(distag_invocation *invocation, int64_t whole, distag_error *err) {
  distag_value *value = NULL;
  distag_value_create_int64(whole, &value, err);
  distag_invocation_return(invocation, value, err);
  distag_value_release(value);
  return err->code;
}

static distag_status slow(void *user_data, distag_invocation *invocation, distag_error *err) {
  (void)user_data;
  atomic_fetch_add(&runs, 1);
  while (atomic_load(&go) == 0) {
  }
  return answer_int(invocation, 1, err);
}

static distag_status quick(void *user_data, distag_invocation *invocation, distag_error *err) {
  (void)user_data;
  return answer_int(invocation, 2, err);
}

static distag_status withdraw_itself(void *user_data, distag_invocation *invocation, distag_error *err) {
  distag_error inner = DISTAG_ERROR_INIT;
  (void)user_data;
  CHECK_INT(distag_worker_unregister(distag_invocation_get_worker(invocation), "suicidal", 0, &inner),
            DISTAG_E_INVALID_STATE);
  CHECK(strstr(inner.message, "suicidal") != NULL && strstr(inner.message, "within") != NULL);
  /* The function may withdraw another one. */
  inner.code = DISTAG_OK;
  CHECK_INT(distag_worker_unregister(distag_invocation_get_worker(invocation), "other", DISTAG_FOREVER, &inner),
            DISTAG_OK);
  return answer_int(invocation, 3, err);
}

static void offer(const char *name, distag_function function) {
  distag_error err = DISTAG_ERROR_INIT;
  CHECK_OK(distag_worker_register(w, name, function, &destroyed, count_destroy, NULL, &err));
}

static int64_t ask(const char *name) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_value *value = NULL;
  int64_t whole = -1;
  CHECK_OK(distag_call(w, NULL, "w0", name, NULL, 0, NULL, &value, &err));
  CHECK_OK(distag_value_get_int64(value, &whole, &err));
  distag_value_release(value);
  return whole;
}

static void idle_ones(void) {
  distag_error err = DISTAG_ERROR_INIT;
  CHECK_FAILS(distag_worker_unregister(w, "nobody", 0, &err), DISTAG_E_NOT_FOUND, "nobody");
  CHECK_FAILS(distag_worker_unregister(w, "distag.all_gather", 0, &err), DISTAG_E_NOT_FOUND, "distag.all_gather");
  offer("f", quick);
  CHECK_INT(ask("f"), 2);
  CHECK_OK(distag_worker_unregister(w, "f", DISTAG_FOREVER, &err));
  CHECK_INT(atomic_load(&destroyed), 1);
  CHECK_FAILS(distag_call(w, NULL, "w0", "f", NULL, 0, NULL, NULL, &err), DISTAG_E_NOT_FOUND, "\"f\"");
  CHECK_FAILS(distag_worker_unregister(w, "f", 0, &err), DISTAG_E_NOT_FOUND, "\"f\"");
  offer("f", quick);
  CHECK_INT(ask("f"), 2);
  CHECK_OK(distag_worker_unregister(w, "f", DISTAG_FOREVER, &err));
  CHECK_OK(distag_worker_register(w, "f", quick, NULL, NULL, NULL, &err)); /* nothing to destroy */
  CHECK_OK(distag_worker_unregister(w, "f", DISTAG_FOREVER, &err));
  offer("neg", quick); /* hides a built-in op as long as it is there */
  CHECK_INT(ask("neg"), 2);
  CHECK_OK(distag_worker_unregister(w, "neg", DISTAG_FOREVER, &err));
  CHECK_FAILS(distag_call(w, NULL, "w0", "neg", NULL, 0, NULL, NULL, &err), DISTAG_E_INVALID_ARGUMENT, "neg");
}

static distag_future *begin_slow(void) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_future *future = NULL;
  atomic_store(&go, 0);
  atomic_store(&runs, 0);
  offer("slow", slow);
  CHECK_OK(distag_call_async(w, NULL, "w0", "slow", NULL, 0, NULL, &future, &err));
  while (atomic_load(&runs) == 0) {
  }
  return future;
}

static void running_ones(void) {
  distag_error err = DISTAG_ERROR_INIT;
  atomic_store(&destroyed, 0);
  distag_future *future = begin_slow();
  CHECK_FAILS(distag_worker_unregister(w, "slow", DISTAG_MILLISECOND, &err), DISTAG_E_DEADLINE, "slow");
  CHECK_FAILS(distag_call(w, NULL, "w0", "slow", NULL, 0, NULL, NULL, &err), DISTAG_E_NOT_FOUND, "slow");
  CHECK_INT(atomic_load(&destroyed), 0);
  offer("slow", quick);
  CHECK_INT(ask("slow"), 2);
  atomic_store(&go, 1);
  CHECK_OK(distag_future_wait(future, DISTAG_FOREVER, &err)); /* what ran goes on to its end */
  while (atomic_load(&destroyed) == 0) {
  }
  CHECK_OK(distag_worker_unregister(w, "slow", DISTAG_FOREVER, &err));
  CHECK_INT(atomic_load(&destroyed), 2);
  distag_future_release(future);
}

/* Lets the function go on once it cannot be found any more. */
static void *let_go(void *unused) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_call_options brief = DISTAG_CALL_OPTIONS_INIT;
  (void)unused;
  brief.timeout_ns = DISTAG_MILLISECOND;
  while (distag_call(w, NULL, "w0", "slow", NULL, 0, &brief, NULL, &err) != DISTAG_E_NOT_FOUND) err.code = DISTAG_OK;
  atomic_store(&go, 1);
  return NULL;
}

static void ok_comes_after_the_last_run(void) {
  distag_error err = DISTAG_ERROR_INIT;
  pthread_t thread;
  atomic_store(&destroyed, 0);
  distag_future *future = begin_slow();
  CHECK_INT(pthread_create(&thread, NULL, let_go, NULL), 0);
  CHECK_OK(distag_worker_unregister(w, "slow", DISTAG_FOREVER, &err));
  CHECK_INT(atomic_load(&destroyed), 1);
  pthread_join(thread, NULL);
  CHECK_OK(distag_future_wait(future, DISTAG_FOREVER, &err));
  distag_future_release(future);
}

static void from_within(void) {
  atomic_store(&destroyed, 0);
  offer("suicidal", withdraw_itself);
  offer("other", quick);
  CHECK_INT(ask("suicidal"), 3);
  CHECK_INT(atomic_load(&destroyed), 1);
}

/* With the host executor what waits in the queue still runs, in the wait itself. */
static void polled(void) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_worker *worker = NULL;
  distag_future *future = NULL;
  distag_worker_options options = group_options(0, 1, "inproc://unregister-polled");
  options.executor = DISTAG_EXECUTOR_HOST;
  atomic_store(&destroyed, 0);
  CHECK_OK(distag_worker_create(&options, &worker, &err));
  CHECK_OK(distag_worker_register(worker, "early", quick, &destroyed, count_destroy, NULL, &err));
  CHECK_OK(distag_worker_unregister(worker, "early", DISTAG_FOREVER, &err));
  CHECK_INT(atomic_load(&destroyed), 1);
  CHECK_OK(distag_worker_register(worker, "f", quick, &destroyed, count_destroy, NULL, &err));
  CHECK_OK(distag_worker_start(worker, 120 * DISTAG_SECOND, &err));
  CHECK_OK(distag_call_async(worker, NULL, "w0", "f", NULL, 0, NULL, &future, &err));
  distag_stats stats = DISTAG_STATS_INIT;
  do {
    CHECK_OK(distag_worker_get_stats(worker, &stats, &err));
  } while (stats.callbacks_waiting == 0);
  CHECK_OK(distag_worker_unregister(worker, "f", DISTAG_FOREVER, &err));
  CHECK_INT(atomic_load(&destroyed), 2);
  CHECK_OK(distag_future_wait(future, DISTAG_FOREVER, &err));
  distag_future_release(future);
  CHECK_OK(distag_worker_shutdown(worker, 120 * DISTAG_SECOND, NULL, &err));
  distag_worker_release(worker);
}

int main(void) {
  distag_error err = DISTAG_ERROR_INIT;
  const distag_worker_options options = group_options(0, 1, "inproc://unregister");
  CHECK_OK(distag_worker_create(&options, &w, &err));
  CHECK_OK(distag_worker_start(w, 120 * DISTAG_SECOND, &err));
  idle_ones();
  running_ones();
  ok_comes_after_the_last_run();
  from_within();
  polled();
  CHECK_OK(distag_worker_shutdown(w, 120 * DISTAG_SECOND, NULL, &err));
  CHECK_FAILS(distag_worker_unregister(w, "suicidal", 0, &err), DISTAG_E_INVALID_STATE, "down");
  distag_worker_release(w);
  return check_end();
}
