/* Wrong and released handles, with DISTAG_VALIDATE=1: misuse is always reported. */
#define _GNU_SOURCE
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "capi/check.h"
#include "capi/support/group.h"

static distag_error err = DISTAG_ERROR_INIT;
static distag_invocation *gone_invocation;
static distag_value *gone_arg;

static sem_t go;

static distag_status wait_to_go(void *user_data, distag_invocation *invocation, distag_error *told) {
  (void)user_data;
  (void)invocation;
  (void)told;
  sem_wait(&go);
  return DISTAG_OK;
}

static distag_status keep_what_is_lent(void *user_data, distag_invocation *invocation, distag_error *told) {
  (void)user_data;
  (void)told;
  gone_invocation = invocation;
  gone_arg = distag_invocation_get_arg(invocation, 0);
  return DISTAG_OK;
}

static void released(void) {
  distag_tensor *t = NULL, *y = (distag_tensor *)&err;
  distag_value *v = NULL;
  distag_context *c = NULL;
  distag_gradients *g = NULL;
  int64_t whole = 0;
  CHECK_OK(distag_zeros(DISTAG_FLOAT32, NULL, 0, &t, &err));
  CHECK_OK(distag_value_create_int64(1, &v, &err));
  CHECK_OK(distag_context_create(NULL, &c, &err));
  CHECK_OK(distag_get_gradients(c, &g, &err));
  distag_tensor_release(t);
  distag_value_release(v);
  distag_context_release(c);
  distag_gradients_release(g);
  CHECK_FAILS(distag_neg(t, &y, &err), DISTAG_E_INVALID_ARGUMENT, "released");
  CHECK(y == NULL);
  CHECK_FAILS(distag_value_get_int64(v, &whole, &err), DISTAG_E_INVALID_ARGUMENT, "released");
  CHECK_FAILS(distag_get_gradients(c, &g, &err), DISTAG_E_INVALID_ARGUMENT, "released");
  CHECK_INT(distag_tensor_get_ndim(t), 0);
  CHECK(distag_tensor_get_data(t) == NULL);
  CHECK_INT(distag_value_get_kind(v), 0);
  distag_tensor_release(t); /* a second release does nothing */
  distag_tensor_retain(t);
  CHECK_FAILS(distag_neg(t, &y, &err), DISTAG_E_INVALID_ARGUMENT, "released");
  CHECK_INT(distag_get_misuse_count(), 2);
  CHECK_INT(distag_get_handle_count(), 0);
}

static void of_another_kind(void) {
  distag_tensor *t = NULL, *y = NULL;
  distag_value *v = NULL;
  CHECK_OK(distag_zeros(DISTAG_FLOAT32, NULL, 0, &t, &err));
  CHECK_OK(distag_value_create_int64(1, &v, &err));
  CHECK_FAILS(distag_neg((distag_tensor *)v, &y, &err), DISTAG_E_INVALID_ARGUMENT, "value handle");
  CHECK_FAILS(distag_worker_start((distag_worker *)t, 0, &err), DISTAG_E_INVALID_ARGUMENT, "tensor handle");
  CHECK_FAILS(distag_future_wait((distag_future *)v, 0, &err), DISTAG_E_INVALID_ARGUMENT, "value handle");
  CHECK_INT(distag_value_get_kind((distag_value *)t), DISTAG_VALUE_TENSOR); /* a tensor is a value */
  distag_worker_release((distag_worker *)t);                                /* does nothing */
  CHECK_INT(distag_get_misuse_count(), 3);
  CHECK_OK(distag_neg(t, &y, &err));
  distag_tensor_release(y);
  distag_tensor_release(t);
  distag_value_release(v);
}

static void see(void *user_data, distag_future *future) {
  (void)user_data;
  (void)future;
}

/* Handles that distag still holds are released all the same. */
static void released_by_the_host_alone(distag_worker *worker) {
  distag_future *future = NULL;
  const uint64_t misuses = distag_get_misuse_count();
  CHECK_OK(distag_call_async(worker, NULL, "w0", "wait", NULL, 0, NULL, &future, &err));
  CHECK_OK(distag_future_on_done(future, see, NULL, NULL, &err));
  distag_future_release(future);
  CHECK_FAILS(distag_future_wait(future, 0, &err), DISTAG_E_INVALID_ARGUMENT, "released");
  CHECK_INT(distag_future_poll(future), 0);
  distag_future_retain(future);
  distag_future_release(future);
  CHECK_INT(distag_get_misuse_count() - misuses, 2);
  sem_post(&go);
}

