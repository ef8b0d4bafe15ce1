/* Gradients of gradients through the C API: Hessian times a vector, memory of a gradient penalty, hooks, refusals. */
#include "capi/check.h"
#include "capi/support/group.h"
#include "capi/support/resident.h"

static distag_error err = DISTAG_ERROR_INIT;
static distag_worker *w0, *w1;

static distag_tensor *vector(const double *numbers, int64_t count, int32_t requires_grad) {
  distag_tensor *t = NULL;
  CHECK_OK(distag_tensor_create(numbers, (size_t)count * sizeof *numbers, DISTAG_FLOAT64, &count, 1, &t, &err));
  CHECK_OK(distag_tensor_set_requires_grad(t, requires_grad, &err));
  return t;
}

static distag_context *new_context(distag_worker *worker) {
  distag_context *context = NULL;
  CHECK_OK(distag_context_create(worker, &context, &err));
  return context;
}

/* sum(a b), of which the caller gets the handle. */
static distag_tensor *sum_of_product(distag_tensor *a, distag_tensor *b) {
  distag_tensor *product = NULL, *sum = NULL;
  CHECK_OK(distag_mul(a, b, &product, &err));
  CHECK_OK(distag_sum(product, NULL, 0, 0, &sum, &err));
  distag_tensor_release(product);
  return sum;
}

static distag_backward_options creating(void) {
  distag_backward_options options = DISTAG_BACKWARD_OPTIONS_INIT;
  options.create_graph = 1;
  return options;
}

/* Returns a reference of the caller's. */
static distag_tensor *gradient_of(distag_context *context, distag_tensor *leaf) {
  distag_gradients *gradients = NULL;
  CHECK_OK(distag_get_gradients(context, &gradients, &err));
  distag_tensor *gradient = distag_gradients_find(gradients, leaf);
  CHECK(gradient != NULL);
  distag_tensor_retain(gradient);
  distag_gradients_release(gradients);
  return gradient;
}

static void check_numbers(distag_tensor *t, const double *expected, size_t count) {
  double numbers[8] = {0};
  CHECK_OK(distag_tensor_copy_data(t, numbers, count * sizeof *numbers, &err));
  for (size_t i = 0; i < count; ++i) CHECK(fabs(numbers[i] - expected[i]) <= 1e-12 * (1 + fabs(expected[i])));
}

/* f = s^2 q with s = sum(x), q = sum(x x): its Hessian times v is 2 q sum(v) + 4 s (x v) + 4 s sum(v) x + 2 s^2 v. */
static void hessian_times_a_vector(distag_worker *worker) {
  const double at[] = {1, -2, 4}, along[] = {3, 0.5, -1};
  double expected[3];
  const double s = 3, q = 21, along_sum = 2.5, along_x = 3 - 1 - 4;
  distag_tensor *x = vector(at, 3, 1), *v = vector(along, 3, 0), *s1 = NULL, *s2 = NULL, *f = NULL;
  const distag_backward_options options = creating();
  distag_context *first = new_context(worker), *second = new_context(worker);
  for (int i = 0; i < 3; ++i) {
    expected[i] = 2 * q * along_sum + 4 * s * along_x + 4 * s * at[i] * along_sum + 2 * s * s * along[i];
  }
  CHECK_OK(distag_sum(x, NULL, 0, 0, &s1, &err));
  CHECK_OK(distag_mul(s1, s1, &s2, &err));
  distag_tensor *squares = sum_of_product(x, x);
  CHECK_OK(distag_mul(s2, squares, &f, &err));
  CHECK_OK(distag_backward(first, &f, 1, &options, &err));
  distag_tensor *gradient = gradient_of(first, x);
  CHECK_INT(distag_tensor_get_requires_grad(gradient), 1);
  CHECK_FAILS(distag_tensor_assign(gradient, v, &err), DISTAG_E_INVALID_STATE, "detach");
  distag_tensor *product = sum_of_product(gradient, v);
  CHECK_OK(distag_backward(second, &product, 1, NULL, &err));
  distag_tensor *answer = gradient_of(second, x);
  CHECK_INT(distag_tensor_get_requires_grad(answer), 0);
  check_numbers(answer, expected, 3);
  CHECK_FAILS(distag_backward(second, &product, 1, NULL, &err), DISTAG_E_GRAPH_FREED, "retain_graph");
  distag_tensor *const all[] = {x, v, s1, s2, f, squares, gradient, product, answer};
  for (size_t i = 0; i < sizeof all / sizeof *all; ++i) distag_tensor_release(all[i]);
  distag_context_release(first);
  distag_context_release(second);
}

