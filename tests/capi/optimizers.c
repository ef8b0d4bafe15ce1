/* Optimizers of tensors of this process, without and with a worker, through the C API. */
#include "capi/check.h"
#include "capi/support/group.h"

static distag_error err = DISTAG_ERROR_INIT;
static distag_worker *worker, *stranger;

static distag_tensor *leaf(double value) {
  distag_tensor *t = NULL;
  CHECK_OK(distag_full(value, DISTAG_FLOAT64, NULL, 0, &t, &err));
  CHECK_OK(distag_tensor_set_requires_grad(t, 1, &err));
  return t;
}

static double item_of(distag_tensor *t) {
  double item = -99;
  CHECK_OK(distag_tensor_get_item(t, &item, &err));
  return item;
}

static distag_optimizer *make(distag_worker *of, const char *kind, distag_tensor *a, distag_tensor *b) {
  distag_value *parameters[2];
  distag_optimizer *optimizer = NULL;
  parameters[0] = distag_tensor_as_value(a);
  parameters[1] = distag_tensor_as_value(b);
  CHECK_OK(distag_optimizer_create(of, kind, parameters, b == NULL ? 1 : 2, &optimizer, &err));
  return optimizer;
}

/* Adds `slope` to the gradient of `t` in the context. */
static void add_gradient(distag_context *context, distag_tensor *t, double slope) {
  distag_tensor *y = NULL;
  CHECK_OK(distag_mul_scalar(t, slope, &y, &err));
  CHECK_OK(distag_backward(context, &y, 1, NULL, &err));
  distag_tensor_release(y);
}

static distag_context *context_of(distag_worker *of) {
  distag_context *context = NULL;
  CHECK_OK(distag_context_create(of, &context, &err));
  return context;
}

static size_t stepped(distag_optimizer *optimizer, int32_t *rank) {
  size_t count = 99;
  CHECK_OK(distag_optimizer_copy_stepped_ranks(optimizer, rank, 1, &count, &err));
  return count;
}

/* The same with and without a worker, whose rank is 0. */
static void steps(distag_worker *of) {
  distag_tensor *a = leaf(1), *b = leaf(2);
  distag_context *context = context_of(of);
  distag_optimizer *optimizer = make(of, "sgd", a, b);
  int32_t rank = 9;

  CHECK_INT(stepped(optimizer, &rank), 0);
  CHECK_OK(distag_optimizer_set(optimizer, "lr", 0.5, &err));
  CHECK_OK(distag_optimizer_step(optimizer, context, NULL, &err)); /* no gradients: nothing moves */
  CHECK_NEAR(item_of(a), 1);
  add_gradient(context, a, 2);
  CHECK_OK(distag_optimizer_step(optimizer, context, NULL, &err));
  CHECK_NEAR(item_of(a), 0);
  CHECK_NEAR(item_of(b), 2);
  CHECK_INT(stepped(optimizer, &rank), 1);
  CHECK_INT(rank, of == NULL ? -1 : 0);
  CHECK_OK(distag_optimizer_set(optimizer, "lr", 1, &err));
  CHECK_OK(distag_optimizer_step(optimizer, context, NULL, &err));
  CHECK_NEAR(item_of(a), -2);

  CHECK_OK(distag_optimizer_set(optimizer, "nesterov", 1, &err));
  CHECK_FAILS(distag_optimizer_step(optimizer, context, NULL, &err), DISTAG_E_INVALID_STATE, "momentum");
  CHECK_NEAR(item_of(a), -2);
  CHECK_INT(stepped(optimizer, &rank), 0);
  distag_optimizer_retain(optimizer);
  distag_optimizer_release(optimizer);
  distag_optimizer_release(optimizer);
  distag_context_release(context);
  distag_tensor_release(a);
  distag_tensor_release(b);
}

