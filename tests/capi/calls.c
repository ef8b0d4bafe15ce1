/* Two workers in one process: functions, calls, futures, deferred replies, errors, shutdown. */
#include <stdatomic.h>

#include "capi/check.h"
#include "capi/support/group.h"

static distag_worker *w0, *w1;
static atomic_int destroyed, calls_back;
static _Atomic(distag_reply *) kept_reply;

static void count_destroy(void *user_data) { atomic_fetch_add((atomic_int *)user_data, 1); }

/* ---- functions of w1 ---- */

/* Checks everything that an invocation tells, and answers with the doubled tensor. */
static distag_status twice(void *user_data, distag_invocation *invocation, distag_error *err) {
  distag_error inner = DISTAG_ERROR_INIT;
  distag_tensor *x = NULL, *y = NULL;
  CHECK(user_data == &destroyed);
  CHECK(err != NULL && err->code == DISTAG_OK);
  CHECK_TEXT(distag_worker_get_name(distag_invocation_get_worker(invocation)), "w1");
  CHECK(distag_invocation_get_context(invocation) == NULL);
  CHECK_TEXT(distag_invocation_get_caller(invocation), "w0");
  CHECK(distag_invocation_get_time_left(invocation) > 0);
  CHECK_INT(distag_invocation_is_cancelled(invocation), 0);
  CHECK_INT(distag_invocation_get_arg_count(invocation), 2);
  CHECK(distag_invocation_get_arg(invocation, 0) != NULL);
  CHECK(distag_invocation_get_arg(invocation, 2) == NULL);
  CHECK_INT(distag_invocation_get_tensor(invocation, 1, &x, &inner), DISTAG_E_INVALID_ARGUMENT);
  CHECK(strstr(inner.message, "twice") != NULL && strstr(inner.message, "tensor") != NULL &&
        strstr(inner.message, "text") != NULL);
  CHECK_INT(distag_invocation_get_tensor(invocation, 2, &x, &inner), DISTAG_E_INVALID_ARGUMENT);
  distag_invocation_get_tensor(invocation, 0, &x, err);
  distag_mul_scalar(x, 2, &y, err);
  distag_invocation_return(invocation, distag_tensor_as_value(y), err);
  inner.code = DISTAG_OK;
  CHECK_INT(distag_invocation_return(invocation, distag_tensor_as_value(y), &inner), DISTAG_E_INVALID_STATE);
  inner.code = DISTAG_OK;
  distag_reply *reply = NULL;
  CHECK_INT(distag_invocation_defer(invocation, &reply, &inner), DISTAG_E_INVALID_STATE);
  CHECK(reply == NULL);
  distag_tensor_release(y);
  return err->code;
}

static distag_status silent(void *user_data, distag_invocation *invocation, distag_error *err) {
  (void)user_data;
  (void)invocation;
  (void)err;
  return DISTAG_OK;
}

static distag_status failing(void *user_data, distag_invocation *invocation, distag_error *err) {
  int64_t status = 0;
  (void)user_data;
  distag_value_get_int64(distag_invocation_get_arg(invocation, 0), &status, err);
  return distag_error_set(err, (distag_status)status, "as you like it");
}

static distag_status failing_silently(void *user_data, distag_invocation *invocation, distag_error *err) {
  (void)user_data;
  (void)invocation;
  (void)err;
  return 1234;
}

/* Fails after it has deferred if it has user data. */
static distag_status deferring(void *user_data, distag_invocation *invocation, distag_error *err) {
  distag_reply *reply = NULL;
  if (distag_invocation_defer(invocation, &reply, err) != DISTAG_OK) return err->code;
  atomic_store(&kept_reply, reply);
  return user_data == NULL ? DISTAG_OK : distag_error_set(err, 1234, "after all");
}

/* Calls back to its caller, within the call that it answers. */
static distag_status nested(void *user_data, distag_invocation *invocation, distag_error *err) {
  distag_call_options options = DISTAG_CALL_OPTIONS_INIT;
  distag_value *answer = NULL;
  (void)user_data;
  options.within = invocation;
  options.timeout_ns = DISTAG_FOREVER;
  CHECK_INT(distag_worker_shutdown(distag_invocation_get_worker(invocation), 0, NULL, NULL), DISTAG_E_INVALID_STATE);
  distag_call(distag_invocation_get_worker(invocation), NULL, distag_invocation_get_caller(invocation), "home", NULL, 0,
              &options, &answer, err);
  distag_invocation_return(invocation, answer, err);
  distag_value_release(answer);
  return err->code;
}

