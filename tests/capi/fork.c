/* In a forked child the parent's handles answer INVALID_STATE, their release frees memory only, and new workers work.
 */
#define _GNU_SOURCE
#include <sys/wait.h>
#include <unistd.h>

#include "capi/check.h"
#include "capi/support/group.h"

static distag_error err = DISTAG_ERROR_INIT;
static int destroyed;
static distag_worker *of_parent; /* in the child: what must not run there */

static void count_destroy(void *user_data) { ++*(int *)user_data; }

static distag_status answer(void *user_data, distag_invocation *invocation, distag_error *told) {
  (void)user_data;
  CHECK(distag_invocation_get_worker(invocation) != of_parent);
  return distag_invocation_return(invocation, distag_invocation_get_arg(invocation, 0), told);
}

static distag_worker *start_worker(const char *rendezvous, uint32_t executor) {
  distag_worker_options options = group_options(0, 1, rendezvous);
  distag_worker *worker = NULL;
  options.executor = executor;
  CHECK_OK(distag_worker_create(&options, &worker, &err));
  CHECK_OK(distag_worker_register(worker, "answer", answer, &destroyed, count_destroy, NULL, &err));
  CHECK_OK(distag_worker_start(worker, 120 * DISTAG_SECOND, &err));
  return worker;
}

typedef struct {
  distag_worker *worker;
  distag_context *context, *local;
  distag_tensor *tensor, *borrowed, *computed;
  distag_value *value;
  distag_future *future;
  distag_gradients *gradients;
} handles;

static handles make(uint32_t executor) {
  static const double data = 3;
  handles h;
  memset(&h, 0, sizeof h);
  h.worker = start_worker(group_place("parent"), executor);
  CHECK_OK(distag_context_create(h.worker, &h.context, &err));
  CHECK_OK(distag_context_create(NULL, &h.local, &err));
  CHECK_OK(distag_full(2, DISTAG_FLOAT64, NULL, 0, &h.tensor, &err));
  CHECK_OK(distag_tensor_create_borrowed(&data, 8, DISTAG_FLOAT64, NULL, NULL, 0, &destroyed, count_destroy,
                                         &h.borrowed, &err));
  CHECK_OK(distag_tensor_set_requires_grad(h.tensor, 1, &err));
  CHECK_OK(distag_mul(h.tensor, h.tensor, &h.computed, &err));
  CHECK_OK(distag_value_create_text("text", &h.value, &err));
  CHECK_OK(distag_call_async(h.worker, NULL, "w0", "answer", &h.value, 1, NULL, &h.future, &err));
  CHECK_OK(distag_get_gradients(h.local, &h.gradients, &err));
  distag_stats stats = DISTAG_STATS_INIT;
  while (executor == DISTAG_EXECUTOR_HOST && stats.callbacks_waiting == 0 && check_failures == 0) {
    CHECK_OK(distag_worker_get_stats(h.worker, &stats, &err)); /* a callback of the parent waits for its poll */
  }
  return h;
}

static void release(handles *h) {
  distag_future_release(h->future);
  distag_gradients_release(h->gradients);
  distag_context_release(h->context);
  distag_context_release(h->local);
  distag_tensor_release(h->tensor);
  distag_tensor_release(h->borrowed);
  distag_tensor_release(h->computed);
  distag_value_release(h->value);
  distag_worker_release(h->worker);
}

static void refused_in_child(handles *h) {
  distag_tensor *t = NULL;
  distag_value *v = NULL;
  distag_context *c = NULL;
  distag_gradients *g = NULL;
  const char *text = NULL;
  CHECK_FAILS(distag_neg(h->tensor, &t, &err), DISTAG_E_INVALID_STATE, "fork");
  CHECK_FAILS(distag_value_get_text(h->value, &text, &err), DISTAG_E_INVALID_STATE, "fork");
  CHECK_FAILS(distag_call(h->worker, NULL, "w0", "answer", NULL, 0, NULL, &v, &err), DISTAG_E_INVALID_STATE, "fork");
  CHECK_FAILS(distag_worker_shutdown(h->worker, DISTAG_FOREVER, &v, &err), DISTAG_E_INVALID_STATE, "fork");
  CHECK_FAILS(distag_worker_poll(h->worker, 0, 0, NULL, &err), DISTAG_E_INVALID_STATE, "fork");
  CHECK_FAILS(distag_future_wait(h->future, DISTAG_FOREVER, &err), DISTAG_E_INVALID_STATE, "fork");
  CHECK_FAILS(distag_context_create(h->worker, &c, &err), DISTAG_E_INVALID_STATE, "fork");
  CHECK_FAILS(distag_get_gradients(h->context, &g, &err), DISTAG_E_INVALID_STATE, "fork");
  CHECK_FAILS(distag_backward(h->local, &h->computed, 1, NULL, &err), DISTAG_E_INVALID_STATE, "fork");
  CHECK_INT(distag_gradients_get_count(h->gradients), 0);
  CHECK_INT(distag_worker_get_rank(h->worker), -1);
  CHECK_INT(distag_worker_get_fd(h->worker), -1);
  CHECK(distag_tensor_get_data(h->tensor) == NULL);
  CHECK_INT(distag_get_handle_count(), 0);
}