/* A network of one layer, whose gradient by its input is to have a length of 1. */
static void penalty_step(distag_tensor *w, distag_tensor *x, int drops_second_pass) {
  const distag_backward_options options = creating();
  distag_context *first = new_context(NULL), *second = new_context(NULL);
  distag_tensor *h = NULL, *y = NULL, *sum = NULL, *shifted = NULL;
  CHECK_OK(distag_mul(w, x, &h, &err));
  CHECK_OK(distag_tanh(h, &y, &err));
  CHECK_OK(distag_sum(y, NULL, 0, 0, &sum, &err));
  CHECK_OK(distag_backward(first, &sum, 1, &options, &err));
  distag_tensor *gradient = gradient_of(first, x);
  distag_tensor *norm = sum_of_product(gradient, gradient);
  CHECK_OK(distag_add_scalar(norm, -1, &shifted, &err));
  distag_tensor *penalty = sum_of_product(shifted, shifted);
  if (!drops_second_pass) {
    CHECK_OK(distag_backward(second, &penalty, 1, NULL, &err));
    distag_tensor_release(gradient_of(second, w));
  }
  distag_tensor *const all[] = {h, y, sum, gradient, norm, shifted, penalty};
  for (size_t i = 0; i < sizeof all / sizeof *all; ++i) distag_tensor_release(all[i]);
  distag_context_release(first);
  distag_context_release(second);
}

enum { kElements = 4000, kSteps = 1000 };
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { kIsMeasured = 0 }; /* a sanitizer keeps freed memory; it reports leaks itself */
#else
enum { kIsMeasured = 1 };
#endif

/* A tensor has 32 KB: if each step leaked one, that would be 32 MB. */
static void memory_stays_flat(int drops_second_pass) {
  static double numbers[kElements];
  for (int i = 0; i < kElements; ++i) numbers[i] = 0.001 * i - 2;
  distag_tensor *w = vector(numbers, kElements, 1), *x = vector(numbers, kElements, 1);
  int64_t before = 0;
  for (int step = 0; step < kSteps; ++step) {
    if (step == kSteps / 10) before = resident_bytes();
    penalty_step(w, x, drops_second_pass);
  }
  if (kIsMeasured) CHECK(resident_bytes() - before < 8 << 20);
  distag_tensor_release(w);
  distag_tensor_release(x);
}

static distag_status square_it(void *user_data, distag_tensor *gradient, distag_tensor **out_gradient,
                               distag_error *told) {
  *(int32_t *)user_data += distag_tensor_get_requires_grad(gradient);
  return distag_mul(gradient, gradient, out_gradient, told);
}

static void hooks(distag_worker *worker) {
  const double two = 2, expected = 16, expected_after = 16 * 16;
  const distag_backward_options options = creating();
  int32_t with_history = 0;
  uint64_t id = 0;
  distag_context *first = new_context(worker), *second = new_context(worker);
  distag_tensor *x = vector(&two, 1, 1);
  CHECK_OK(distag_tensor_add_hook(x, square_it, &with_history, NULL, &id, &err));
  distag_tensor *y = sum_of_product(x, x), *sum = NULL;
  CHECK_OK(distag_backward(first, &y, 1, &options, &err));
  CHECK_INT(with_history, 1);
  distag_tensor *gradient = gradient_of(first, x);
  check_numbers(gradient, &expected, 1);
  CHECK_OK(distag_sum(gradient, NULL, 0, 0, &sum, &err));
  CHECK_OK(distag_backward(second, &sum, 1, NULL, &err)); /* (2 x)^2 has the slope 8 x, which the hook squares */
  CHECK_INT(with_history, 1);
  distag_tensor *answer = gradient_of(second, x);
  check_numbers(answer, &expected_after, 1);
  distag_tensor *const all[] = {x, y, sum, gradient, answer};
  for (size_t i = 0; i < sizeof all / sizeof *all; ++i) distag_tensor_release(all[i]);
  distag_context_release(first);
  distag_context_release(second);
}