static distag_status home(void *user_data, distag_invocation *invocation, distag_error *err) {
  distag_value *answer = NULL;
  (void)user_data;
  distag_value_create_text("at home", &answer, err);
  distag_invocation_return(invocation, answer, err);
  distag_value_release(answer);
  return err->code;
}

static void start(void) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_worker_options options = group_options(0, 2, "inproc://calls");
  CHECK_OK(distag_worker_create(&options, &w0, &err));
  options = group_options(1, 2, "inproc://calls");
  CHECK_OK(distag_worker_create(&options, &w1, &err));
  CHECK_OK(distag_worker_register(w1, "twice", twice, &destroyed, count_destroy, NULL, &err));
  CHECK_OK(distag_worker_register(w1, "silent", silent, NULL, NULL, NULL, &err));
  CHECK_OK(distag_worker_register(w1, "failing", failing, NULL, NULL, NULL, &err));
  CHECK_OK(distag_worker_register(w1, "failing_silently", failing_silently, NULL, NULL, NULL, &err));
  CHECK_OK(distag_worker_register(w1, "deferring", deferring, NULL, NULL, NULL, &err));
  CHECK_OK(distag_worker_register(w1, "failing_late", deferring, &kept_reply, NULL, NULL, &err));
  CHECK_OK(distag_worker_register(w1, "nested", nested, NULL, NULL, NULL, &err));
  CHECK_OK(distag_worker_register(w0, "home", home, NULL, NULL, NULL, &err));
  /* User data is destroyed exactly once, also when the call fails. */
  CHECK_FAILS(distag_worker_register(w1, "twice", twice, &destroyed, count_destroy, NULL, &err), DISTAG_E_INVALID_STATE,
              "twice");
  CHECK_INT(atomic_load(&destroyed), 1);
  CHECK_INT(distag_worker_register(w1, "", twice, &destroyed, count_destroy, NULL, &err), DISTAG_E_INVALID_ARGUMENT);
  CHECK_INT(atomic_load(&destroyed), 2);

  CHECK_INT(distag_worker_get_rank(w0), -1);
  CHECK_FAILS(distag_call(w0, NULL, "w1", "silent", NULL, 0, NULL, NULL, &err), DISTAG_E_INVALID_STATE, "not started");
  distag_worker *both[2];
  both[0] = w0;
  both[1] = w1;
  CHECK_INT(group_start(both, 2), 0);
  CHECK_INT(distag_worker_get_rank(w1), 1);
  CHECK_INT(distag_worker_get_world_size(w1), 2);
  CHECK_TEXT(distag_worker_get_name(w1), "w1");
  CHECK_INT(distag_worker_get_fd(w1), -1);
  CHECK_FAILS(distag_worker_start(w1, 0, &err), DISTAG_E_INVALID_STATE, "started");
  CHECK_FAILS(distag_worker_poll(w1, 0, 0, NULL, &err), DISTAG_E_INVALID_STATE, "pool");
}

static void calls(void) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_tensor *x = NULL, *y = NULL;
  distag_value *args[2] = {NULL, NULL};
  distag_value *result = NULL;
  double item = 0;

  CHECK_OK(distag_full(21, DISTAG_FLOAT64, NULL, 0, &x, &err));
  args[0] = distag_tensor_as_value(x);
  CHECK_OK(distag_value_create_text("a text", &args[1], &err));
  CHECK_OK(distag_call(w0, NULL, "w1", "twice", args, 2, NULL, &result, &err));
  CHECK_OK(distag_value_get_tensor(result, &y, &err));
  CHECK_OK(distag_tensor_get_item(y, &item, &err));
  CHECK_NEAR(item, 42);
  distag_value_release(result);

  CHECK_OK(distag_call(w0, NULL, "w1", "silent", NULL, 0, NULL, &result, &err));
  CHECK_INT(distag_value_get_kind(result), DISTAG_VALUE_NULL);
  distag_value_release(result);
  CHECK_OK(distag_call(w0, NULL, "w1", "silent", args, 2, NULL, NULL, &err));

  CHECK_OK(distag_call(w0, NULL, "w0", "home", NULL, 0, NULL, &result, &err)); /* itself */
  distag_value_release(result);
  CHECK_OK(distag_call(w0, NULL, "w1", "nested", NULL, 0, NULL, &result, &err));
  const char *text = NULL;
  CHECK_OK(distag_value_get_text(result, &text, &err));
  CHECK_TEXT(text, "at home");
  distag_value_release(result);

  distag_value *tensors[2]; /* a built-in op */
  tensors[0] = tensors[1] = args[0];
  CHECK_OK(distag_call(w0, NULL, "w1", "mul", tensors, 2, NULL, &result, &err));
  CHECK_OK(distag_value_get_tensor(result, &y, &err));
  CHECK_OK(distag_tensor_get_item(y, &item, &err));
  CHECK_NEAR(item, 441);
  distag_value_release(result);
  distag_value_release(args[1]);
  distag_tensor_release(x);
}