static void lent(void) {
  const distag_worker_options options = group_options(0, 1, "inproc://validate");
  distag_worker *worker = NULL;
  distag_future *future = NULL;
  distag_value *arg = NULL;
  distag_reply *reply = NULL;
  CHECK_OK(distag_worker_create(&options, &worker, &err));
  CHECK_OK(distag_worker_register(worker, "keep_what_is_lent", keep_what_is_lent, NULL, NULL, NULL, &err));
  CHECK_OK(distag_worker_register(worker, "wait", wait_to_go, NULL, NULL, NULL, &err));
  sem_init(&go, 0, 0);
  CHECK_OK(distag_worker_start(worker, 120 * DISTAG_SECOND, &err));
  CHECK_OK(distag_value_create_int64(1, &arg, &err));
  CHECK_OK(distag_call_async(worker, NULL, "w0", "keep_what_is_lent", &arg, 1, NULL, &future, &err));
  CHECK_OK(distag_future_wait(future, DISTAG_FOREVER, &err));
  CHECK_INT(distag_invocation_get_arg_count(gone_invocation), 0);
  CHECK_FAILS(distag_invocation_defer(gone_invocation, &reply, &err), DISTAG_E_INVALID_ARGUMENT, "released");
  CHECK_INT(distag_value_get_kind(gone_arg), 0);
  distag_future_release(future);
  CHECK_FAILS(distag_future_wait(future, 0, &err), DISTAG_E_INVALID_ARGUMENT, "released");
  released_by_the_host_alone(worker);
  CHECK_OK(distag_worker_shutdown(worker, 120 * DISTAG_SECOND, NULL, &err));
  distag_value_release(arg);
  distag_worker_release(worker);
  CHECK_FAILS(distag_worker_start(worker, 0, &err), DISTAG_E_INVALID_ARGUMENT, "released");
  CHECK(distag_worker_get_name(worker) == NULL);
}

/* A thread retains and releases a handle while its lender ends: the handle ends once. Reading a handle that ends is a
 * race by its nature, so this runs neither where races are looked for, nor where a sanitizer takes the table of virtual
 * functions from a destroyed object. */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
static void while_its_lender_ends(void) {}
#else
enum { kEnds = 30000 };
static _Atomic(distag_value *) lent_item;
static atomic_int has_ended;

static void *use_what_is_lent(void *unused) {
  while (atomic_load(&has_ended) == 0) {
    distag_value *item = atomic_load(&lent_item);
    distag_value_release(item);
    distag_value_retain(item);
    distag_value_release(item);
  }
  return unused;
}

static void while_its_lender_ends(void) {
  pthread_t threads[2];
  for (int i = 0; i < 2; ++i) CHECK_INT(pthread_create(&threads[i], NULL, use_what_is_lent, NULL), 0);
  for (int i = 0; i < kEnds; ++i) {
    distag_value *number = NULL, *list = NULL;
    CHECK_OK(distag_value_create_int64(1, &number, &err));
    CHECK_OK(distag_value_create_list(&number, 1, &list, &err));
    atomic_store(&lent_item, distag_value_get_item(list, 0));
    distag_value_release(list);
    distag_value_release(number);
  }
  atomic_store(&has_ended, 1);
  for (int i = 0; i < 2; ++i) pthread_join(threads[i], NULL);
}
#endif

/* An invocation that was taken as an event ends with its finish. */
static void finished(void) {
  distag_worker_options options = group_options(0, 1, "inproc://validate-events");
  distag_worker *worker = NULL;
  distag_event event = DISTAG_EVENT_INIT;
  distag_future *future = NULL;
  options.executor = DISTAG_EXECUTOR_HOST;
  CHECK_OK(distag_worker_create(&options, &worker, &err));
  CHECK_OK(distag_worker_offer(worker, "f", 1, NULL, &err));
  CHECK_OK(distag_worker_start(worker, 120 * DISTAG_SECOND, &err));
  CHECK_OK(distag_call_async(worker, NULL, "w0", "f", NULL, 0, NULL, &future, &err));
  CHECK_OK(distag_worker_take_event(worker, 120 * DISTAG_SECOND, &event, &err));
  CHECK_OK(distag_invocation_finish(event.invocation, NULL, NULL, &err));
  CHECK_FAILS(distag_invocation_finish(event.invocation, NULL, NULL, &err), DISTAG_E_INVALID_ARGUMENT, "released");
  CHECK(distag_invocation_get_function(event.invocation) == NULL);
  CHECK(distag_invocation_get_traceparent(event.invocation) == NULL);
  CHECK_OK(distag_future_wait(future, 120 * DISTAG_SECOND, &err));
  distag_future_release(future);
  CHECK_OK(distag_worker_shutdown(worker, 120 * DISTAG_SECOND, NULL, &err));
  distag_worker_release(worker);
}

int main(void) {
  setenv("DISTAG_VALIDATE", "1", 1);
  released();
  of_another_kind();
  lent();
  finished();
  while_its_lender_ends();
  return check_end();
}
