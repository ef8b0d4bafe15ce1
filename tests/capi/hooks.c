/* Hooks of tensors: order, replacement, failures, ends; in local passes and across two workers. */
#include <stdatomic.h>

#include "capi/check.h"
#include "capi/support/group.h"

static distag_error err = DISTAG_ERROR_INIT;
static distag_worker *w0, *w1;
static atomic_int destroyed;
static double seen[8];
static int seen_count;

static void count_destroy(void *user_data) {
  (void)user_data;
  atomic_fetch_add(&destroyed, 1);
}

static distag_tensor *leaf(double value) {
  distag_tensor *t = NULL;
  CHECK_OK(distag_full(value, DISTAG_FLOAT64, NULL, 0, &t, &err));
  CHECK_OK(distag_tensor_set_requires_grad(t, 1, &err));
  return t;
}

/* Notes the gradient. */
static distag_status note(void *user_data, distag_tensor *gradient, distag_tensor **out_gradient, distag_error *told) {
  (void)user_data;
  CHECK(*out_gradient == NULL && told->code == DISTAG_OK);
  CHECK_INT(distag_tensor_get_requires_grad(gradient), 0);
  return distag_tensor_get_item(gradient, &seen[seen_count++ % 8], told);
}

/* Multiplies by the number that user_data points to. */
static distag_status scale(void *user_data, distag_tensor *gradient, distag_tensor **out_gradient, distag_error *told) {
  return distag_mul_scalar(gradient, *(const double *)user_data, out_gradient, told);
}

static distag_status refuse(void *user_data, distag_tensor *gradient, distag_tensor **out_gradient,
                            distag_error *told) {
  (void)user_data;
  distag_tensor_retain(gradient);
  *out_gradient = gradient;
  return distag_error_set(told, 1600, "not this one");
}

static distag_status wrong_shape(void *user_data, distag_tensor *gradient, distag_tensor **out_gradient,
                                 distag_error *told) {
  const int64_t two[] = {2};
  (void)user_data;
  (void)gradient;
  return distag_ones(DISTAG_FLOAT64, two, 1, out_gradient, told);
}

static uint64_t add(distag_tensor *t, distag_tensor_hook hook, void *user_data) {
  uint64_t id = 0;
  CHECK_OK(distag_tensor_add_hook(t, hook, user_data, count_destroy, &id, &err));
  CHECK(id != 0);
  return id;
}

/* The gradient of a leaf that a pass from the root gives; the context is the caller's, or one without a worker. */
static double gradient(distag_context *given, distag_tensor *root, distag_tensor *t, uint32_t retain_graph) {
  distag_backward_options options = DISTAG_BACKWARD_OPTIONS_INIT;
  distag_context *context = given;
  distag_gradients *gradients = NULL;
  double item = -1;
  options.retain_graph = retain_graph;
  if (given == NULL) CHECK_OK(distag_context_create(NULL, &context, &err));
  CHECK_OK(distag_backward(context, &root, 1, &options, &err));
  CHECK_OK(distag_get_gradients(context, &gradients, &err));
  CHECK_OK(distag_tensor_get_item(distag_gradients_find(gradients, t), &item, &err));
  distag_gradients_release(gradients);
  if (given == NULL) distag_context_release(context);
  return item;
}

/* y = (a x)^2 for a of 2: hooks of the leaf x, of a x, which is used twice, and of the root. */
static void order_and_replacement(void) {
  static double two = 2, ten = 10;
  distag_tensor *x = leaf(3), *middle = NULL, *y = NULL;
  uint64_t ids[3];
  atomic_store(&destroyed, 0);
  seen_count = 0;
  ids[0] = add(x, note, NULL);
  CHECK_OK(distag_mul_scalar(x, 2, &middle, &err));
  ids[1] = add(middle, note, NULL);
  add(middle, scale, &ten);
  add(middle, note, NULL);
  CHECK_OK(distag_mul(middle, middle, &y, &err));
  add(y, scale, &two);
  /* From y: 1, made 2; of the middle: 2 * 2 * 6 = 24, made 240; of x: 480. */
  CHECK_NEAR(gradient(NULL, y, x, 1), 480);
  CHECK_INT(seen_count, 3);
  CHECK_NEAR(seen[0], 24);
  CHECK_NEAR(seen[1], 240);
  CHECK_NEAR(seen[2], 480);
  CHECK_OK(distag_tensor_remove_hook(middle, ids[1], &err));
  CHECK_INT(atomic_load(&destroyed), 1);
  CHECK_FAILS(distag_tensor_remove_hook(middle, ids[1], &err), DISTAG_E_NOT_FOUND, "hook");
  CHECK_FAILS(distag_tensor_remove_hook(x, 99, &err), DISTAG_E_NOT_FOUND, "99");
  seen_count = 0;
  CHECK_NEAR(gradient(NULL, y, x, 0), 480); /* the last pass of this graph */
  CHECK_INT(seen_count, 2);
  CHECK_NEAR(seen[0], 240);
  distag_tensor_release(y);
  distag_tensor_release(middle);
  CHECK_INT(atomic_load(&destroyed), 4);

  seen_count = 0; /* the leaf keeps its hook for the next graph */
  CHECK_OK(distag_mul_scalar(x, 5, &y, &err));
  CHECK_NEAR(gradient(NULL, y, x, 0), 5);
  CHECK_INT(seen_count, 1);
  distag_tensor_release(y);
  CHECK_OK(distag_tensor_remove_hook(x, ids[0], &err));
  CHECK_INT(atomic_load(&destroyed), 5);
  distag_tensor_release(x);
}