static void failures(void) {
  static const struct {
    int64_t given;
    distag_status seen;
  } statuses[] = {{1000, 1000},
                  {2000000, 2000000},
                  {DISTAG_E_DENIED, DISTAG_E_DENIED},
                  {77, DISTAG_E_REMOTE},
                  {-5, DISTAG_E_REMOTE}};
  distag_error err = DISTAG_ERROR_INIT;
  distag_value *args[1] = {NULL};
  distag_value *result = (distag_value *)&err;

  for (size_t i = 0; i < sizeof statuses / sizeof statuses[0]; ++i) {
    CHECK_OK(distag_value_create_int64(statuses[i].given, &args[0], &err));
    CHECK_FAILS(distag_call(w0, NULL, "w1", "failing", args, 1, NULL, &result, &err), statuses[i].seen, "as you like");
    CHECK(result == NULL);
    CHECK_INT(err.origin_rank, 1);
    CHECK_INT(err.flags, DISTAG_ERROR_MAY_HAVE_RUN);
    CHECK(strstr(err.message, "failing") != NULL && strstr(err.message, "w1") != NULL);
    distag_value_release(args[0]);
  }
  CHECK_FAILS(distag_call(w0, NULL, "w1", "failing_silently", NULL, 0, NULL, NULL, &err), 1234, "failing_silently");
  CHECK_FAILS(distag_call(w0, NULL, "w1", "nobody", NULL, 0, NULL, NULL, &err), DISTAG_E_NOT_FOUND, "nobody");
  CHECK_INT(err.flags, 0);
  CHECK_FAILS(distag_call(w0, NULL, "w9", "silent", NULL, 0, NULL, NULL, &err), DISTAG_E_NOT_FOUND, "w9");
  CHECK_INT(err.flags, 0);

  distag_call_options options = DISTAG_CALL_OPTIONS_INIT;
  distag_reply *reply = NULL;
  /* The timeout grows each time: a machine that stops may end the call before it runs. */
  for (options.timeout_ns = 30 * DISTAG_MILLISECOND; reply == NULL && options.timeout_ns < 60 * DISTAG_SECOND;
       options.timeout_ns *= 2) {
    CHECK_FAILS(distag_call(w0, NULL, "w1", "deferring", NULL, 0, &options, NULL, &err), DISTAG_E_DEADLINE,
                "deferring");
    reply = atomic_exchange(&kept_reply, NULL);
  }
  CHECK_INT(err.flags, DISTAG_ERROR_MAY_HAVE_RUN);
  if (!CHECK(reply != NULL)) return;
  CHECK_OK(distag_reply_finish(reply, NULL, NULL, &err)); /* the answer is dropped, and is the first all the same */
  CHECK_FAILS(distag_reply_finish(reply, NULL, NULL, &err), DISTAG_E_INVALID_STATE, "already");
  distag_reply_release(reply);
}

/* The future of a call of "deferring", whose reply waits in kept_reply. */
static distag_future *begin_deferred(distag_reply **out_reply) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_future *future = NULL;
  CHECK_OK(distag_call_async(w0, NULL, "w1", "deferring", NULL, 0, NULL, &future, &err));
  while ((*out_reply = atomic_exchange(&kept_reply, NULL)) == NULL) {
  }
  return future;
}

