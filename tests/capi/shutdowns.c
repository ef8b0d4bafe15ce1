/* Shutdowns side by side, again, late, within callbacks, beside host code that does not end: each returns by its
 * timeout, and all tell the same. Deferred replies at the edges. */
#define _GNU_SOURCE
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <time.h>

#include "capi/check.h"
#include "capi/support/group.h"

enum { kThreads = 6, kSoonMs = 60000 /* and no timeout of another call */ };

static distag_error err = DISTAG_ERROR_INIT;

static int64_t now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* A gate that host code waits at, and a count of what came to it. */
typedef struct gate {
  sem_t came, open;
} gate;

static void gate_init(gate *g) {
  sem_init(&g->came, 0, 0);
  sem_init(&g->open, 0, 0);
}
static void gate_pass(gate *g) {
  sem_post(&g->came);
  while (sem_wait(&g->open) != 0) {
  }
}
static void gate_await(gate *g) {
  while (sem_wait(&g->came) != 0) {
  }
}

static distag_worker *make_worker(const char *rendezvous) {
  const distag_worker_options options = group_options(0, 1, rendezvous);
  distag_worker *worker = NULL;
  CHECK_OK(distag_worker_create(&options, &worker, &err));
  return worker;
}

static distag_worker *make_started(const char *rendezvous) {
  distag_worker *worker = make_worker(rendezvous);
  CHECK_OK(distag_worker_start(worker, 120 * DISTAG_SECOND, &err));
  return worker;
}

static int report_is_whole(distag_value *report) {
  int32_t clean = 0;
  return distag_value_get_bool(distag_value_get_entry(report, "clean"), &clean, NULL) == DISTAG_OK;
}

/* ---- from several threads ---- */

typedef struct caller {
  pthread_t thread;
  distag_worker *worker;
  int64_t timeout;
  distag_status status;
  int64_t took_ms;
  int has_report;
} caller;

static void *call_shutdown(void *user_data) {
  caller *c = user_data;
  distag_value *report = NULL;
  const int64_t begun = now_ms();
  c->status = distag_worker_shutdown(c->worker, c->timeout, &report, NULL);
  c->took_ms = now_ms() - begun;
  c->has_report = report != NULL && report_is_whole(report);
  distag_value_release(report);
  return NULL;
}

static void begin(caller *c, distag_worker *worker, int64_t timeout) {
  *c = (caller){.worker = worker, .timeout = timeout};
  pthread_create(&c->thread, NULL, call_shutdown, c);
}
static void end(caller *c) { pthread_join(c->thread, NULL); }

static void all_threads_get_the_report(int is_started) {
  for (int round = 0; round < 30; ++round) {
    distag_worker *worker = is_started ? make_started(group_place("several")) : make_worker(group_place("several"));
    caller callers[kThreads];
    for (int i = 0; i < kThreads; ++i) begin(&callers[i], worker, (120 + i) * DISTAG_SECOND);
    for (int i = 0; i < kThreads; ++i) {
      end(&callers[i]);
      CHECK_INT(callers[i].status, DISTAG_OK);
      CHECK(callers[i].has_report);
    }
    CHECK_FAILS(distag_worker_start(worker, DISTAG_SECOND, &err), DISTAG_E_INVALID_STATE, "shut down");
    distag_worker_release(worker);
  }
}

static gate destroying;
static void destroy_at_gate(void *user_data) {
  (void)user_data;
  gate_pass(&destroying);
}

static distag_status nothing(void *user_data, distag_invocation *invocation, distag_error *told) {
  (void)user_data, (void)invocation, (void)told;
  return DISTAG_OK;
}