static void clips(distag_worker *of) {
  distag_tensor *a = leaf(1), *b = leaf(2);
  distag_context *context = context_of(of);
  distag_optimizer *optimizer = make(of, "sgd", a, b);
  double norm = 0;

  add_gradient(context, a, 3);
  add_gradient(context, b, 4);
  CHECK_OK(distag_optimizer_clip(optimizer, context, 10, NULL, &norm, &err));
  CHECK_NEAR(norm, 5);
  CHECK_OK(distag_optimizer_clip(optimizer, context, 1, NULL, NULL, &err));
  CHECK_OK(distag_optimizer_clip(optimizer, context, 1, NULL, &norm, &err));
  CHECK_NEAR(norm, 1);
  CHECK_FAILS(distag_optimizer_clip(optimizer, context, -1, NULL, &norm, &err), DISTAG_E_INVALID_ARGUMENT, "max_norm");
  CHECK_NEAR(norm, 0);
  CHECK_OK(distag_optimizer_set(optimizer, "lr", 1, &err));
  CHECK_OK(distag_optimizer_step(optimizer, context, NULL, &err));
  CHECK_NEAR(item_of(a), 1 - 0.6);
  CHECK_NEAR(item_of(b), 2 - 0.8);
  add_gradient(context, a, INFINITY);
  CHECK_FAILS(distag_optimizer_clip(optimizer, context, 1, NULL, NULL, &err), DISTAG_E_INVALID_STATE, "norm");
  distag_context_release(context);
  context = context_of(of); /* gradients whose squares overflow */
  add_gradient(context, a, 3e200);
  add_gradient(context, b, 4e200);
  CHECK_OK(distag_optimizer_clip(optimizer, context, 1, NULL, &norm, &err));
  CHECK_NEAR(norm / 1e200, 5);
  CHECK_OK(distag_optimizer_clip(optimizer, context, 1, NULL, &norm, &err));
  CHECK_NEAR(norm, 1);
  distag_optimizer_release(optimizer);
  distag_context_release(context);
  distag_tensor_release(a);
  distag_tensor_release(b);
}

/* Two optimizers, the second loaded with what the first has kept, go on alike; one that was not loaded does not. */
static void saves(distag_worker *of) {
  distag_tensor *a = leaf(1), *b = leaf(1), *c = leaf(1);
  distag_context *context = context_of(of);
  distag_optimizer *first = make(of, "sgd", a, NULL), *second = make(of, "sgd", b, NULL);
  distag_optimizer *other = make(of, "adam", c, NULL);
  distag_value *state = NULL, *null = NULL;

  CHECK_OK(distag_optimizer_set(first, "lr", 1, &err));
  CHECK_OK(distag_optimizer_set(first, "momentum", 0.5, &err));
  add_gradient(context, a, 1);
  CHECK_OK(distag_optimizer_step(first, context, NULL, &err)); /* a is 0, its buffer 1 */
  CHECK_OK(distag_optimizer_save(first, NULL, &state, &err));
  CHECK_INT(distag_value_get_kind(state), DISTAG_VALUE_MAP);
  CHECK_OK(distag_optimizer_step(first, context, NULL, &err)); /* does not reach what was saved */
  CHECK_NEAR(item_of(a), -1.5);
  CHECK_OK(distag_optimizer_load(second, state, NULL, &err));
  add_gradient(context, b, 1);
  CHECK_OK(distag_optimizer_step(second, context, NULL, &err));
  CHECK_NEAR(item_of(b), 1 - 1.5);
  CHECK_FAILS(distag_optimizer_load(other, state, NULL, &err), DISTAG_E_INVALID_ARGUMENT, "adam");
  CHECK_OK(distag_value_create_null(&null, &err));
  CHECK_FAILS(distag_optimizer_load(first, null, NULL, &err), DISTAG_E_INVALID_ARGUMENT, "map");
  distag_value_release(null);
  distag_value_release(state);
  distag_optimizer_release(other);
  distag_optimizer_release(second);
  distag_optimizer_release(first);
  distag_context_release(context);
  distag_tensor_release(a);
  distag_tensor_release(b);
  distag_tensor_release(c);
}

