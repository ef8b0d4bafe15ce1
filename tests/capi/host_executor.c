/* DISTAG_EXECUTOR_HOST: all host code runs where the host polls, in polls and in its blocking calls, within limits. */
#include <poll.h>
#include <pthread.h>

#include "capi/check.h"
#include "capi/support/group.h"

static distag_error err = DISTAG_ERROR_INIT;
static pthread_t host_thread;
static int served, done_calls, destroyed, logged;
static distag_worker *w0, *w1;

static void check_thread(const char *what) {
  if (!check_true(pthread_equal(pthread_self(), host_thread), __FILE__, __LINE__, what)) fprintf(stderr, "%s\n", what);
}

static void destroy(void *user_data) {
  check_thread("destroy");
  ++*(int *)user_data;
}

static void on_log(void *user_data, int32_t level, const char *message) {
  (void)user_data;
  (void)level;
  (void)message;
  check_thread("log");
  ++logged;
}

static distag_status serve(void *user_data, distag_invocation *invocation, distag_error *told) {
  (void)user_data;
  check_thread("function");
  ++served;
  if (distag_invocation_get_arg_count(invocation) == 0) return DISTAG_OK;
  return distag_invocation_return(invocation, distag_invocation_get_arg(invocation, 0), told);
}

/* Calls the other worker and waits: the waiting thread runs calls that come meanwhile. */
static distag_status relay(void *user_data, distag_invocation *invocation, distag_error *told) {
  distag_worker *self = distag_invocation_get_worker(invocation);
  (void)user_data;
  check_thread("relay");
  CHECK_INT(distag_worker_shutdown(self, 0, NULL, NULL), DISTAG_E_INVALID_STATE);
  return distag_call(self, NULL, distag_invocation_get_caller(invocation), "serve", NULL, 0, NULL, NULL, told);
}

static void on_done(void *user_data, distag_future *future) {
  (void)user_data;
  check_thread("on_done");
  CHECK_INT(distag_future_poll(future), 1);
  ++done_calls;
}

/* Polls both until the counter has the value, sleeping on the descriptors. */
static void poll_until(const int *counter, int value) {
  struct pollfd descriptors[2];
  descriptors[0].fd = (int)distag_worker_get_fd(w0);
  descriptors[1].fd = (int)distag_worker_get_fd(w1);
  descriptors[0].events = descriptors[1].events = POLLIN;
  while (*counter < value && check_failures == 0) {
    size_t done = 0;
    if (!CHECK(poll(descriptors, 2, 120000) > 0)) return;
    CHECK_OK(distag_worker_poll(w0, 0, DISTAG_FOREVER, &done, &err));
    CHECK_OK(distag_worker_poll(w1, 0, DISTAG_FOREVER, NULL, &err));
  }
}

static void start(void) {
  distag_worker *both[2];
  for (int32_t rank = 0; rank < 2; ++rank) {
    distag_worker **worker = rank == 0 ? &w0 : &w1;
    distag_worker_options options = group_options(rank, 2, "inproc://host_executor");
    options.executor = DISTAG_EXECUTOR_HOST;
    options.on_log = on_log;
    options.log_level = DISTAG_LOG_DEBUG;
    options.user_data = &destroyed;
    options.destroy = destroy;
    CHECK_OK(distag_worker_create(&options, worker, &err));
    CHECK_OK(distag_worker_register(*worker, "serve", serve, &destroyed, destroy, NULL, &err));
    CHECK_OK(distag_worker_register(*worker, "relay", relay, NULL, NULL, NULL, &err));
  }
  both[0] = w0;
  both[1] = w1;
  CHECK_INT(group_start(both, 2), 0);
}

static void calls_by_polling(void) {
  distag_future *future = NULL;
  size_t done = 9;
  CHECK_OK(distag_worker_poll(w1, 0, DISTAG_FOREVER, NULL, &err));
  CHECK_OK(distag_call_async(w0, NULL, "w1", "serve", NULL, 0, NULL, &future, &err));
  CHECK_OK(distag_future_on_done(future, on_done, &destroyed, destroy, &err));
  CHECK_INT(done_calls, 0);
  poll_until(&done_calls, 1);
  CHECK_INT(served, 1);
  poll_until(&destroyed, 1);
  distag_future_release(future);

  /* No time: nothing starts. One item: one runs. */
  for (int i = 0; i < 2; ++i) {
    CHECK_OK(distag_call_async(w0, NULL, "w1", "serve", NULL, 0, NULL, &future, &err));
    distag_future_release(future);
  }
  distag_stats stats = DISTAG_STATS_INIT;
  do {
    CHECK_OK(distag_worker_get_stats(w1, &stats, &err));
  } while (stats.callbacks_waiting < 2 && check_failures == 0);
  CHECK_OK(distag_worker_poll(w1, 0, 0, &done, &err));
  CHECK_INT(done, 0);
  CHECK_INT(served, 1);
  CHECK_OK(distag_worker_poll(w1, 1, DISTAG_FOREVER, &done, &err));
  CHECK_INT(done, 1);
  CHECK_INT(served, 2);
  poll_until(&served, 3);
}