/* A pass by a future, and two passes in one context, where gradients add up: 3 x^2 + 6 x. */
static void in_one_context(void) {
  const double two = 2, slope = 12, both = 24;
  const distag_backward_options options = creating();
  distag_future *future = NULL;
  distag_context *context = new_context(w0);
  distag_tensor *x = vector(&two, 1, 1), *square = NULL, *sum = NULL;
  CHECK_OK(distag_mul(x, x, &square, &err));
  distag_tensor *cube = sum_of_product(square, x);
  CHECK_OK(distag_backward_async(context, &cube, 1, &options, &future, &err));
  CHECK_OK(distag_future_wait(future, DISTAG_FOREVER, &err));
  distag_tensor *gradient = gradient_of(context, x);
  check_numbers(gradient, &slope, 1);
  CHECK_OK(distag_sum(gradient, NULL, 0, 0, &sum, &err));
  CHECK_OK(distag_backward(context, &sum, 1, NULL, &err));
  distag_tensor *answer = gradient_of(context, x);
  check_numbers(answer, &both, 1);
  distag_tensor *const all[] = {x, square, cube, sum, gradient, answer};
  for (size_t i = 0; i < sizeof all / sizeof *all; ++i) distag_tensor_release(all[i]);
  distag_future_release(future);
  distag_context_release(context);
}

static distag_tensor *call_triple(distag_context *context, distag_tensor *x) {
  distag_value *const argument = distag_tensor_as_value(x);
  distag_value *answer = NULL;
  CHECK_OK(distag_call(w0, context, "w1", "triple", &argument, 1, NULL, &answer, &err));
  distag_tensor *y = NULL;
  CHECK_OK(distag_value_get_tensor(answer, &y, &err));
  distag_tensor_retain(y);
  distag_value_release(answer);
  return y;
}

/* The first pass stays on this worker, the second one, of its gradients in another context, reaches others. */
static void from_here_to_others(void) {
  const double two = 2, slope = 4, curvature = 6;
  const distag_backward_options options = creating();
  distag_context *first = new_context(w0), *second = new_context(w0);
  distag_tensor *x = vector(&two, 1, 1), *near = sum_of_product(x, x);
  CHECK_OK(distag_backward(first, &near, 1, &options, &err));
  distag_tensor *gradient = gradient_of(first, x);
  check_numbers(gradient, &slope, 1);
  distag_tensor *answer = call_triple(second, gradient), *sum = NULL;
  CHECK_OK(distag_sum(answer, NULL, 0, 0, &sum, &err));
  CHECK_OK(distag_backward(second, &sum, 1, NULL, &err)); /* 3 times 2 x */
  distag_tensor *last = gradient_of(second, x);
  check_numbers(last, &curvature, 1);
  distag_tensor *const all[] = {x, near, gradient, answer, sum, last};
  for (size_t i = 0; i < sizeof all / sizeof *all; ++i) distag_tensor_release(all[i]);
  distag_context_release(first);
  distag_context_release(second);
}

/* a b on w1 */
static distag_tensor *far_product(distag_context *context, distag_tensor *a, distag_tensor *b) {
  distag_value *arguments[2];
  distag_value *answer = NULL;
  distag_tensor *y = NULL;
  arguments[0] = distag_tensor_as_value(a);
  arguments[1] = distag_tensor_as_value(b);
  CHECK_OK(distag_call(w0, context, "w1", "mul", arguments, 2, NULL, &answer, &err));
  CHECK_OK(distag_value_get_tensor(answer, &y, &err));
  distag_tensor_retain(y);
  distag_value_release(answer);
  return y;
}

/* w1 computes x^2 of sum(x^4). Its gradient is 4 x^3, its Hessian times v is 12 x^2 v, and the gradient of the sum of
 * both, in the third pass, is 12 x^2 + 24 x v. Gradients of the passes add up. */
static void across_workers(distag_backward_mode_type mode) {
  const double at[] = {1, -2, 0.5}, along[] = {3, 0.5, -1};
  double slope[3], with_hessian[3], with_third[3];
  distag_backward_options options = creating();
  distag_future *future = NULL;
  distag_context *context = new_context(w0), *other = new_context(w0);
  distag_context_info info = DISTAG_CONTEXT_INFO_INIT;
  distag_tensor *x = vector(at, 3, 1), *v = vector(along, 3, 0), *sum = NULL;
  for (int i = 0; i < 3; ++i) {
    slope[i] = 4 * at[i] * at[i] * at[i];
    with_hessian[i] = slope[i] + 12 * at[i] * at[i] * along[i];
    with_third[i] = with_hessian[i] + 12 * at[i] * at[i] + 24 * at[i] * along[i];
  }
  distag_tensor *square = far_product(context, x, x), *root = sum_of_product(square, square);
  options.mode = mode;
  CHECK_OK(distag_backward(context, &root, 1, &options, &err));
  distag_tensor *gradient = gradient_of(context, x);
  CHECK_INT(distag_tensor_get_requires_grad(gradient), 1);
  check_numbers(gradient, slope, 3);
  distag_tensor *product = sum_of_product(gradient, v);
  CHECK_FAILS(distag_backward(other, &product, 1, NULL, &err), DISTAG_E_INVALID_ARGUMENT, "recorded in context");
  CHECK_OK(distag_backward_async(context, &product, 1, &options, &future, &err));
  CHECK_OK(distag_future_wait(future, DISTAG_FOREVER, &err));
  distag_tensor *second = gradient_of(context, x);
  check_numbers(second, with_hessian, 3);
  CHECK_OK(distag_sum(second, NULL, 0, 0, &sum, &err));
  options.create_graph = 0;
  CHECK_OK(distag_backward(context, &sum, 1, &options, &err));
  distag_tensor *third = gradient_of(context, x);
  check_numbers(third, with_third, 3);
  CHECK_OK(distag_context_get_info(context, &info, &err));
  CHECK_INT(info.send_count, 0); /* the last pass has freed all it went through */
  CHECK_INT(info.recv_count, 0);
  CHECK_FAILS(distag_backward(context, &sum, 1, &options, &err), DISTAG_E_GRAPH_FREED, "retain_graph");
  distag_tensor *const all[] = {x, v, sum, square, root, gradient, product, second, third};
  for (size_t i = 0; i < sizeof all / sizeof *all; ++i) distag_tensor_release(all[i]);
  distag_future_release(future);
  distag_context_release(context);
  distag_context_release(other);
}