/* A setting that was turned on since the last step: what it needs is made by the next one, before and after a load. */
static void saves_before_a_setting_counts(distag_worker *of) {
  distag_tensor *a = leaf(1), *b = leaf(1);
  distag_context *context = context_of(of);
  distag_optimizer *first = make(of, "sgd", a, NULL), *second = make(of, "sgd", b, NULL);
  distag_value *state = NULL;
  add_gradient(context, a, 1);
  add_gradient(context, b, 1);
  CHECK_OK(distag_optimizer_set(first, "lr", 1, &err));
  CHECK_OK(distag_optimizer_step(first, context, NULL, &err));
  CHECK_OK(distag_optimizer_set(first, "momentum", 0.5, &err));
  CHECK_OK(distag_optimizer_save(first, NULL, &state, &err));
  CHECK_OK(distag_optimizer_load(second, state, NULL, &err));
  for (int i = 0; i < 2; ++i) {
    CHECK_OK(distag_optimizer_step(first, context, NULL, &err));
    CHECK_OK(distag_optimizer_step(second, context, NULL, &err));
  }
  CHECK_NEAR(item_of(a), -2.5);
  CHECK_NEAR(item_of(b), -1.5);
  distag_value_release(state);
  distag_optimizer_release(second);
  distag_optimizer_release(first);
  distag_context_release(context);
  distag_tensor_release(a);
  distag_tensor_release(b);
}

static void without_a_thread(void) {
  distag_tensor *a = leaf(1);
  distag_context *context = context_of(NULL);
  distag_optimizer *optimizer = make(NULL, "rprop", a, NULL);
  distag_future *future = NULL;
  CHECK_FAILS(distag_optimizer_step_async(optimizer, context, NULL, &future, &err), DISTAG_E_UNSUPPORTED, "no worker");
  CHECK(future == NULL);
  distag_optimizer_release(optimizer);
  distag_context_release(context);
  distag_tensor_release(a);
}

static void side_by_side(void) {
  enum { STEPS = 20 };
  distag_tensor *a = leaf(0);
  distag_context *context = context_of(worker);
  distag_optimizer *first = make(worker, "sgd", a, NULL), *second = make(worker, "sgd", a, NULL);
  distag_call_options options = DISTAG_CALL_OPTIONS_INIT;
  distag_future *futures[STEPS];
  options.timeout_ns = 60 * DISTAG_SECOND;
  add_gradient(context, a, 1);
  CHECK_OK(distag_optimizer_set(first, "lr", 1, &err));
  CHECK_OK(distag_optimizer_set(second, "lr", 0.5, &err));
  for (int i = 0; i < STEPS; ++i) {
    CHECK_OK(distag_optimizer_step_async(i % 2 == 0 ? first : second, context, &options, &futures[i], &err));
  }
  CHECK_OK(distag_wait_all(futures, STEPS, 60 * DISTAG_SECOND, &err));
  for (int i = 0; i < STEPS; ++i) distag_future_release(futures[i]);
  CHECK_NEAR(item_of(a), -(STEPS / 2) * 1.5);
  distag_optimizer_release(first);
  distag_optimizer_release(second);
  distag_context_release(context);
  distag_tensor_release(a);
}

static void refusals_of_create(distag_worker *of) {
  distag_tensor *a = leaf(1), *y = NULL, *whole = NULL;
  distag_value *twice[2], *one = distag_tensor_as_value(a), *number = NULL, *wrong = NULL;
  distag_optimizer *optimizer = NULL;
  twice[0] = twice[1] = one;
  CHECK_FAILS(distag_optimizer_create(of, "adamx", &one, 1, &optimizer, &err), DISTAG_E_NOT_FOUND, "adamw");
  CHECK_FAILS(distag_optimizer_create(of, "adam", twice, 2, &optimizer, &err), DISTAG_E_INVALID_ARGUMENT, "twice");
  CHECK_OK(distag_value_create_int64(1, &number, &err));
  CHECK_FAILS(distag_optimizer_create(of, "adam", &number, 1, &optimizer, &err), DISTAG_E_INVALID_ARGUMENT, "tensor");
  CHECK_OK(distag_neg(a, &y, &err));
  wrong = distag_tensor_as_value(y);
  CHECK_FAILS(distag_optimizer_create(of, "adam", &wrong, 1, &optimizer, &err), DISTAG_E_INVALID_ARGUMENT, "leaf");
  CHECK_OK(distag_zeros(DISTAG_INT64, NULL, 0, &whole, &err));
  wrong = distag_tensor_as_value(whole);
  CHECK_FAILS(distag_optimizer_create(of, "adam", &wrong, 1, &optimizer, &err), DISTAG_E_INVALID_ARGUMENT, "float32");
  CHECK_FAILS(distag_optimizer_create(of, NULL, &one, 1, &optimizer, &err), DISTAG_E_INVALID_ARGUMENT, "kind");
  CHECK_FAILS(distag_optimizer_create(of, "adam", NULL, 1, &optimizer, &err), DISTAG_E_INVALID_ARGUMENT, "parameters");
  CHECK_FAILS(distag_optimizer_create(of, "adam", &one, 1, NULL, &err), DISTAG_E_INVALID_ARGUMENT, "out_optimizer");
  CHECK(optimizer == NULL);
  CHECK_FAILS(distag_optimizer_create(of, "adam", NULL, 0, &optimizer, &err), DISTAG_E_INVALID_ARGUMENT,
              "there are no parameters");
  distag_value_release(number);
  distag_tensor_release(whole);
  distag_tensor_release(y);
  distag_tensor_release(a);
}