/* Both workers are polled by this thread: its blocking calls serve both, nested. */
static void blocking_calls(void) {
  CHECK_OK(distag_call(w0, NULL, "w1", "relay", NULL, 0, NULL, NULL, &err));
  CHECK_INT(served, 4);
}

/* The memory of a borrowed tensor ends on this thread, although a message needed it last. */
static void borrowed_memory(void) {
  static const float data[1 << 17] = {0};
  const int64_t shape[] = {1 << 17};
  distag_tensor *x = NULL;
  distag_value *args[1];
  int ended = 0;
  CHECK_OK(distag_tensor_create_borrowed(data, sizeof data, DISTAG_FLOAT32, shape, NULL, 1, &ended, destroy, &x, &err));
  args[0] = distag_tensor_as_value(x);
  distag_future *future = NULL;
  CHECK_OK(distag_call_async(w0, NULL, "w1", "serve", args, 1, NULL, &future, &err));
  distag_tensor_release(x);
  CHECK_OK(distag_future_wait(future, DISTAG_FOREVER, &err));
  distag_future_release(future);
  poll_until(&ended, 1);
}

static distag_status pass_on(void *user_data, distag_tensor *const *inputs, size_t input_count,
                             distag_tensor **out_outputs, size_t output_count, distag_error *told) {
  (void)user_data;
  CHECK(input_count == 1 && output_count == 1);
  check_thread("custom forward or backward");
  return distag_mul_scalar(inputs[0], 2, &out_outputs[0], told);
}

/* A pass across both workers, with a backward of the host in the middle. */
static void custom_backward(void) {
  distag_custom_op op = DISTAG_CUSTOM_OP_INIT;
  distag_context *context = NULL;
  distag_gradients *gradients = NULL;
  distag_tensor *x = NULL, *doubled = NULL, *y = NULL;
  distag_value *args[1], *result = NULL;
  double item = 0;
  int ended = 0;
  op.name = "twice";
  op.forward = pass_on;
  op.backward = pass_on;
  op.user_data = &ended;
  op.destroy = destroy;
  CHECK_OK(distag_context_create(w0, &context, &err));
  CHECK_OK(distag_full(1, DISTAG_FLOAT64, NULL, 0, &x, &err));
  CHECK_OK(distag_tensor_set_requires_grad(x, 1, &err));
  CHECK_OK(distag_apply_custom(&op, &x, 1, &doubled, 1, &err));
  args[0] = distag_tensor_as_value(doubled);
  CHECK_OK(distag_call(w0, context, "w1", "exp", args, 1, NULL, &result, &err));
  CHECK_OK(distag_value_get_tensor(result, &y, &err));
  CHECK_OK(distag_backward(context, &y, 1, NULL, &err));
  CHECK_OK(distag_get_gradients(context, &gradients, &err));
  CHECK_OK(distag_tensor_get_item(distag_gradients_find(gradients, x), &item, &err));
  CHECK_NEAR(item, 2 * exp(2));
  distag_gradients_release(gradients);
  distag_value_release(result);
  distag_tensor_release(doubled);
  distag_tensor_release(x);
  distag_context_release(context);
  poll_until(&ended, 1);
}

static void *call_from_elsewhere(void *unused) {
  distag_error told = DISTAG_ERROR_INIT;
  (void)unused;
  distag_call(w0, NULL, "w1", "serve", NULL, 0, NULL, NULL, &told);
  CHECK_INT(told.code, DISTAG_OK);
  return NULL;
}

/* Another thread may block in a call; the functions still run here. */
static void another_thread_waits(void) {
  pthread_t other;
  const int before = served;
  CHECK_INT(pthread_create(&other, NULL, call_from_elsewhere, NULL), 0);
  poll_until(&served, before + 1);
  pthread_join(other, NULL);
}

static void shutdown_both(void) {
  distag_future *future = NULL;
  const int before = destroyed;
  CHECK_OK(distag_worker_shutdown_async(w1, 120 * DISTAG_SECOND, &future, &err));
  CHECK_OK(distag_worker_shutdown(w0, 120 * DISTAG_SECOND, NULL, &err));
  CHECK_OK(distag_future_wait(future, DISTAG_FOREVER, &err));
  distag_future_release(future);
  CHECK_INT(destroyed, before + 4);
  CHECK_FAILS(distag_worker_poll(w0, 0, 0, NULL, &err), DISTAG_E_INVALID_STATE, "down");
  distag_worker_release(w0);
  distag_worker_release(w1);
}

int main(void) {
  host_thread = pthread_self();
  start();
  calls_by_polling();
  blocking_calls();
  borrowed_memory();
  custom_backward();
  another_thread_waits();
  shutdown_both();
  return check_end();
}