static void failures(void) {
  distag_context *context = NULL;
  distag_tensor *x = leaf(3), *plain = NULL, *y = NULL;
  uint64_t id = 7;
  char name[64];
  atomic_store(&destroyed, 0);
  CHECK_OK(distag_ones(DISTAG_FLOAT64, NULL, 0, &plain, &err));
  CHECK_FAILS(distag_tensor_add_hook(plain, note, NULL, count_destroy, &id, &err), DISTAG_E_INVALID_STATE, "gradient");
  CHECK_INT(id, 0);
  CHECK_INT(atomic_load(&destroyed), 1);
  CHECK_OK(distag_context_create(NULL, &context, &err));
  id = add(x, refuse, NULL);
  CHECK_OK(distag_mul(x, x, &y, &err));
  snprintf(name, sizeof name, "hook of tensor %" PRIu64 " ", distag_tensor_get_id(x));
  CHECK_FAILS(distag_backward(context, &y, 1, NULL, &err), 1600, name);
  CHECK(strstr(err.message, "not this one") != NULL);
  CHECK_OK(distag_tensor_remove_hook(x, id, &err));
  id = add(x, wrong_shape, NULL);
  CHECK_FAILS(distag_backward(context, &y, 1, NULL, &err), DISTAG_E_INVALID_ARGUMENT, name);
  CHECK_OK(distag_tensor_remove_hook(x, id, &err));
  CHECK_NEAR(gradient(context, y, x, 0), 6); /* nothing was lost */
  CHECK_INT(atomic_load(&destroyed), 3);
  distag_tensor_release(y);
  distag_tensor_release(x);
  distag_tensor_release(plain);
  distag_context_release(context);
}

/* 3 x of an argument with a hook that doubles its gradient. */
static distag_status triple(void *user_data, distag_invocation *invocation, distag_error *told) {
  static double two = 2;
  distag_tensor *x = NULL, *y = NULL;
  uint64_t id = 0;
  (void)user_data;
  distag_invocation_get_tensor(invocation, 0, &x, told);
  distag_tensor_add_hook(x, scale, &two, count_destroy, &id, told);
  distag_mul_scalar(x, 3, &y, told);
  distag_invocation_return(invocation, distag_tensor_as_value(y), told);
  distag_tensor_release(y);
  return told->code;
}

static distag_status refusing(void *user_data, distag_invocation *invocation, distag_error *told) {
  distag_tensor *x = NULL, *y = NULL;
  uint64_t id = 0;
  (void)user_data;
  distag_invocation_get_tensor(invocation, 0, &x, told);
  distag_tensor_add_hook(x, refuse, NULL, count_destroy, &id, told);
  distag_mul_scalar(x, 3, &y, told);
  distag_invocation_return(invocation, distag_tensor_as_value(y), told);
  distag_tensor_release(y);
  return told->code;
}

static distag_tensor *call(distag_context *context, const char *function, distag_tensor *x) {
  distag_value *args[1], *result = NULL;
  distag_tensor *y = NULL;
  args[0] = distag_tensor_as_value(x);
  CHECK_OK(distag_call(w0, context, "w1", function, args, 1, NULL, &result, &err));
  CHECK_OK(distag_value_get_tensor(result, &y, &err));
  distag_tensor_retain(y);
  distag_value_release(result);
  return y;
}

/* Hooks on a tensor that leaves, on one that came in with a call, and on an answer. */
static void across_workers(void) {
  static double ten = 10;
  distag_context *context = NULL;
  distag_tensor *x = leaf(3), *y = NULL;
  atomic_store(&destroyed, 0);
  seen_count = 0;
  CHECK_OK(distag_context_create(w0, &context, &err));
  add(x, note, NULL);
  y = call(context, "triple", x);
  add(y, scale, &ten);
  CHECK_NEAR(gradient(context, y, x, 0), 60);
  CHECK_INT(seen_count, 1);
  CHECK_NEAR(seen[0], 60);
  distag_tensor_release(y);
  y = call(context, "refusing", x);
  CHECK_FAILS(distag_backward(context, &y, 1, NULL, &err), 1600, "worker \"w1\" (rank 1)");
  CHECK(strstr(err.message, "hook of tensor") != NULL && strstr(err.message, "not this one") != NULL);
  CHECK_INT(err.origin_rank, 1);
  distag_tensor_release(y);
  distag_tensor_release(x);
  distag_context_release(context);
}

int main(void) {
  distag_worker *both[2];
  distag_worker_options options = group_options(0, 2, "inproc://hooks");
  order_and_replacement();
  failures();
  CHECK_OK(distag_worker_create(&options, &w0, &err));
  options = group_options(1, 2, "inproc://hooks");
  CHECK_OK(distag_worker_create(&options, &w1, &err));
  CHECK_OK(distag_worker_register(w1, "triple", triple, NULL, NULL, NULL, &err));
  CHECK_OK(distag_worker_register(w1, "refusing", refusing, NULL, NULL, NULL, &err));
  both[0] = w0;
  both[1] = w1;
  CHECK_INT(group_start(both, 2), 0);
  across_workers();
  CHECK_INT(group_shutdown(both, 2), 0);
  CHECK_INT(atomic_load(&destroyed), 4); /* of the leaf, two arguments, and an answer */
  distag_worker_release(w0);
  distag_worker_release(w1);
  return check_end();
}