static void one_during_the_destroy_functions_of_another(void) {
  gate_init(&destroying);
  distag_worker *worker = make_started(group_place("destroying"));
  CHECK_OK(distag_worker_register(worker, "f", nothing, NULL, destroy_at_gate, NULL, &err));
  caller first, second;
  begin(&first, worker, 120 * DISTAG_SECOND);
  gate_await(&destroying);
  begin(&second, worker, 10 * DISTAG_MILLISECOND);
  end(&second);
  CHECK_INT(second.status, DISTAG_E_DEADLINE);
  CHECK(second.took_ms < kSoonMs);
  begin(&second, worker, 120 * DISTAG_SECOND);
  sem_post(&destroying.open);
  end(&first);
  end(&second);
  CHECK_INT(first.status, DISTAG_OK);
  CHECK_INT(second.status, DISTAG_OK);
  CHECK(second.has_report);
  distag_worker_release(worker);
}

static distag_worker *own;
static distag_status status_within;
static void shut_down_within(void *user_data) {
  (void)user_data;
  status_within = distag_worker_shutdown(own, DISTAG_FOREVER, NULL, NULL);
}

static void one_within_a_destroy_function_is_refused(void) {
  own = make_started(group_place("within"));
  CHECK_OK(distag_worker_register(own, "f", nothing, NULL, shut_down_within, NULL, &err));
  CHECK_OK(distag_worker_shutdown(own, 120 * DISTAG_SECOND, NULL, &err));
  CHECK_INT(status_within, DISTAG_E_INVALID_STATE);
  distag_worker_release(own);
}

/* ---- beside host code that does not end ---- */

static gate working;
static void wait_at_gate(void *user_data, distag_future *future) {
  (void)user_data, (void)future;
  gate_pass(&working);
}

static void a_callback_that_does_not_end(void) {
  gate_init(&working);
  distag_worker *worker = make_started(group_place("callback"));
  distag_future *future = NULL, *shutdown = NULL;
  CHECK_OK(distag_call_async(worker, NULL, "w0", "zeros", NULL, 0, NULL, &future, &err));
  CHECK_OK(distag_future_on_done(future, wait_at_gate, NULL, NULL, &err));
  gate_await(&working);
  caller one, other;
  begin(&one, worker, 20 * DISTAG_MILLISECOND);
  begin(&other, worker, 0);
  end(&one);
  end(&other);
  CHECK_INT(one.status, DISTAG_E_DEADLINE);
  CHECK(one.took_ms < kSoonMs);
  CHECK_INT(other.status, DISTAG_E_DEADLINE);
  CHECK(other.took_ms < kSoonMs);
  /* The worker has left all the same; only its threads are not all joined. */
  CHECK_OK(distag_worker_shutdown_async(worker, 20 * DISTAG_MILLISECOND, &shutdown, &err));
  const int64_t begun = now_ms();
  CHECK_FAILS(distag_future_wait(shutdown, 20 * DISTAG_MILLISECOND, &err), DISTAG_E_DEADLINE, "");
  CHECK(now_ms() - begun < kSoonMs);
  sem_post(&working.open);
  CHECK_OK(distag_future_wait(shutdown, 120 * DISTAG_SECOND, &err));
  CHECK_OK(distag_worker_shutdown(worker, 0, NULL, &err));
  distag_future_release(shutdown);
  distag_future_release(future);
  distag_worker_release(worker);
}

/* ---- asynchronously, of a worker that is down ---- */

static void an_asynchronous_one_of_a_worker_that_is_down(int is_started) {
  distag_worker *worker = is_started ? make_started(group_place("down")) : make_worker(group_place("down"));
  distag_future *future = NULL;
  distag_value *report = NULL;
  CHECK_OK(distag_worker_shutdown(worker, 120 * DISTAG_SECOND, NULL, &err));
  CHECK_OK(distag_worker_shutdown_async(worker, 120 * DISTAG_SECOND, &future, &err));
  CHECK_OK(distag_future_wait(future, 120 * DISTAG_SECOND, &err));
  CHECK_OK(distag_future_get_value(future, &report, &err));
  CHECK(report != NULL && report_is_whole(report));
  distag_future_release(future);
  distag_worker_release(worker);
}

/* ---- deferred replies ---- */

