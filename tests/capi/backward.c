/* Contexts and backward passes, within the process and across two workers, through the C API. */
#include "capi/check.h"
#include "capi/support/group.h"

static distag_error err = DISTAG_ERROR_INIT;
static distag_worker *w0, *w1;

static distag_tensor *leaf(double value) {
  distag_tensor *t = NULL;
  CHECK_OK(distag_full(value, DISTAG_FLOAT64, NULL, 0, &t, &err));
  CHECK_OK(distag_tensor_set_requires_grad(t, 1, &err));
  return t;
}

static double gradient_of(distag_context *context, distag_tensor *t) {
  distag_gradients *gradients = NULL;
  double item = -1;
  CHECK_OK(distag_get_gradients(context, &gradients, &err));
  CHECK_OK(distag_tensor_get_item(distag_gradients_find(gradients, t), &item, &err));
  distag_gradients_release(gradients);
  return item;
}

static void local_context(void) {
  distag_context *context = NULL;
  distag_gradients *gradients = NULL;
  distag_context_info info = DISTAG_CONTEXT_INFO_INIT;
  distag_future *future = NULL;
  distag_tensor *a = leaf(3), *b = leaf(4), *y = NULL, *unused = leaf(1);
  distag_tensor *roots[2];
  size_t known = 9;

  CHECK_OK(distag_context_create(NULL, &context, &err));
  distag_context_retain(context);
  distag_context_release(context);
  CHECK_OK(distag_get_gradients(context, &gradients, &err));
  CHECK_INT(distag_gradients_get_count(gradients), 0);
  distag_gradients_release(gradients);
  CHECK_OK(distag_mul(a, b, &y, &err));
  CHECK_FAILS(distag_backward_async(context, &y, 1, NULL, &future, &err), DISTAG_E_UNSUPPORTED, "no worker");
  CHECK(future == NULL);
  roots[0] = roots[1] = y; /* the same root twice counts twice */
  CHECK_OK(distag_backward(context, roots, 2, NULL, &err));
  CHECK_OK(distag_get_gradients(context, &gradients, &err));
  CHECK_INT(distag_gradients_get_count(gradients), 2);
  CHECK_INT(distag_tensor_get_id(distag_gradients_get_tensor(gradients, 0)), distag_tensor_get_id(a));
  CHECK(distag_gradients_get_tensor(gradients, 2) == NULL && distag_gradients_get_gradient(gradients, 2) == NULL);
  CHECK(distag_gradients_find(gradients, unused) == NULL);
  distag_tensor *kept = distag_gradients_get_gradient(gradients, 1);
  CHECK(kept == distag_gradients_find(gradients, b));
  distag_tensor_retain(kept);
  distag_gradients_retain(gradients);
  distag_gradients_release(gradients);
  distag_gradients_release(gradients);
  double item = 0;
  CHECK_OK(distag_tensor_get_item(kept, &item, &err)); /* a lent handle that was retained lives on */
  CHECK_NEAR(item, 6);
  distag_tensor_release(kept);

  CHECK_FAILS(distag_backward(context, roots, 1, NULL, &err), DISTAG_E_GRAPH_FREED, "retain_graph");
  CHECK_FAILS(distag_backward(context, NULL, 0, NULL, &err), DISTAG_E_INVALID_ARGUMENT, "root");
  CHECK_FAILS(distag_backward(context, &a, 1, NULL, &err), DISTAG_E_INVALID_ARGUMENT, "history");
  CHECK_OK(distag_context_get_info(context, &info, &err));
  CHECK_INT(info.gradient_count, 2);
  CHECK_INT(info.send_count + info.recv_count + info.pass_count + info.known_count, 0);
  CHECK_OK(distag_context_copy_known_ranks(context, NULL, 0, &known, &err));
  CHECK_INT(known, 0);
  distag_context_release(context);
  distag_tensor_release(a);
  distag_tensor_release(b);
  distag_tensor_release(unused);
  distag_tensor_release(y);
}