static distag_status identity(void *user_data, distag_tensor *const *in, size_t in_count, distag_tensor **out,
                              size_t out_count, distag_error *told) {
  (void)user_data;
  (void)in_count;
  (void)out_count;
  return distag_clone(in[0], &out[0], told);
}

static void custom_ops(void) {
  const double two = 2;
  const distag_backward_options options = creating();
  distag_custom_op op = DISTAG_CUSTOM_OP_INIT;
  distag_context *context = new_context(NULL);
  distag_tensor *x = vector(&two, 1, 1), *y = NULL;
  op.name = "mine";
  op.forward = identity;
  op.backward = identity;
  CHECK_OK(distag_apply_custom(&op, &x, 1, &y, 1, &err));
  CHECK_FAILS(distag_backward(context, &y, 1, &options, &err), DISTAG_E_UNSUPPORTED, "\"mine\"");
  CHECK_OK(distag_backward(context, &y, 1, NULL, &err));
  distag_tensor_release(x);
  distag_tensor_release(y);
  distag_context_release(context);
}

static distag_tensor *far_weight;

/* tanh(weight x), on w1 */
static distag_status layer(void *user_data, distag_invocation *invocation, distag_error *told) {
  distag_tensor *x = NULL, *h = NULL, *y = NULL;
  (void)user_data;
  distag_invocation_get_tensor(invocation, 0, &x, told);
  distag_mul(far_weight, x, &h, told);
  distag_tanh(h, &y, told);
  distag_invocation_return(invocation, distag_tensor_as_value(y), told);
  distag_tensor_release(h);
  distag_tensor_release(y);
  return told->code;
}

static distag_status custom_layer(void *user_data, distag_invocation *invocation, distag_error *told) {
  distag_custom_op op = DISTAG_CUSTOM_OP_INIT;
  distag_tensor *x = NULL, *y = NULL;
  (void)user_data;
  op.name = "mine";
  op.forward = identity;
  op.backward = identity;
  distag_invocation_get_tensor(invocation, 0, &x, told);
  distag_apply_custom(&op, &x, 1, &y, 1, told);
  distag_invocation_return(invocation, distag_tensor_as_value(y), told);
  distag_tensor_release(y);
  return told->code;
}

static distag_tensor *call_layer(distag_context *context, const char *function, distag_tensor *x) {
  distag_value *const argument = distag_tensor_as_value(x);
  distag_value *answer = NULL;
  distag_tensor *y = NULL;
  CHECK_OK(distag_call(w0, context, "w1", function, &argument, 1, NULL, &answer, &err));
  CHECK_OK(distag_value_get_tensor(answer, &y, &err));
  distag_tensor_retain(y);
  distag_value_release(answer);
  return y;
}

/* A pass that is cancelled at once; it may be committed all the same. */
static void begin_and_cancel(distag_context *context, distag_tensor *root, const distag_backward_options *options) {
  distag_future *future = NULL;
  CHECK_OK(distag_backward_async(context, &root, 1, options, &future, &err));
  distag_future_cancel(future);
  const distag_status status = distag_future_wait(future, DISTAG_FOREVER, NULL);
  CHECK(status == DISTAG_OK || status == DISTAG_E_CANCELLED);
  distag_future_release(future);
}

