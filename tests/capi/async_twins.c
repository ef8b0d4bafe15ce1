/* The asynchronous twins of all_gather, clip, save and load, and the future that completes when gradients are
 * settled. */
#include "capi/check.h"
#include "capi/support/group.h"

enum { kSize = 3 };

static distag_error err = DISTAG_ERROR_INIT;
static distag_worker *workers[kSize];

static distag_value *number(int64_t value) {
  distag_value *made = NULL;
  CHECK_OK(distag_value_create_int64(value, &made, &err));
  return made;
}

static distag_future *gather(int rank, int64_t value, const int32_t *ranks, size_t count, int64_t timeout) {
  distag_future *future = NULL;
  distag_value *mine = number(value);
  CHECK_OK(distag_worker_all_gather_async(workers[rank], mine, ranks, count, timeout, &future, &err));
  distag_value_release(mine);
  return future;
}

/* Releases the future too. */
static void check_gathered(distag_future *future, const int64_t *expected, size_t count) {
  distag_value *all = NULL;
  int64_t seen[kSize] = {0};
  size_t seen_count = 0;
  CHECK_OK(distag_future_wait(future, 120 * DISTAG_SECOND, &err));
  CHECK_OK(distag_future_get_value(future, &all, &err));
  CHECK_OK(distag_value_copy_int64s(all, seen, kSize, &seen_count, &err));
  CHECK_INT(seen_count, count);
  for (size_t i = 0; i < count; ++i) CHECK_INT(seen[i], expected[i]);
  distag_future_release(future);
}

/* A single thread takes part for all. */
static void gathers(void) {
  static const int32_t down[] = {2, 0};
  const int64_t all[] = {10, 11, 12}, two[] = {22, 20};
  distag_future *futures[kSize], *first = gather(0, 20, down, 2, DISTAG_FOREVER);
  for (int i = 0; i < kSize; ++i) futures[i] = gather(i, 10 + i, NULL, 0, 120 * DISTAG_SECOND);
  for (int i = 0; i < kSize; ++i) check_gathered(futures[i], all, kSize);
  CHECK_INT(distag_future_poll(first), 0);
  check_gathered(gather(2, 22, down, 2, DISTAG_FOREVER), two, 2);
  check_gathered(first, two, 2);
}

static void gathers_that_fail(void) {
  static const int32_t twice[] = {0, 1, 1};
  distag_future *future = gather(0, 1, NULL, 0, 100 * DISTAG_MILLISECOND);
  distag_value *value = number(1);
  CHECK_FAILS(distag_future_wait(future, 120 * DISTAG_SECOND, &err), DISTAG_E_DEADLINE, "rank 2");
  distag_future_release(future);
  CHECK_FAILS(distag_worker_all_gather_async(workers[0], value, twice, 3, 0, &future, &err), DISTAG_E_INVALID_ARGUMENT,
              "named twice");
  CHECK_FAILS(distag_worker_all_gather_async(workers[0], value, NULL, 0, -2, &future, &err), DISTAG_E_INVALID_ARGUMENT,
              "timeout_ns");
  CHECK(future == NULL);
  distag_value_release(value);
}

/* Waits for a call: after that, everything that this worker sent before has arrived. */
static void ask(int from, const char *to) {
  distag_tensor *x = NULL;
  CHECK_OK(distag_zeros(DISTAG_FLOAT32, NULL, 0, &x, &err));
  distag_value *arg = distag_tensor_as_value(x);
  CHECK_OK(distag_call(workers[from], NULL, to, "neg", &arg, 1, NULL, NULL, &err));
  distag_tensor_release(x);
}

/* A cancelled gathering is withdrawn, under way or in the queue: the next gathering takes its place. */
static void gathers_that_are_cancelled(void) {
  const int64_t all[] = {5, 6, 7};
  distag_future *under_way = gather(2, 1, NULL, 0, DISTAG_FOREVER), *queued = gather(2, 2, NULL, 0, DISTAG_FOREVER);
  distag_future *last = gather(2, 7, NULL, 0, DISTAG_FOREVER);
  distag_future_cancel(queued);
  distag_future_cancel(under_way);
  distag_future_cancel(under_way);
  CHECK_FAILS(distag_future_wait(under_way, DISTAG_FOREVER, &err), DISTAG_E_CANCELLED, "cancelled");
  CHECK_FAILS(distag_future_wait(queued, DISTAG_FOREVER, &err), DISTAG_E_CANCELLED, "cancelled");
  ask(2, "w0"); /* the gathering worker knows of it */
  distag_future *first = gather(0, 5, NULL, 0, DISTAG_FOREVER);
  check_gathered(gather(1, 6, NULL, 0, DISTAG_FOREVER), all, kSize);
  check_gathered(first, all, kSize);
  check_gathered(last, all, kSize);
  distag_future_release(under_way);
  distag_future_release(queued);
}