static void seeds(void) {
  const double numbers[] = {1, 2};
  const double weights[] = {10, 100};
  const int64_t two[] = {2};
  distag_backward_options options = DISTAG_BACKWARD_OPTIONS_INIT;
  distag_context *context = NULL;
  distag_gradients *gradients = NULL;
  distag_tensor *x = NULL, *y = NULL, *seed = NULL, *scalar = NULL;
  double copy[2];

  CHECK_OK(distag_context_create(NULL, &context, &err));
  CHECK_OK(distag_tensor_create(numbers, sizeof numbers, DISTAG_FLOAT64, two, 1, &x, &err));
  CHECK_OK(distag_tensor_create(weights, sizeof weights, DISTAG_FLOAT64, two, 1, &seed, &err));
  CHECK_OK(distag_tensor_set_requires_grad(x, 1, &err));
  CHECK_OK(distag_mul(x, x, &y, &err));
  CHECK_FAILS(distag_backward(context, &y, 1, NULL, &err), DISTAG_E_INVALID_ARGUMENT, "seed");
  CHECK_OK(distag_full(1, DISTAG_FLOAT64, NULL, 0, &scalar, &err));
  options.seeds = &scalar;
  CHECK_INT(distag_backward(context, &y, 1, &options, &err), DISTAG_E_INVALID_ARGUMENT);
  options.seeds = &seed;
  options.retain_graph = 1;
  CHECK_OK(distag_backward(context, &y, 1, &options, &err));
  options.retain_graph = 0;
  CHECK_OK(distag_backward(context, &y, 1, &options, &err)); /* passes add up */
  CHECK_OK(distag_get_gradients(context, &gradients, &err));
  CHECK_OK(distag_tensor_copy_data(distag_gradients_find(gradients, x), copy, sizeof copy, &err));
  CHECK_NEAR(copy[0], 40);
  CHECK_NEAR(copy[1], 800);
  distag_gradients_release(gradients);
  distag_context_release(context);
  distag_tensor_release(x);
  distag_tensor_release(y);
  distag_tensor_release(seed);
  distag_tensor_release(scalar);
}

/* x -> 3 x, in the context of the call. */
static distag_status triple(void *user_data, distag_invocation *invocation, distag_error *told) {
  distag_tensor *x = NULL, *y = NULL;
  distag_context *context = distag_invocation_get_context(invocation);
  (void)user_data;
  CHECK(context != NULL && context == distag_invocation_get_context(invocation));
  distag_invocation_get_tensor(invocation, 0, &x, told);
  CHECK_INT(distag_tensor_get_requires_grad(x), 1);
  distag_mul_scalar(x, 3, &y, told);
  distag_invocation_return(invocation, distag_tensor_as_value(y), told);
  distag_tensor_release(y);
  return told->code;
}

static distag_context *other_context;

static distag_status keep_context(void *user_data, distag_invocation *invocation, distag_error *told) {
  (void)user_data;
  (void)told;
  other_context = distag_invocation_get_context(invocation);
  distag_context_retain(other_context);
  return DISTAG_OK;
}

/* y = call(function, x) on w1, under a label */
static distag_tensor *labelled(distag_context *context, const char *function, distag_tensor *x, const char *label) {
  distag_call_options options = DISTAG_CALL_OPTIONS_INIT;
  distag_value *args[1], *result = NULL;
  distag_tensor *y = NULL;
  args[0] = distag_tensor_as_value(x);
  options.label = label;
  CHECK_OK(distag_call(w0, context, "w1", function, args, 1, &options, &result, &err));
  CHECK_OK(distag_value_get_tensor(result, &y, &err));
  distag_tensor_retain(y);
  distag_value_release(result);
  return y;
}

static distag_tensor *remote(distag_context *context, const char *function, distag_tensor *x) {
  return labelled(context, function, x, NULL);
}

static void across_workers(void) {
  distag_context *context = NULL;
  distag_context_info info = DISTAG_CONTEXT_INFO_INIT;
  distag_backward_options options = DISTAG_BACKWARD_OPTIONS_INIT;
  distag_future *future = NULL;
  distag_value *nothing = NULL;
  distag_tensor *x = leaf(2), *y = NULL, *z = NULL;
  int32_t ranks[2] = {-1, -1};
  size_t known = 0;

  CHECK_OK(distag_context_create(w0, &context, &err));
  CHECK_INT(distag_context_get_id(context) >> 48, 0); /* rank of the creator */
  y = remote(context, "triple", x);
  z = remote(context, "exp", y); /* a built-in op */
  CHECK_OK(distag_context_get_info(context, &info, &err));
  CHECK_INT(info.send_count, 2);
  CHECK_INT(info.recv_count, 2);
  CHECK_INT(info.known_count, 1);
  CHECK_OK(distag_context_copy_known_ranks(context, ranks, 2, &known, &err));
  CHECK_INT(known, 1);
  CHECK_INT(ranks[0], 1);
  options.retain_graph = 1;
  options.timeout_ns = 120 * DISTAG_SECOND;
  CHECK_OK(distag_backward(context, &z, 1, &options, &err));
  CHECK_NEAR(gradient_of(context, x), 3 * exp(6));
  options.retain_graph = 0;
  options.mode = DISTAG_BACKWARD_FAST;
  CHECK_OK(distag_backward_async(context, &z, 1, &options, &future, &err));
  CHECK_OK(distag_future_wait(future, DISTAG_FOREVER, &err));
  CHECK_OK(distag_future_get_value(future, &nothing, &err));
  CHECK_INT(distag_value_get_kind(nothing), DISTAG_VALUE_NULL);
  distag_future_release(future);
  CHECK_NEAR(gradient_of(context, x), 6 * exp(6));
  CHECK_FAILS(distag_backward(context, &z, 1, NULL, &err), DISTAG_E_GRAPH_FREED, "retain_graph");

  CHECK_FAILS(distag_call(w1, context, "w0", "exp", NULL, 0, NULL, NULL, &err), DISTAG_E_INVALID_ARGUMENT, "worker");
  distag_tensor_release(y);
  distag_tensor_release(z);
  distag_context_release(context);
  distag_tensor_release(x);
}