static void refusals_of_settings(void) {
  distag_tensor *a = leaf(1);
  distag_optimizer *optimizer = make(NULL, "adam", a, NULL);
  CHECK_FAILS(distag_optimizer_set(optimizer, "momentum", 1, &err), DISTAG_E_NOT_FOUND, "beta1, beta2");
  CHECK_FAILS(distag_optimizer_set(optimizer, "beta1", 1, &err), DISTAG_E_INVALID_ARGUMENT, "[0, 1)");
  CHECK_FAILS(distag_optimizer_set(optimizer, "amsgrad", 2, &err), DISTAG_E_INVALID_ARGUMENT, "0 or 1");
  CHECK_FAILS(distag_optimizer_set(optimizer, NULL, 2, &err), DISTAG_E_INVALID_ARGUMENT, "setting");
  distag_optimizer_release(optimizer);
  distag_tensor_release(a);
}

/* A context has to be of the optimizer's worker, and borrowed memory cannot move. */
static void refusals_of_step(void) {
  static const double memory = 5;
  distag_tensor *borrowed = NULL;
  distag_context *foreign = context_of(stranger), *local = context_of(NULL);
  distag_optimizer *optimizer = NULL;
  CHECK_OK(distag_tensor_create_borrowed(&memory, sizeof memory, DISTAG_FLOAT64, NULL, NULL, 0, NULL, NULL, &borrowed,
                                         &err));
  CHECK_OK(distag_tensor_set_requires_grad(borrowed, 1, &err));
  optimizer = make(worker, "sgd", borrowed, NULL);
  CHECK_FAILS(distag_optimizer_step(optimizer, foreign, NULL, &err), DISTAG_E_INVALID_ARGUMENT, "another worker");
  add_gradient(local, borrowed, 1);
  CHECK_FAILS(distag_optimizer_step(optimizer, local, NULL, &err), DISTAG_E_INVALID_STATE, "borrows");
  CHECK(memory == 5);
  distag_optimizer_release(optimizer);
  distag_context_release(local);
  distag_context_release(foreign);
  distag_tensor_release(borrowed);
}

static void at_worker_without_start(void) {
  distag_worker_options options = group_options(0, 1, "inproc://capi-optimizers-idle");
  distag_worker *idle = NULL;
  distag_tensor *a = leaf(1);
  distag_value *state = NULL;
  distag_optimizer *optimizer = NULL;
  CHECK_OK(distag_worker_create(&options, &idle, &err));
  optimizer = make(idle, "sgd", a, NULL);
  CHECK_FAILS(distag_optimizer_save(optimizer, NULL, &state, &err), DISTAG_E_INVALID_STATE, "not started");
  CHECK(state == NULL);
  distag_optimizer_release(optimizer);
  distag_tensor_release(a);
  distag_worker_release(idle);
}

static distag_status answer_nothing(void *user_data, distag_invocation *invocation, distag_error *unused) {
  (void)user_data;
  (void)invocation;
  (void)unused;
  return DISTAG_OK;
}