/* ---- optimizers ---- */

static double item_of(distag_tensor *tensor) {
  double item = 0;
  CHECK_OK(distag_tensor_get_item(tensor, &item, &err));
  return item;
}

static distag_tensor *leaf(double value) {
  distag_tensor *made = NULL;
  CHECK_OK(distag_full(value, DISTAG_FLOAT64, NULL, 0, &made, &err));
  CHECK_OK(distag_tensor_set_requires_grad(made, 1, &err));
  return made;
}

/* The gradient of the leaf grows by `times`. */
static void add_gradient(distag_context *context, distag_tensor *leaf_, double times) {
  distag_tensor *y = NULL;
  CHECK_OK(distag_mul_scalar(leaf_, times, &y, &err));
  CHECK_OK(distag_backward(context, &y, 1, NULL, &err));
  distag_tensor_release(y);
}

static distag_optimizer *sgd(distag_worker *worker, distag_tensor *parameter) {
  distag_value *const values[1] = {distag_tensor_as_value(parameter)};
  distag_optimizer *made = NULL;
  CHECK_OK(distag_optimizer_create(worker, "sgd", values, 1, &made, &err));
  CHECK_OK(distag_optimizer_set(made, "lr", 1, &err));
  CHECK_OK(distag_optimizer_set(made, "momentum", 0.5, &err));
  return made;
}

static distag_value *value_of(distag_future *future) {
  distag_value *value = NULL;
  CHECK_OK(distag_future_wait(future, 120 * DISTAG_SECOND, &err));
  CHECK_OK(distag_future_get_value(future, &value, &err));
  return value;
}

static void clips(void) {
  distag_tensor *a = leaf(1);
  distag_context *context = NULL;
  distag_optimizer *optimizer = sgd(workers[0], a);
  distag_future *future = NULL;
  double norm = 0;
  CHECK_OK(distag_context_create(workers[0], &context, &err));
  add_gradient(context, a, -4);
  CHECK_OK(distag_optimizer_clip_async(optimizer, context, 2, NULL, &future, &err));
  CHECK_OK(distag_value_get_float64(value_of(future), &norm, &err));
  CHECK_NEAR(norm, 4);
  distag_future_release(future);
  CHECK_OK(distag_optimizer_clip(optimizer, context, 9, NULL, &norm, &err));
  CHECK_NEAR(norm, 2);
  CHECK_FAILS(distag_optimizer_clip_async(optimizer, context, -1, NULL, &future, &err), DISTAG_E_INVALID_ARGUMENT,
              "max_norm");
  CHECK(future == NULL);
  add_gradient(context, a, INFINITY);
  CHECK_OK(distag_optimizer_clip_async(optimizer, context, 1, NULL, &future, &err));
  CHECK_FAILS(distag_future_wait(future, DISTAG_FOREVER, &err), DISTAG_E_INVALID_STATE, "norm");
  distag_future_release(future);
  distag_optimizer_release(optimizer);
  distag_context_release(context);
  distag_tensor_release(a);
}

/* The state goes from one optimizer into another, which goes on like the first. */
static void saves_and_loads(void) {
  distag_tensor *a = leaf(1), *b = leaf(1);
  distag_context *context = NULL;
  distag_optimizer *first = sgd(workers[0], a), *second = sgd(workers[0], b);
  distag_future *saved = NULL, *loaded = NULL;
  distag_value *wrong = number(1);
  CHECK_OK(distag_context_create(workers[0], &context, &err));
  add_gradient(context, a, 1);
  CHECK_OK(distag_optimizer_step(first, context, NULL, &err)); /* its buffer is 1 */
  CHECK_OK(distag_optimizer_save_async(first, NULL, &saved, &err));
  CHECK_INT(distag_value_get_kind(value_of(saved)), DISTAG_VALUE_MAP);
  CHECK_OK(distag_optimizer_load_async(second, value_of(saved), NULL, &loaded, &err));
  CHECK_INT(distag_value_get_kind(value_of(loaded)), DISTAG_VALUE_NULL);
  distag_future_release(loaded);
  distag_future_release(saved);
  add_gradient(context, b, 1);
  CHECK_OK(distag_optimizer_step(second, context, NULL, &err));
  CHECK_NEAR(item_of(b), 1 - 1.5);
  CHECK_FAILS(distag_optimizer_load_async(second, wrong, NULL, &loaded, &err), DISTAG_E_INVALID_ARGUMENT, "map");
  CHECK(loaded == NULL);
  distag_value_release(wrong);
  distag_optimizer_release(first);
  distag_optimizer_release(second);
  distag_context_release(context);
  distag_tensor_release(a);
  distag_tensor_release(b);
}

