/* A callback that ends its thread (pthread_exit) does not end the process: it counts as a callback that never returns.
 * Each kind of callback in a process of its own. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "capi/check.h"
#include "capi/support/group.h"

static distag_error err = DISTAG_ERROR_INIT;
static atomic_int reached;
static distag_worker *workers[2];

/* Waits for the callback; the thread goes away in it. */
static void await_reached(void) {
  while (atomic_load(&reached) == 0) sched_yield();
}

static void leave(void) {
  atomic_store(&reached, 1);
  pthread_exit(NULL);
}

static void leaving_destroy(void *user_data) {
  (void)user_data;
  leave();
}
static distag_status leaving_function(void *user_data, distag_invocation *invocation, distag_error *told) {
  (void)user_data, (void)invocation, (void)told;
  leave();
  return DISTAG_OK;
}
static distag_status plain_function(void *user_data, distag_invocation *invocation, distag_error *told) {
  (void)user_data;
  return distag_invocation_return(invocation, distag_invocation_get_arg(invocation, 0), told);
}
static void leaving_callback(void *user_data, distag_future *future) {
  (void)user_data, (void)future;
  leave();
}
static distag_status leaving_continuation(void *user_data, distag_future *future, distag_value **out_value,
                                          distag_error *told) {
  (void)user_data, (void)future, (void)out_value, (void)told;
  leave();
  return DISTAG_OK;
}
static void leaving_member(void *user_data, distag_worker *worker, const distag_member *member) {
  (void)user_data, (void)worker, (void)member;
  leave();
}
static distag_status leaving_hook(void *user_data, distag_tensor *gradient, distag_tensor **out_gradient,
                                  distag_error *told) {
  (void)user_data, (void)gradient, (void)out_gradient, (void)told;
  leave();
  return DISTAG_OK;
}
static distag_status leaving_op(void *user_data, distag_tensor *const *inputs, size_t input_count,
                                distag_tensor **out_outputs, size_t output_count, distag_error *told) {
  (void)user_data, (void)inputs, (void)input_count, (void)out_outputs, (void)output_count, (void)told;
  leave();
  return DISTAG_OK;
}
static distag_status exp_op(void *user_data, distag_tensor *const *inputs, size_t input_count,
                            distag_tensor **out_outputs, size_t output_count, distag_error *told) {
  (void)user_data, (void)input_count, (void)output_count;
  return distag_exp(inputs[0], &out_outputs[0], told);
}
static void *leaving_allocate(void *user_data, size_t size, size_t alignment) {
  (void)user_data, (void)size, (void)alignment;
  leave();
  return NULL;
}
static void plain_deallocate(void *user_data, void *memory, size_t size, size_t alignment) {
  (void)user_data, (void)size, (void)alignment;
  free(memory);
}

/* ---- on threads of distag ---- */

typedef void (*prepare)(distag_worker_options *options);
static void add_member(distag_worker_options *options) { options->on_member = leaving_member; }
static distag_allocator allocator = {sizeof(distag_allocator), 0, leaving_allocate, plain_deallocate, NULL, NULL};
static void add_allocator(distag_worker_options *options) { options->allocator = &allocator; }

static void start(prepare add) {
  for (int i = 0; i < 2; ++i) {
    distag_worker_options options = group_options(i, 2, group_place("leavers"));
    options.thread_count = 1;
    if (i == 0 && add != NULL) add(&options);
    CHECK_OK(distag_worker_create(&options, &workers[i], &err));
    CHECK_OK(distag_worker_register(workers[i], "leave", leaving_function, NULL, NULL, NULL, &err));
    CHECK_OK(distag_worker_register(workers[i], "plain", plain_function, NULL, NULL, NULL, &err));
  }
  CHECK_INT(group_start(workers, 2), 0);
}

static distag_future *call_async(const char *name) {
  distag_future *future = NULL;
  distag_value *arg = NULL;
  CHECK_OK(distag_value_create_int64(7, &arg, &err));
  CHECK_OK(distag_call_async(workers[1], NULL, "w0", name, &arg, 1, NULL, &future, &err));
  distag_value_release(arg);
  return future;
}

static void function(void) {
  start(NULL);
  call_async("leave");
}
static void on_done(void) {
  start(NULL);
  distag_future *future = NULL;
  CHECK_OK(distag_call_async(workers[0], NULL, "w1", "plain", NULL, 0, NULL, &future, &err));
  CHECK_OK(distag_future_on_done(future, leaving_callback, NULL, NULL, &err));
}
static void then(void) {
  start(NULL);
  distag_future *future = NULL, *next = NULL;
  CHECK_OK(distag_call_async(workers[0], NULL, "w1", "plain", NULL, 0, NULL, &future, &err));
  CHECK_OK(distag_future_then(future, leaving_continuation, NULL, NULL, &next, &err));
}
static void plain_callback(void *user_data, distag_future *future) { (void)user_data, (void)future; }
static void destroy_of_callback(void) {
  start(NULL);
  distag_future *future = NULL;
  CHECK_OK(distag_call_async(workers[0], NULL, "w1", "plain", NULL, 0, NULL, &future, &err));
  CHECK_OK(distag_future_on_done(future, plain_callback, NULL, leaving_destroy, &err));
}
static void member(void) { start(add_member); }

/* The worker's other callbacks still run, and its shutdown says that it cannot end. */
static int on_pool(void (*scenario)(void), int serves) {
  scenario();
  await_reached();
  if (serves) {
    distag_future *future = call_async("plain");
    CHECK_OK(distag_future_wait(future, 120 * DISTAG_SECOND, &err));
  }
  distag_future *leaving = NULL;
  CHECK_OK(distag_worker_shutdown_async(workers[1], DISTAG_SECOND / 10, &leaving, &err));
  CHECK_INT(distag_worker_shutdown(workers[0], DISTAG_SECOND / 10, NULL, &err), DISTAG_E_DEADLINE);
  return check_failures != 0;
}