static distag_reply *kept;
static sem_t deferred;
static distag_status defer_and_keep(void *user_data, distag_invocation *invocation, distag_error *told) {
  (void)user_data;
  const distag_status status = distag_invocation_defer(invocation, &kept, told);
  sem_post(&deferred);
  return status;
}

static void a_reply_after_the_shutdown_is_refused(void) {
  sem_init(&deferred, 0, 0);
  distag_worker *worker = make_worker(group_place("late-reply"));
  distag_future *future = NULL;
  CHECK_OK(distag_worker_register(worker, "keep", defer_and_keep, NULL, NULL, NULL, &err));
  CHECK_OK(distag_worker_start(worker, 120 * DISTAG_SECOND, &err));
  CHECK_OK(distag_call_async(worker, NULL, "w0", "keep", NULL, 0, NULL, &future, &err));
  while (sem_wait(&deferred) != 0) {
  }
  /* The function deferred, and may not have returned yet: then the first shutdown says so, and the second waits. */
  if (distag_worker_shutdown(worker, 0, NULL, &err) != DISTAG_OK) {
    CHECK_INT(err.code, DISTAG_E_DEADLINE);
    CHECK_OK(distag_worker_shutdown(worker, 120 * DISTAG_SECOND, NULL, &err));
  }
  CHECK_FAILS(distag_future_wait(future, 120 * DISTAG_SECOND, &err), DISTAG_E_CANCELLED, "shut down");
  CHECK_FAILS(distag_reply_finish(kept, NULL, NULL, &err), DISTAG_E_INVALID_STATE, "shut down");
  CHECK_FAILS(distag_reply_finish(kept, NULL, NULL, &err), DISTAG_E_INVALID_STATE, "shut down");
  CHECK_INT(distag_reply_is_cancelled(kept), 1);
  distag_reply_release(kept);
  distag_future_release(future);
  distag_worker_release(worker);
}

/* A language with destructors does this: the reply goes before the function returns. */
static distag_status defer_and_fail(void *user_data, distag_invocation *invocation, distag_error *told) {
  distag_reply *reply = NULL;
  if (distag_invocation_defer(invocation, &reply, told) != DISTAG_OK) return told->code;
  distag_reply_release(reply);
  return user_data == NULL ? DISTAG_OK : distag_error_set(told, 1234, "no model is loaded");
}

static void a_function_that_defers_and_fails_answers_its_failure(void) {
  distag_worker *worker = make_worker(group_place("defer-fail"));
  CHECK_OK(distag_worker_register(worker, "fail", defer_and_fail, &err, NULL, NULL, &err));
  CHECK_OK(distag_worker_register(worker, "drop", defer_and_fail, NULL, NULL, NULL, &err));
  CHECK_OK(distag_worker_start(worker, 120 * DISTAG_SECOND, &err));
  CHECK_FAILS(distag_call(worker, NULL, "w0", "fail", NULL, 0, NULL, NULL, &err), 1234, "no model is loaded");
  CHECK_INT(err.flags & DISTAG_ERROR_MAY_HAVE_RUN, DISTAG_ERROR_MAY_HAVE_RUN);
  CHECK_FAILS(distag_call(worker, NULL, "w0", "drop", NULL, 0, NULL, NULL, &err), DISTAG_E_REMOTE, "dropped");
  CHECK_OK(distag_worker_shutdown(worker, 120 * DISTAG_SECOND, NULL, &err));
  distag_worker_release(worker);
}

int main(void) {
  all_threads_get_the_report(0);
  all_threads_get_the_report(1);
  one_during_the_destroy_functions_of_another();
  one_within_a_destroy_function_is_refused();
  a_callback_that_does_not_end();
  an_asynchronous_one_of_a_worker_that_is_down(0);
  an_asynchronous_one_of_a_worker_that_is_down(1);
  a_reply_after_the_shutdown_is_refused();
  a_function_that_defers_and_fails_answers_its_failure();
  return check_end();
}