static void without_a_worker(void) {
  distag_tensor *a = leaf(1);
  distag_context *context = NULL;
  distag_optimizer *optimizer = sgd(NULL, a);
  distag_future *future = NULL;
  distag_value *state = number(1);
  CHECK_OK(distag_context_create(NULL, &context, &err));
  CHECK_FAILS(distag_optimizer_clip_async(optimizer, context, 1, NULL, &future, &err), DISTAG_E_UNSUPPORTED, "worker");
  CHECK_FAILS(distag_optimizer_save_async(optimizer, NULL, &future, &err), DISTAG_E_UNSUPPORTED, "no worker");
  CHECK_FAILS(distag_optimizer_load_async(optimizer, state, NULL, &future, &err), DISTAG_E_UNSUPPORTED, "no worker");
  CHECK_FAILS(distag_context_settle_async(context, &future, &err), DISTAG_E_UNSUPPORTED, "without a worker");
  CHECK(future == NULL);
  distag_value_release(state);
  distag_optimizer_release(optimizer);
  distag_context_release(context);
  distag_tensor_release(a);
}

#define CHAINED(call)                                                 \
  do {                                                                \
    CHECK_FAILS(call, DISTAG_E_INVALID_ARGUMENT, "NULL");             \
    distag_error_set(&err, 1999, "kept");                             \
    check_fails(call, 1999, &err, "kept", __FILE__, __LINE__, #call); \
  } while (0)

static void nulls(void) {
  distag_tensor *a = leaf(1);
  distag_context *context = NULL;
  distag_optimizer *optimizer = sgd(workers[0], a);
  distag_future *future = NULL;
  distag_value *state = number(1);
  CHECK_OK(distag_context_create(workers[0], &context, &err));
  CHAINED(distag_optimizer_clip_async(NULL, context, 1, NULL, &future, &err));
  CHAINED(distag_optimizer_clip_async(optimizer, NULL, 1, NULL, &future, &err));
  CHECK_FAILS(distag_optimizer_clip_async(optimizer, context, 1, NULL, NULL, &err), DISTAG_E_INVALID_ARGUMENT, "NULL");
  CHAINED(distag_optimizer_save_async(NULL, NULL, &future, &err));
  CHECK_FAILS(distag_optimizer_save_async(optimizer, NULL, NULL, &err), DISTAG_E_INVALID_ARGUMENT, "NULL");
  CHAINED(distag_optimizer_load_async(NULL, state, NULL, &future, &err));
  CHAINED(distag_optimizer_load_async(optimizer, NULL, NULL, &future, &err));
  CHECK_FAILS(distag_optimizer_load_async(optimizer, state, NULL, NULL, &err), DISTAG_E_INVALID_ARGUMENT, "NULL");
  CHECK(future == NULL);
  distag_value_release(state);
  distag_optimizer_release(optimizer);
  distag_context_release(context);
  distag_tensor_release(a);
}

/* ---- settled gradients ---- */

static distag_tensor *weight; /* of w1 */

static distag_status scale(void *user_data, distag_invocation *invocation, distag_error *told) {
  distag_tensor *x = NULL, *y = NULL;
  (void)user_data;
  distag_invocation_get_tensor(invocation, 0, &x, told);
  distag_mul(x, weight, &y, told);
  distag_invocation_return(invocation, distag_tensor_as_value(y), told);
  distag_tensor_release(y);
  return told->code;
}

/* At a worker that took part: once settled, its gradients are there. */
static distag_status look(void *user_data, distag_invocation *invocation, distag_error *told) {
  distag_context *context = distag_invocation_get_context(invocation);
  distag_future *future = NULL;
  distag_gradients *gradients = NULL;
  (void)user_data;
  distag_context_settle_async(context, &future, told);
  distag_future_wait(future, DISTAG_FOREVER, told);
  distag_future_release(future);
  distag_get_gradients(context, &gradients, told);
  distag_invocation_return(invocation, distag_tensor_as_value(distag_gradients_find(gradients, weight)), told);
  distag_gradients_release(gradients);
  return told->code;
}

static void settles(void) {
  distag_context *context = NULL;
  distag_tensor *x = leaf(3), *y = NULL, *seen = NULL;
  distag_value *arg = distag_tensor_as_value(x), *result = NULL;
  distag_future *future = NULL;
  CHECK_OK(distag_context_create(workers[0], &context, &err));
  CHECK_OK(distag_context_settle_async(context, &future, &err)); /* before any pass */
  CHECK_INT(distag_future_poll(future), 1);
  CHECK_INT(distag_value_get_kind(value_of(future)), DISTAG_VALUE_NULL);
  distag_future_release(future);
  for (int pass = 1; pass <= 20; ++pass) {
    CHECK_OK(distag_call(workers[0], context, "w1", "scale", &arg, 1, NULL, &result, &err));
    CHECK_OK(distag_value_get_tensor(result, &y, &err));
    CHECK_OK(distag_backward(context, &y, 1, NULL, &err));
    distag_value_release(result);
    CHECK_OK(distag_call(workers[0], context, "w1", "look", NULL, 0, NULL, &result, &err));
    CHECK_OK(distag_value_get_tensor(result, &seen, &err));
    CHECK_NEAR(item_of(seen), 3 * pass);
    distag_value_release(result);
  }
  distag_context_retain(context);
  distag_context_release(context);
  CHECK_OK(distag_context_settle_async(context, &future, &err));
  distag_context_release(context);
  value_of(future);
  distag_future_release(future);
  distag_tensor_release(x);
}

/* An operation that is open when its worker goes completes; a later one is refused. */
static void beside_a_shutdown(void) {
  distag_tensor *a = leaf(1);
  distag_context *context = NULL;
  distag_optimizer *optimizer = sgd(workers[0], a);
  distag_value *state = number(1);
  distag_future *gathered = gather(0, 1, NULL, 0, DISTAG_FOREVER), *future = NULL;
  CHECK_OK(distag_context_create(workers[0], &context, &err));
  CHECK_OK(distag_worker_shutdown(workers[0], 0, NULL, &err));
  CHECK_INT(distag_future_poll(gathered), 1);
  CHECK_FAILS(distag_future_wait(gathered, 0, &err), DISTAG_E_CANCELLED, "shut down");
  distag_future_release(gathered);
  CHECK_FAILS(distag_worker_all_gather_async(workers[0], state, NULL, 0, 0, &future, &err), DISTAG_E_INVALID_STATE,
              "down");
  CHECK_FAILS(distag_optimizer_clip_async(optimizer, context, 1, NULL, &future, &err), DISTAG_E_INVALID_STATE, "down");
  CHECK_FAILS(distag_optimizer_save_async(optimizer, NULL, &future, &err), DISTAG_E_INVALID_STATE, "down");
  CHECK_FAILS(distag_optimizer_load_async(optimizer, state, NULL, &future, &err), DISTAG_E_INVALID_STATE, "down");
  CHECK_FAILS(distag_context_settle_async(context, &future, &err), DISTAG_E_INVALID_STATE, "down");
  CHECK(future == NULL);
  distag_value_release(state);
  distag_optimizer_release(optimizer);
  distag_context_release(context);
  distag_tensor_release(a);
}

int main(void) {
  weight = leaf(2);
  for (int32_t i = 0; i < kSize; ++i) {
    const distag_worker_options options = group_options(i, kSize, "inproc://async_twins");
    CHECK_OK(distag_worker_create(&options, &workers[i], &err));
    CHECK_OK(distag_worker_register(workers[i], "scale", scale, NULL, NULL, NULL, &err));
    CHECK_OK(distag_worker_register(workers[i], "look", look, NULL, NULL, NULL, &err));
  }
  CHECK_INT(group_start(workers, kSize), 0);
  gathers();
  gathers_that_fail();
  gathers_that_are_cancelled();
  clips();
  saves_and_loads();
  without_a_worker();
  nulls();
  settles();
  beside_a_shutdown();
  for (int i = 1; i < kSize; ++i) CHECK_OK(distag_worker_shutdown(workers[i], 0, NULL, &err));
  for (int i = 0; i < kSize; ++i) distag_worker_release(workers[i]);
  distag_tensor_release(weight);
  return check_end();
}