/* ---- in the hooks of threads: the worker serves and ends as if they had returned ---- */

static void leaving_thread(void *user_data, const char *thread_name) {
  (void)user_data, (void)thread_name;
  leave();
}
static void add_thread_start(distag_worker_options *options) { options->on_thread_start = leaving_thread; }
static void add_thread_stop(distag_worker_options *options) { options->on_thread_stop = leaving_thread; }

static int in_thread_hook(prepare add) {
  start(add);
  distag_future *answer = call_async("plain");
  CHECK_OK(distag_future_wait(answer, 120 * DISTAG_SECOND, &err));
  distag_future_release(answer);
  CHECK_INT(group_shutdown(workers, 2), 0);
  CHECK_INT(atomic_load(&reached), 1);
  for (int i = 0; i < 2; ++i) distag_worker_release(workers[i]);
  return check_failures != 0;
}

/* ---- on a thread of the host ---- */

static distag_tensor *leaf(void) {
  distag_tensor *tensor = NULL;
  CHECK_OK(distag_zeros(DISTAG_FLOAT64, NULL, 0, &tensor, &err));
  CHECK_OK(distag_tensor_set_requires_grad(tensor, 1, &err));
  return tensor;
}
static void backward_of(distag_tensor *root) {
  distag_context *context = NULL;
  CHECK_OK(distag_context_create(NULL, &context, &err));
  distag_backward(context, &root, 1, NULL, &err);
}
static void *hook(void *unused) {
  uint64_t id = 0;
  distag_tensor *x = leaf(), *y = NULL;
  CHECK_OK(distag_tensor_add_hook(x, leaving_hook, NULL, NULL, &id, &err));
  CHECK_OK(distag_exp(x, &y, &err));
  backward_of(y);
  return unused;
}
static void *forward(void *unused) {
  distag_custom_op op = DISTAG_CUSTOM_OP_INIT;
  distag_tensor *x = leaf(), *y = NULL;
  op.name = "leaver";
  op.forward = leaving_op;
  distag_apply_custom(&op, &x, 1, &y, 1, &err);
  return unused;
}
static void *backward(void *unused) {
  distag_custom_op op = DISTAG_CUSTOM_OP_INIT;
  distag_tensor *x = leaf(), *y = NULL;
  op.name = "leaver";
  op.forward = exp_op;
  op.backward = leaving_op;
  CHECK_OK(distag_apply_custom(&op, &x, 1, &y, 1, &err));
  backward_of(y);
  return unused;
}
static void *deleter(void *unused) {
  static const double data = 1;
  distag_tensor *x = NULL;
  CHECK_OK(distag_tensor_create_borrowed(&data, 8, DISTAG_FLOAT64, NULL, NULL, 0, NULL, leaving_destroy, &x, &err));
  distag_tensor_release(x);
  return unused;
}
static void *destroy_of_refused(void *unused) {
  distag_worker_register(NULL, "f", plain_function, NULL, leaving_destroy, NULL, &err);
  return unused;
}
/* In-process the sender's values are copied into the receiver's memory. */
static void *allocate(void *unused) {
  static const int64_t shape = 1 << 20;
  distag_tensor *large = NULL;
  distag_future *future = NULL;
  start(add_allocator);
  CHECK_OK(distag_zeros(DISTAG_FLOAT64, &shape, 1, &large, &err));
  distag_value *arg = distag_tensor_as_value(large);
  CHECK_OK(distag_call_async(workers[1], NULL, "w0", "plain", &arg, 1, NULL, &future, &err));
  return unused;
}

static int on_host(void *(*scenario)(void *)) {
  pthread_t thread;
  distag_tensor *x = NULL;
  CHECK(pthread_create(&thread, NULL, scenario, NULL) == 0);
  await_reached();
  CHECK_OK(distag_zeros(DISTAG_FLOAT32, NULL, 0, &x, &err));
  distag_tensor_release(x);
  return check_failures != 0;
}

static void expect_life(const char *name, void (*pool)(void), int serves, void *(*host)(void *), prepare hooks) {
  int status = 0;
  const pid_t child = fork();
  if (child == 0) {
    check_failures = 0; /* those of the parent */
    alarm(300);
    _exit(hooks != NULL ? in_thread_hook(hooks) : pool != NULL ? on_pool(pool, serves) : on_host(host));
  }
  waitpid(child, &status, 0);
  if (status != 0) fprintf(stderr, "%s: status %#x\n", name, status);
  CHECK_INT(status, 0);
}

int main(void) {
  expect_life("function", function, 1, NULL, NULL);
  expect_life("on_done", on_done, 1, NULL, NULL);
  expect_life("then", then, 1, NULL, NULL);
  expect_life("destroy of a callback", destroy_of_callback, 1, NULL, NULL);
  expect_life("on_member", member, 1, NULL, NULL);
  expect_life("hook", NULL, 0, hook, NULL);
  expect_life("forward", NULL, 0, forward, NULL);
  expect_life("backward", NULL, 0, backward, NULL);
  expect_life("deleter", NULL, 0, deleter, NULL);
  expect_life("destroy of a refused function", NULL, 0, destroy_of_refused, NULL);
  expect_life("allocate", NULL, 0, allocate, NULL);
  expect_life("on_thread_start", NULL, 0, NULL, add_thread_start);
  expect_life("on_thread_stop", NULL, 0, NULL, add_thread_stop);
  return check_end();
}
