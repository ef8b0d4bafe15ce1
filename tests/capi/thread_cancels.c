/* A thread of the host that is cancelled (pthread_cancel) within a call ends after the call, which does what it would
 * have done; callbacks within it run to their end. Each case in a process of its own. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "capi/check.h"
#include "capi/support/group.h"
#include "capi/support/local_round.h"

static distag_error err = DISTAG_ERROR_INIT;
static atomic_int returned, ran;
static pthread_t cancelled;
static char folder[64];
static char saved[96], meeting[96];

/* A point of cancellation of the host's. */
static void pass_point(void) {
  pthread_testcancel();
  atomic_fetch_add(&ran, 1);
}

/* ---- what callbacks do ---- */

static void destroy(void *user_data) {
  (void)user_data;
  pass_point();
}
static distag_status cancel_caller(void *user_data, distag_invocation *invocation, distag_error *told) {
  (void)user_data;
  pthread_cancel(cancelled);
  return distag_invocation_return(invocation, distag_invocation_get_arg(invocation, 0), told);
}
static distag_status cancel_itself(void *user_data, distag_invocation *invocation, distag_error *told) {
  (void)user_data;
  pthread_cancel(pthread_self());
  pass_point();
  return distag_invocation_return(invocation, distag_invocation_get_arg(invocation, 0), told);
}
static distag_status answer_late(void *user_data, distag_invocation *invocation, distag_error *told) {
  return distag_invocation_defer(invocation, (distag_reply **)user_data, told);
}
static distag_status twice(void *user_data, distag_tensor *const *inputs, size_t input_count,
                           distag_tensor **out_outputs, size_t output_count, distag_error *told) {
  (void)user_data, (void)input_count, (void)output_count;
  pass_point();
  return distag_mul_scalar(inputs[0], 2, &out_outputs[0], told);
}

/* ---- cases: each runs on a thread that was cancelled before, so that every point of cancellation would act ---- */

static distag_worker *worker;
static distag_tensor *tensor;
static distag_value *value;
static distag_mesh *mesh;

static void make_worker(uint32_t executor) {
  distag_worker_options options = group_options(0, 1, meeting);
  options.executor = executor;
  CHECK_OK(distag_worker_create(&options, &worker, &err));
}

/* The start of a worker opens sockets and files. */
static void create(void) {
  make_worker(DISTAG_EXECUTOR_POOL);
  CHECK_OK(distag_worker_start(worker, 60 * DISTAG_SECOND, &err));
}
static void shutdown_worker(void) {
  CHECK_OK(distag_worker_shutdown(worker, DISTAG_FOREVER, &value, &err));
  distag_value_release(value);
  distag_worker_release(worker);
}
static void live(void) {
  create();
  shutdown_worker();
}

static void keys(void) {
  distag_key_pair pair = DISTAG_KEY_PAIR_INIT;
  CHECK_OK(distag_security_create_keys(&pair, &err));
  CHECK_INT(strlen(pair.public_key), 40);
}

static void make_map(void) {
  const int64_t shape[] = {4};
  const char *const key = "x";
  CHECK_OK(distag_rand(7, DISTAG_FLOAT64, shape, 1, &tensor, &err));
  distag_value *const item = distag_tensor_as_value(tensor);
  CHECK_OK(distag_value_create_map(&key, &item, 1, &value, &err));
}
static void save_and_load(void) {
  double before[4], after[4];
  make_map();
  CHECK_OK(distag_mesh_create(worker, NULL, 0, NULL, NULL, 0, NULL, &mesh, &err));
  CHECK_OK(distag_tensor_copy_data(tensor, before, sizeof before, &err));
  CHECK_OK(distag_checkpoint_save(mesh, saved, value, 0, &err));
  CHECK_OK(distag_tensor_add_scaled(tensor, tensor, 1, &err));
  CHECK_OK(distag_checkpoint_load(mesh, saved, value, 0, NULL, &err));
  CHECK_OK(distag_tensor_copy_data(tensor, after, sizeof after, &err));
  CHECK(memcmp(before, after, sizeof before) == 0);
  distag_mesh_release(mesh);
  distag_value_release(value);
  distag_tensor_release(tensor);
}

static void local(void) { CHECK_INT(local_round(7), 0); }

/* Destroy functions that run after a failure, and with the last reference. */
static void owners(void) {
  static const double data = 1;
  CHECK_OK(distag_tensor_create_borrowed(&data, 8, DISTAG_FLOAT64, NULL, NULL, 0, NULL, destroy, &tensor, &err));
  distag_tensor_release(tensor);
  CHECK_INT(distag_worker_register(NULL, "f", cancel_itself, NULL, destroy, NULL, NULL), DISTAG_E_INVALID_ARGUMENT);
  CHECK_INT(atomic_load(&ran), 2);
}
static void custom_op(void) {
  distag_custom_op op = DISTAG_CUSTOM_OP_INIT;
  distag_tensor *x = NULL;
  double item = 0;
  op.name = "twice";
  op.forward = twice;
  op.destroy = destroy;
  CHECK_OK(distag_full(3, DISTAG_FLOAT64, NULL, 0, &x, &err));
  CHECK_OK(distag_apply_custom(&op, &x, 1, &tensor, 1, &err));
  CHECK_OK(distag_tensor_get_item(tensor, &item, &err));
  CHECK(item == 6 && atomic_load(&ran) == 2);
  distag_tensor_release(tensor);
  distag_tensor_release(x);
}