/* A NULL handle is refused, and passes on a failure that err holds already. */
#define CHAINED(call)                                                 \
  do {                                                                \
    CHECK_FAILS(call, DISTAG_E_INVALID_ARGUMENT, "NULL");             \
    distag_error_set(&err, 1999, "kept");                             \
    check_fails(call, 1999, &err, "kept", __FILE__, __LINE__, #call); \
  } while (0)

static void nulls(void) {
  distag_tensor *a = leaf(1);
  distag_context *context = context_of(worker);
  distag_optimizer *optimizer = make(worker, "sgd", a, NULL);
  distag_value *state = NULL;
  distag_future *future = NULL;
  size_t count = 9;
  int32_t rank = 0;
  CHAINED(distag_optimizer_set(NULL, "lr", 1, &err));
  CHAINED(distag_optimizer_step(NULL, context, NULL, &err));
  CHAINED(distag_optimizer_step(optimizer, NULL, NULL, &err));
  CHAINED(distag_optimizer_step_async(NULL, context, NULL, &future, &err));
  CHAINED(distag_optimizer_step_async(optimizer, NULL, NULL, &future, &err));
  CHECK_FAILS(distag_optimizer_step_async(optimizer, context, NULL, NULL, &err), DISTAG_E_INVALID_ARGUMENT, "out_f");
  CHAINED(distag_optimizer_copy_stepped_ranks(NULL, &rank, 1, &count, &err));
  CHECK_FAILS(distag_optimizer_copy_stepped_ranks(optimizer, NULL, 1, &count, &err), DISTAG_E_INVALID_ARGUMENT,
              "ranks");
  CHECK_FAILS(distag_optimizer_copy_stepped_ranks(optimizer, &rank, 1, NULL, &err), DISTAG_E_INVALID_ARGUMENT, "count");
  CHECK_OK(distag_optimizer_copy_stepped_ranks(optimizer, NULL, 0, &count, &err));
  CHAINED(distag_optimizer_clip(NULL, context, 1, NULL, NULL, &err));
  CHAINED(distag_optimizer_clip(optimizer, NULL, 1, NULL, NULL, &err));
  CHAINED(distag_optimizer_save(NULL, NULL, &state, &err));
  CHECK_FAILS(distag_optimizer_save(optimizer, NULL, NULL, &err), DISTAG_E_INVALID_ARGUMENT, "out_state");
  CHAINED(distag_optimizer_load(NULL, distag_tensor_as_value(a), NULL, &err));
  CHAINED(distag_optimizer_load(optimizer, NULL, NULL, &err));
  distag_optimizer_retain(NULL);
  distag_optimizer_release(NULL);
  CHECK(state == NULL && future == NULL);
  CHECK_FAILS(distag_worker_register(worker, "distag.mine", answer_nothing, NULL, NULL, NULL, &err),
              DISTAG_E_INVALID_ARGUMENT, "distag.");
  distag_optimizer_release(optimizer);
  distag_context_release(context);
  distag_tensor_release(a);
}

/* An optimizer outlives its worker's shutdown, and says so. */
static void after_shutdown(distag_optimizer *optimizer) {
  distag_value *state = NULL;
  CHECK_FAILS(distag_optimizer_save(optimizer, NULL, &state, &err), DISTAG_E_INVALID_STATE, "shut down");
  CHECK_FAILS(distag_optimizer_set(optimizer, "lr", 1, &err), DISTAG_E_INVALID_STATE, "shut down");
}

int main(void) {
  distag_worker_options options = group_options(0, 1, "inproc://capi-optimizers");
  distag_worker_options others = group_options(0, 1, "inproc://capi-optimizers-others");
  distag_tensor *a = leaf(1);
  distag_optimizer *last = NULL;

  CHECK_OK(distag_worker_create(&options, &worker, &err));
  CHECK_OK(distag_worker_create(&others, &stranger, &err));
  CHECK_INT(group_start(&worker, 1), 0);
  CHECK_INT(group_start(&stranger, 1), 0);
  steps(NULL);
  steps(worker);
  clips(NULL);
  clips(worker);
  saves(NULL);
  saves(worker);
  saves_before_a_setting_counts(NULL);
  saves_before_a_setting_counts(worker);
  without_a_thread();
  side_by_side();
  refusals_of_create(NULL);
  refusals_of_create(worker);
  refusals_of_settings();
  refusals_of_step();
  at_worker_without_start();
  nulls();
  last = make(worker, "sgd", a, NULL);
  CHECK_INT(group_shutdown(&worker, 1), 0);
  CHECK_INT(group_shutdown(&stranger, 1), 0);
  after_shutdown(last);
  distag_worker_release(worker);
  distag_worker_release(stranger);
  distag_optimizer_release(last);
  distag_tensor_release(a);
  return check_end();
}