/* The same as penalty_step, except that w1 has the layer. */
static void far_penalty_step(distag_tensor *x, int cancels_first, int drops_second) {
  const distag_backward_options options = creating();
  distag_context *context = new_context(w0);
  distag_tensor *y = call_layer(context, "layer", x), *sum = NULL;
  CHECK_OK(distag_sum(y, NULL, 0, 0, &sum, &err));
  if (cancels_first) begin_and_cancel(context, sum, &options);
  CHECK_OK(distag_backward(context, &sum, 1, &options, &err));
  distag_tensor *gradient = gradient_of(context, x);
  distag_tensor *penalty = sum_of_product(gradient, gradient);
  if (cancels_first) begin_and_cancel(context, penalty, &options);
  if (!drops_second) CHECK_OK(distag_backward(context, &penalty, 1, NULL, &err));
  distag_tensor *const all[] = {y, sum, gradient, penalty};
  for (size_t i = 0; i < sizeof all / sizeof *all; ++i) distag_tensor_release(all[i]);
  distag_context_release(context);
}

static void memory_stays_flat_across_workers(int cancels_first, int drops_second) {
  static double numbers[kElements];
  for (int i = 0; i < kElements; ++i) numbers[i] = 0.001 * i - 2;
  distag_tensor *x = vector(numbers, kElements, 1);
  far_weight = vector(numbers, kElements, 1);
  int64_t before = 0;
  for (int step = 0; step < kSteps; ++step) {
    if (step == kSteps / 4) before = resident_bytes();
    far_penalty_step(x, cancels_first, drops_second);
  }
  if (kIsMeasured) CHECK(resident_bytes() - before < 12 << 20);
  distag_tensor_release(x);
  distag_tensor_release(far_weight);
}

/* An op of the host on another worker: refused before anything runs, and the plain pass goes on. */
static void custom_ops_elsewhere(void) {
  const double two = 2, one = 1;
  distag_backward_options options = creating();
  distag_context *context = new_context(w0);
  distag_gradients *gradients = NULL;
  distag_tensor *x = vector(&two, 1, 1), *y = call_layer(context, "custom", x), *sum = NULL;
  CHECK_OK(distag_sum(y, NULL, 0, 0, &sum, &err));
  CHECK_FAILS(distag_backward(context, &sum, 1, &options, &err), DISTAG_E_UNSUPPORTED, "\"mine\"");
  options.mode = DISTAG_BACKWARD_FAST;
  CHECK_FAILS(distag_backward(context, &sum, 1, &options, &err), DISTAG_E_UNSUPPORTED, "\"mine\"");
  CHECK_OK(distag_get_gradients(context, &gradients, &err));
  CHECK_INT(distag_gradients_get_count(gradients), 0);
  distag_gradients_release(gradients);
  CHECK_OK(distag_backward(context, &sum, 1, NULL, &err));
  distag_tensor *gradient = gradient_of(context, x);
  check_numbers(gradient, &one, 1);
  CHECK_INT(distag_tensor_get_requires_grad(gradient), 0);
  distag_tensor *const all[] = {x, y, sum, gradient};
  for (size_t i = 0; i < sizeof all / sizeof *all; ++i) distag_tensor_release(all[i]);
  distag_context_release(context);
}

int main(void) {
  distag_worker *both[2];
  distag_worker_options options = group_options(0, 2, "inproc://create_graph");
  hessian_times_a_vector(NULL);
  hooks(NULL);
  custom_ops();
  memory_stays_flat(0);
  memory_stays_flat(1);
  CHECK_OK(distag_worker_create(&options, &w0, &err));
  options = group_options(1, 2, "inproc://create_graph");
  CHECK_OK(distag_worker_create(&options, &w1, &err));
  CHECK_OK(distag_worker_register(w1, "triple", group_triple, NULL, NULL, NULL, &err));
  CHECK_OK(distag_worker_register(w1, "layer", layer, NULL, NULL, NULL, &err));
  CHECK_OK(distag_worker_register(w1, "custom", custom_layer, NULL, NULL, NULL, &err));
  both[0] = w0;
  both[1] = w1;
  CHECK_INT(group_start(both, 2), 0);
  hessian_times_a_vector(w0);
  hooks(w0);
  in_one_context();
  from_here_to_others();
  across_workers(DISTAG_BACKWARD_SMART);
  across_workers(DISTAG_BACKWARD_FAST);
  custom_ops_elsewhere();
  memory_stays_flat_across_workers(0, 0);
  memory_stays_flat_across_workers(0, 1);
  memory_stays_flat_across_workers(1, 0);
  CHECK_INT(group_shutdown(both, 2), 0);
  distag_worker_release(w0);
  distag_worker_release(w1);
  return check_end();
}