static void deferred(void) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_error told = DISTAG_ERROR_INIT;
  distag_reply *reply = NULL;
  distag_value *value = NULL, *seen = NULL;
  int64_t whole = 0;

  distag_future *future = begin_deferred(&reply);
  CHECK_INT(distag_future_poll(future), 0);
  CHECK_FAILS(distag_future_get_value(future, &seen, &err), DISTAG_E_INVALID_STATE, "not complete");
  CHECK_FAILS(distag_future_wait(future, 0, &err), DISTAG_E_DEADLINE, "not complete");
  CHECK_FAILS(distag_wait_all(&future, 1, DISTAG_MILLISECOND, &err), DISTAG_E_DEADLINE, "not complete");
  CHECK_INT(distag_reply_is_cancelled(reply), 0);
  CHECK_OK(distag_value_create_int64(9, &value, &err));
  distag_reply_retain(reply);
  CHECK_OK(distag_reply_finish(reply, value, &told, &err)); /* an error that did not fail */
  CHECK_FAILS(distag_reply_finish(reply, value, NULL, &err), DISTAG_E_INVALID_STATE, "already");
  distag_reply_release(reply);
  distag_reply_release(reply);
  distag_value_release(value);
  CHECK_OK(distag_future_wait(future, DISTAG_FOREVER, &err));
  CHECK_OK(distag_wait_all(&future, 1, DISTAG_FOREVER, &err));
  CHECK_INT(distag_future_poll(future), 1);
  CHECK_OK(distag_future_get_value(future, &seen, &err));
  CHECK_OK(distag_value_get_int64(seen, &whole, &err));
  CHECK_INT(whole, 9);
  distag_future_cancel(future); /* too late */
  CHECK_OK(distag_future_get_value(future, &seen, &err));
  distag_future_retain(future);
  distag_future_release(future);
  distag_future_release(future);

  future = begin_deferred(&reply); /* ends with an error */
  distag_error_set(&told, 1500, "later, and badly");
  CHECK_OK(distag_reply_finish(reply, NULL, &told, &err));
  distag_reply_release(reply);
  CHECK_FAILS(distag_future_wait(future, DISTAG_FOREVER, &err), 1500, "badly");
  CHECK_FAILS(distag_future_get_value(future, &seen, &err), 1500, "badly");
  CHECK(seen == NULL);
  CHECK_FAILS(distag_wait_all(&future, 1, DISTAG_FOREVER, &err), 1500, "badly");
  distag_future_release(future);

  future = begin_deferred(&reply); /* ends with null */
  CHECK_OK(distag_reply_finish(reply, NULL, NULL, &err));
  distag_reply_release(reply);
  CHECK_OK(distag_future_wait(future, DISTAG_FOREVER, &err));
  CHECK_OK(distag_future_get_value(future, &seen, &err));
  CHECK_INT(distag_value_get_kind(seen), DISTAG_VALUE_NULL);
  distag_future_release(future);

  future = begin_deferred(&reply); /* dropped */
  distag_reply_release(reply);
  CHECK_FAILS(distag_future_wait(future, DISTAG_FOREVER, &err), DISTAG_E_REMOTE, "deferring");
  distag_future_release(future);

  future = begin_deferred(&reply); /* cancelled by the caller */
  distag_future_cancel(future);
  CHECK_FAILS(distag_future_wait(future, DISTAG_FOREVER, &err), DISTAG_E_CANCELLED, "cancel");
  while (distag_reply_is_cancelled(reply) == 0) {
  }
  CHECK_OK(distag_reply_finish(reply, NULL, NULL, &err)); /* dropped */
  CHECK_FAILS(distag_reply_finish(reply, NULL, &told, &err), DISTAG_E_INVALID_STATE, "already");
  distag_reply_release(reply);
  distag_future_release(future);
}

/* The function's own failure is the answer of its call, so the reply that it deferred comes second. */
static void a_reply_after_the_failure_of_its_function_is_refused(void) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_error told = DISTAG_ERROR_INIT;
  CHECK_FAILS(distag_call(w0, NULL, "w1", "failing_late", NULL, 0, NULL, NULL, &err), 1234, "after all");
  distag_reply *reply = atomic_exchange(&kept_reply, NULL);
  if (!CHECK(reply != NULL)) return;
  CHECK_INT(distag_reply_is_cancelled(reply), 1);
  CHECK_FAILS(distag_reply_finish(reply, NULL, NULL, &err), DISTAG_E_INVALID_STATE, "its function failed");
  distag_error_set(&told, 1500, "later, and badly");
  CHECK_FAILS(distag_reply_finish(reply, NULL, &told, &err), DISTAG_E_INVALID_STATE, "its function failed");
  distag_reply_release(reply);
}

static void on_done(void *user_data, distag_future *future) {
  CHECK_INT(distag_future_poll(future), 1);
  CHECK(user_data == &destroyed);
  atomic_fetch_add(&calls_back, 1);
}