static void child(handles *h) {
  distag_value *value = NULL, *result = NULL;
  refused_in_child(h);
  destroyed = 0;
  of_parent = h->worker;
  distag_worker *worker = start_worker(group_place("parent"), DISTAG_EXECUTOR_HOST); /* even under the same names */
  CHECK_OK(distag_value_create_int64(5, &value, &err));
  CHECK_OK(distag_call(worker, NULL, "w0", "answer", &value, 1, NULL, &result, &err));
  CHECK_INT(distag_value_get_kind(result), DISTAG_VALUE_INT64);
  distag_value_release(result);
  distag_value_release(value);
  CHECK_OK(distag_worker_shutdown(worker, 120 * DISTAG_SECOND, NULL, &err));
  distag_worker_release(worker);
  CHECK_INT(destroyed, 1);
  release(h);
  CHECK_INT(destroyed, 1); /* no host code of the parent's */
}

/* The pool of the parent replaces a thread that waits by another one, for calls that wait: a child does not. */
static distag_status fork_within(void *user_data, distag_invocation *invocation, distag_error *told) {
  distag_stats stats = DISTAG_STATS_INIT;
  distag_worker *own = distag_invocation_get_worker(invocation);
  int status = -1;
  (void)user_data;
  while (stats.callbacks_waiting == 0 && told->code == DISTAG_OK) distag_worker_get_stats(own, &stats, told);
  const pid_t pid = fork();
  if (pid == 0) {
    distag_value *value = NULL, *result = NULL;
    alarm(120);
    of_parent = own;
    distag_worker *worker = start_worker(group_place("parent"), DISTAG_EXECUTOR_POOL);
    CHECK_OK(distag_value_create_int64(5, &value, &err));
    CHECK_OK(distag_call(worker, NULL, "w0", "answer", &value, 1, NULL, &result, &err));
    distag_value_release(value);
    distag_value_release(result);
    CHECK_OK(distag_worker_shutdown(worker, 120 * DISTAG_SECOND, NULL, &err));
    distag_worker_release(worker);
    _exit(check_end());
  }
  CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status));
  CHECK_INT(WEXITSTATUS(status), 0);
  return DISTAG_OK;
}

static void fork_in_a_function(void) {
  distag_worker_options options = group_options(0, 1, group_place("parent"));
  distag_worker *worker = NULL;
  distag_future *futures[2];
  distag_value *value = NULL;
  options.thread_count = 1;
  CHECK_OK(distag_worker_create(&options, &worker, &err));
  CHECK_OK(distag_worker_register(worker, "answer", answer, NULL, NULL, NULL, &err));
  CHECK_OK(distag_worker_register(worker, "fork", fork_within, NULL, NULL, NULL, &err));
  CHECK_OK(distag_worker_start(worker, 120 * DISTAG_SECOND, &err));
  CHECK_OK(distag_value_create_int64(5, &value, &err));
  CHECK_OK(distag_call_async(worker, NULL, "w0", "fork", NULL, 0, NULL, &futures[0], &err));
  CHECK_OK(distag_call_async(worker, NULL, "w0", "answer", &value, 1, NULL, &futures[1], &err));
  for (int i = 0; i < 2; ++i) {
    CHECK_OK(distag_future_wait(futures[i], DISTAG_FOREVER, &err));
    distag_future_release(futures[i]);
  }
  distag_value_release(value);
  CHECK_OK(distag_worker_shutdown(worker, 120 * DISTAG_SECOND, NULL, &err));
  distag_worker_release(worker);
}

static void fork_with(uint32_t executor) {
  handles h = make(executor);
  int status = -1;
  const pid_t pid = fork();
  if (pid == 0) {
    child(&h);
    _exit(check_end());
  }
  CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status));
  CHECK_INT(WEXITSTATUS(status), 0);
  CHECK_OK(distag_future_wait(h.future, DISTAG_FOREVER, &err)); /* the parent is as it was */
  CHECK_OK(distag_worker_shutdown(h.worker, 120 * DISTAG_SECOND, NULL, &err));
  destroyed = 0;
  release(&h);
  CHECK_INT(destroyed, 1); /* the borrowed tensor's */
}

int main(void) {
  fork_with(DISTAG_EXECUTOR_POOL);
  fork_with(DISTAG_EXECUTOR_HOST);
  fork_in_a_function();
  return check_end();
}