/* FAST with a result that is not used. */
static void unreached(void) {
  distag_backward_options options = DISTAG_BACKWARD_OPTIONS_INIT;
  distag_context *context = NULL;
  distag_tensor *x = leaf(2), *y = NULL, *z = NULL;
  options.mode = DISTAG_BACKWARD_FAST;
  CHECK_OK(distag_context_create(w0, &context, &err));
  y = labelled(context, "triple", x, "layer 3");
  z = remote(context, "triple", x);
  CHECK_FAILS(distag_backward(context, &z, 1, &options, &err), DISTAG_E_UNREACHED_SEND,
              "call \"triple\" (\"layer 3\") on \"w1\"");
  distag_tensor_release(x);
  distag_tensor_release(y);
  distag_tensor_release(z);
  distag_context_release(context);
}

/* A record of another context is named by its call. */
static void of_another_context(void) {
  distag_context *context = NULL, *other = NULL;
  distag_tensor *x = leaf(2), *y = NULL;
  CHECK_OK(distag_context_create(w0, &context, &err));
  CHECK_OK(distag_context_create(w0, &other, &err));
  y = labelled(context, "triple", x, "layer 4");
  CHECK_FAILS(distag_backward(other, &y, 1, NULL, &err), DISTAG_E_INVALID_ARGUMENT,
              "call \"triple\" (\"layer 4\") on \"w1\"");
  distag_tensor_release(x);
  distag_tensor_release(y);
  distag_context_release(context);
  distag_context_release(other);
}

/* A reference that a function took does not keep the context. */
static void end_of_a_context(void) {
  distag_context *context = NULL;
  distag_context_info info = DISTAG_CONTEXT_INFO_INIT;
  distag_gradients *gradients = NULL;
  distag_status status = DISTAG_OK;
  CHECK_OK(distag_context_create(w0, &context, &err));
  CHECK_OK(distag_call(w0, context, "w1", "keep_context", NULL, 0, NULL, NULL, &err));
  CHECK_INT(distag_context_get_id(other_context), distag_context_get_id(context));
  distag_context_release(context);
  while (status == DISTAG_OK) status = distag_context_get_info(other_context, &info, &err); /* until word comes */
  CHECK_INT(status, DISTAG_E_INVALID_STATE);
  CHECK_INT(info.send_count, 0);
  CHECK_INT(distag_get_gradients(other_context, &gradients, &err), DISTAG_E_INVALID_STATE);
  CHECK_INT(distag_call(w1, other_context, "w0", "neg", NULL, 0, NULL, NULL, &err), DISTAG_E_INVALID_STATE);
  distag_context_release(other_context);
}

int main(void) {
  distag_worker_options options = group_options(0, 2, "inproc://backward");
  distag_worker *both[2];
  local_context();
  seeds();
  CHECK_OK(distag_worker_create(&options, &w0, &err));
  distag_context *context = NULL;
  CHECK_INT(distag_context_create(w0, &context, &err), DISTAG_E_INVALID_STATE); /* not started */
  options = group_options(1, 2, "inproc://backward");
  CHECK_OK(distag_worker_create(&options, &w1, &err));
  CHECK_OK(distag_worker_register(w1, "triple", triple, NULL, NULL, NULL, &err));
  CHECK_OK(distag_worker_register(w1, "keep_context", keep_context, NULL, NULL, NULL, &err));
  both[0] = w0;
  both[1] = w1;
  if (!CHECK_INT(group_start(both, 2), 0)) return 1;
  across_workers();
  unreached();
  of_another_context();
  end_of_a_context();
  CHECK_OK(distag_context_create(w0, &context, &err));
  CHECK_INT(group_shutdown(both, 2), 0);
  distag_context_info info = DISTAG_CONTEXT_INFO_INIT;
  CHECK_FAILS(distag_context_get_info(context, &info, &err), DISTAG_E_INVALID_STATE, "down");
  distag_context_release(context);
  distag_worker_release(w0);
  distag_worker_release(w1);
  return check_end();
}