static void future_callbacks(void) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_reply *reply = NULL;
  const int before = atomic_load(&destroyed);
  distag_future *future = begin_deferred(&reply);
  CHECK_OK(distag_future_on_done(future, on_done, &destroyed, count_destroy, &err));
  CHECK_INT(atomic_load(&calls_back), 0);
  CHECK_OK(distag_reply_finish(reply, NULL, NULL, &err));
  distag_reply_release(reply);
  while (atomic_load(&destroyed) < before + 1) {
  }
  CHECK_INT(atomic_load(&calls_back), 1);
  CHECK_OK(distag_future_on_done(future, on_done, &destroyed, count_destroy, &err)); /* complete already */
  while (atomic_load(&destroyed) < before + 2) {
  }
  CHECK_INT(atomic_load(&calls_back), 2);
  distag_future_release(future);
}

static void stats(void) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_stats seen = DISTAG_STATS_INIT;
  CHECK_OK(distag_worker_get_stats(w0, &seen, &err));
  CHECK(seen.calls_made > 10);
  CHECK(seen.calls_failed > 5);
  CHECK_INT(seen.calls_open, 0);
  CHECK_INT(seen.futures_open, 0);
  CHECK_INT(seen.struct_size, sizeof seen);
  CHECK(seen.bytes_sent > 100 && seen.bytes_received > 100);
  CHECK_OK(distag_worker_get_stats(w1, &seen, &err));
  CHECK(seen.calls_served > 10);
  /* A host of 0.1 has a smaller struct, of which all fields are filled. */
  seen.request_bytes_open = 7;
  seen.struct_size = offsetof(distag_stats, request_bytes_open);
  CHECK_OK(distag_worker_get_stats(w1, &seen, &err));
  CHECK(seen.calls_served > 10 && seen.request_bytes_open == 7);
  seen.struct_size = offsetof(distag_stats, request_bytes_waiting);
  CHECK_FAILS(distag_worker_get_stats(w1, &seen, &err), DISTAG_E_INVALID_ARGUMENT,
              "struct_size of distag_stats is 184");
}

static void shutdown(void) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_value *report = NULL;
  distag_future *future = NULL;
  distag_reply *reply = NULL;
  int32_t clean = 0;

  CHECK_OK(distag_worker_shutdown_async(w1, 120 * DISTAG_SECOND, &future, &err));
  CHECK_OK(distag_worker_shutdown(w0, 120 * DISTAG_SECOND, &report, &err));
  CHECK_OK(distag_value_get_bool(distag_value_get_entry(report, "clean"), &clean, &err));
  CHECK_INT(clean, 1);
  CHECK_INT(distag_value_get_count(distag_value_get_entry(report, "missing")), 0);
  CHECK_INT(distag_value_get_count(distag_value_get_entry(report, "leaked_rrefs")), 0);
  CHECK_INT(distag_value_get_kind(distag_value_get_entry(report, "open_calls")), DISTAG_VALUE_INT64);
  distag_value_release(report);
  CHECK_OK(distag_worker_shutdown(w0, 0, NULL, &err)); /* a second one is ok */
  CHECK_OK(distag_future_wait(future, DISTAG_FOREVER, &err));
  CHECK_OK(distag_future_get_value(future, &report, &err));
  CHECK_INT(distag_value_get_count(report), 4);
  CHECK_INT(atomic_load(&destroyed), 5); /* of "twice" now, and of four calls before */

  /* Handles stay safe. */
  CHECK_FAILS(distag_future_on_done(future, on_done, &destroyed, count_destroy, &err), DISTAG_E_INVALID_STATE, "down");
  CHECK_INT(atomic_load(&destroyed), 6);
  distag_future_release(future);
  future = NULL;
  CHECK_FAILS(distag_call(w0, NULL, "w1", "silent", NULL, 0, NULL, NULL, &err), DISTAG_E_INVALID_STATE, "down");
  CHECK_FAILS(distag_call_async(w0, NULL, "w1", "silent", NULL, 0, NULL, &future, &err), DISTAG_E_INVALID_STATE,
              "down");
  CHECK_FAILS(distag_worker_start(w0, 0, &err), DISTAG_E_INVALID_STATE, "down");
  CHECK_FAILS(distag_worker_register(w0, "late", silent, NULL, NULL, NULL, &err), DISTAG_E_INVALID_STATE, "down");
  distag_context *context = NULL;
  CHECK_FAILS(distag_context_create(w0, &context, &err), DISTAG_E_INVALID_STATE, "down");
  CHECK(future == NULL && context == NULL && reply == NULL);
  distag_worker_retain(w0);
  distag_worker_release(w0);
  distag_worker_release(w0);
  distag_worker_release(w1);
}

int main(void) {
  start();
  calls();
  failures();
  deferred();
  a_reply_after_the_failure_of_its_function_is_refused();
  future_callbacks();
  stats();
  shutdown();
  return check_end();
}