static void call(const char *function) {
  distag_value *arg = NULL;
  int64_t number = 0;
  CHECK_OK(distag_value_create_int64(7, &arg, &err));
  CHECK_OK(distag_call(worker, NULL, "w0", function, &arg, 1, NULL, &value, &err));
  CHECK_OK(distag_value_get_int64(value, &number, &err));
  CHECK_INT(number, 7);
  distag_value_release(value);
  distag_value_release(arg);
}
static void call_itself(void) { call("cancel_itself"); }

/* With a host executor the function runs within the call of the thread that polls. */
static void poll_functions(void) {
  size_t done = 0;
  CHECK_OK(distag_worker_poll(worker, 0, 0, &done, &err));
  call_itself();
  CHECK_INT(atomic_load(&ran), 1);
}

static void wait_in_vain(void) {
  distag_future *future = NULL;
  distag_value *none = NULL;
  distag_reply *reply = NULL;
  CHECK_OK(distag_worker_register(worker, "late", answer_late, &reply, NULL, NULL, &err));
  CHECK_OK(distag_value_create_null(&none, &err));
  CHECK_OK(distag_call_async(worker, NULL, "w0", "late", &none, 1, NULL, &future, &err));
  CHECK_INT(distag_future_wait(future, 10 * DISTAG_MILLISECOND, NULL), DISTAG_E_DEADLINE);
  distag_future_cancel(future);
  CHECK_INT(distag_future_wait(future, DISTAG_FOREVER, NULL), DISTAG_E_CANCELLED);
  CHECK_OK(distag_worker_unregister(worker, "late", DISTAG_FOREVER, &err));
  distag_reply_release(reply);
  distag_future_release(future);
  distag_value_release(none);
}

/* ---- cancelled meanwhile, by a function that it waits for ---- */

static void call_one_that_cancels(void) { call("cancel_caller"); }

/* ---- the thread, and its process ---- */

typedef struct scenario {
  const char *name;
  void (*run)(void);
  uint32_t executor; /* 0: no worker runs */
  int is_cancelled_meanwhile;
} scenario;

static void *run_cancelled(void *given) {
  const scenario *which = given;
  cancelled = pthread_self();
  if (!which->is_cancelled_meanwhile) pthread_cancel(cancelled);
  which->run();
  atomic_store(&returned, 1);
  pthread_testcancel();
  return NULL;
}

static int run(const scenario *which) {
  pthread_t thread;
  void *end = NULL;
  check_failures = 0; /* those of the parent */
  alarm(300);
  if (which->executor != 0) {
    make_worker(which->executor);
    CHECK_OK(distag_worker_register(worker, "cancel_itself", cancel_itself, NULL, NULL, NULL, &err));
    CHECK_OK(distag_worker_register(worker, "cancel_caller", cancel_caller, NULL, NULL, NULL, &err));
    CHECK_OK(distag_worker_start(worker, 60 * DISTAG_SECOND, &err));
  }
  CHECK(pthread_create(&thread, NULL, run_cancelled, (void *)which) == 0);
  CHECK(pthread_join(thread, &end) == 0);
  CHECK(end == PTHREAD_CANCELED);
  CHECK_INT(atomic_load(&returned), 1);
  if (which->executor != 0) {
    if (which->executor == DISTAG_EXECUTOR_POOL) call_itself(); /* its threads are all there */
    shutdown_worker();
  }
  CHECK_INT((int64_t)distag_get_handle_count(), 0);
  CHECK_INT(local_round_destroyed(), local_round_given());
  return check_end();
}

int main(void) {
  static const scenario scenarios[] = {
      {"a worker from its creation to its end", live, 0, 0},
      {"keys", keys, 0, 0},
      {"checkpoints", save_and_load, DISTAG_EXECUTOR_POOL, 0},
      {"all that needs no worker", local, 0, 0},
      {"destroy functions", owners, 0, 0},
      {"a custom op", custom_op, 0, 0},
      {"waits", wait_in_vain, DISTAG_EXECUTOR_POOL, 0},
      {"a function on a thread of the worker", call_itself, DISTAG_EXECUTOR_POOL, 0},
      {"a function on the thread that calls", poll_functions, DISTAG_EXECUTOR_HOST, 0},
      {"a call that is waited for", call_one_that_cancels, DISTAG_EXECUTOR_POOL, 1},
  };
  snprintf(folder, sizeof folder, "/tmp/distag-cancels-XXXXXX");
  CHECK(mkdtemp(folder) != NULL);
  snprintf(saved, sizeof saved, "%s/saved", folder);
  snprintf(meeting, sizeof meeting, "file://%s/group", folder);
  for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; ++i) {
    int status = 0;
    const pid_t child = fork();
    if (child == 0) _exit(run(&scenarios[i]));
    waitpid(child, &status, 0);
    if (status != 0) fprintf(stderr, "%s: status %#x\n", scenarios[i].name, status);
    CHECK_INT(status, 0);
  }
  char command[128];
  snprintf(command, sizeof command, "rm -r %s", folder);
  CHECK_INT(system(command), 0);
  return check_end();
}
