/* Releasing a lent handle does nothing: this walks every callback and every function that lends. */
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>

#include "capi/check.h"
#include "capi/support/group.h"

static distag_error err = DISTAG_ERROR_INIT;
static distag_worker *worker;

/* ---- misuse: of any handle type, by its retain and release ---- */

typedef void (*counted)(void *handle);

struct misuse {
  void *handle;
  counted retain, release;
};

#define COUNTED(noun)                                                                        \
  static void noun##_plus(void *handle) { distag_##noun##_retain((distag_##noun *)handle); } \
  static void noun##_minus(void *handle) { distag_##noun##_release((distag_##noun *)handle); }
COUNTED(tensor)
COUNTED(value)
COUNTED(worker)
COUNTED(future)
COUNTED(context)
COUNTED(rref)
COUNTED(mesh)

enum { kReleases = 102 };

/* Makes kReleases releases too many. */
static void *misuse_once(void *given) {
  const struct misuse *m = given;
  m->release(m->handle);
  m->retain(m->handle);
  m->release(m->handle);
  m->release(m->handle);
  for (int i = 0; i < 100; ++i) m->release(m->handle);
  return NULL;
}

static int is_told_alone = 1; /* nothing else is misused meanwhile */

/* Misuses a handle here, then on two threads side by side. */
static void misuse(void *handle, counted retain, counted release) {
  struct misuse given = {handle, retain, release};
  const uint64_t told = distag_get_misuse_count();
  pthread_t threads[2];
  if (!CHECK(handle != NULL)) return;
  misuse_once(&given);
  if (is_told_alone) CHECK_INT(distag_get_misuse_count() - told, getenv("DISTAG_VALIDATE") == NULL ? 0 : kReleases);
  for (int i = 0; i < 2; ++i) CHECK_INT(pthread_create(&threads[i], NULL, misuse_once, &given), 0);
  for (int i = 0; i < 2; ++i) pthread_join(threads[i], NULL);
}
#define MISUSE(noun, handle) misuse(handle, noun##_plus, noun##_minus)

static double number_of(distag_tensor *t) {
  double number = -1;
  CHECK_INT(distag_tensor_get_item(t, &number, NULL), DISTAG_OK);
  return number;
}

static int64_t whole_of(distag_value *value) {
  int64_t whole = -1;
  CHECK_INT(distag_value_get_int64(value, &whole, NULL), DISTAG_OK);
  return whole;
}

static distag_tensor *scalar(double value) {
  distag_tensor *t = NULL;
  CHECK_OK(distag_full(value, DISTAG_FLOAT64, NULL, 0, &t, &err));
  return t;
}

static distag_value *whole(int64_t number) {
  distag_value *value = NULL;
  CHECK_OK(distag_value_create_int64(number, &value, &err));
  return value;
}

/* ---- what values, rrefs, futures and gradients lend ---- */

static void of_values(void) {
  const char *const keys[] = {"seven"};
  distag_value *seven = whole(7), *list = NULL, *map = NULL, *kept;
  distag_tensor *t = scalar(3), *seen = NULL;
  CHECK_OK(distag_value_create_list(&seven, 1, &list, &err));
  CHECK_OK(distag_value_create_map(keys, &seven, 1, &map, &err));
  MISUSE(value, distag_value_get_item(list, 0));
  CHECK_INT(whole_of(distag_value_get_item(list, 0)), 7);
  MISUSE(value, distag_value_get_entry(map, "seven"));
  CHECK_INT(whole_of(distag_value_get_item(map, 0)), 7);
  CHECK_INT(whole_of(seven), 7);
  CHECK_OK(distag_value_get_tensor(distag_tensor_as_value(t), &seen, &err));
  MISUSE(tensor, seen);
  CHECK_INT(distag_tensor_get_id(seen), distag_tensor_get_id(t));
  CHECK_NEAR(number_of(seen), 3);
  CHECK_NEAR(number_of(t), 3);
  /* Retained handles live on beyond their lenders. */
  kept = distag_value_get_item(list, 0);
  distag_value_retain(kept);
  distag_tensor_retain(seen);
  distag_value_release(list);
  distag_tensor_release(t);
  CHECK_INT(whole_of(kept), 7);
  CHECK_NEAR(number_of(seen), 3);
  distag_value_release(kept);
  distag_tensor_release(seen);
  distag_value_release(map);
  distag_value_release(seven);
}

static void of_rrefs(void) {
  distag_value *five = whole(5), *local = NULL;
  distag_rref *rref = NULL, *seen = NULL;
  CHECK_OK(distag_rref_create(worker, five, &rref, &err));
  CHECK_OK(distag_rref_get_local(rref, &local, &err));
  MISUSE(value, local);
  CHECK_INT(whole_of(local), 5);
  CHECK_OK(distag_value_get_rref(distag_rref_as_value(rref), &seen, &err));
  MISUSE(rref, seen);
  CHECK_INT(distag_rref_get_id(seen), distag_rref_get_id(rref));
  distag_value_retain(local);
  distag_rref_retain(seen);
  distag_rref_release(rref);
  CHECK_INT(whole_of(local), 5);
  CHECK_INT(distag_rref_is_owner(seen), 1);
  distag_value_release(local);
  distag_rref_release(seen);
  distag_value_release(five);
}

static distag_tensor *seen_gradient;

static distag_status hook(void *user_data, distag_tensor *gradient, distag_tensor **out_gradient, distag_error *told) {
  (void)told;
  MISUSE(tensor, gradient);
  CHECK_NEAR(number_of(gradient), 2);
  if (user_data == NULL) {
    distag_tensor_retain(gradient);
    seen_gradient = gradient;
  } else {
    *out_gradient = gradient; /* without a reference for distag */
  }
  return DISTAG_OK;
}

static void of_gradients(void *writes_back) {
  distag_context *context = NULL;
  distag_gradients *gradients = NULL;
  distag_tensor *leaf = scalar(1), *y = NULL, *gradient;
  uint64_t id = 0;
  CHECK_OK(distag_context_create(NULL, &context, &err));
  CHECK_OK(distag_tensor_set_requires_grad(leaf, 1, &err));
  CHECK_OK(distag_tensor_add_hook(leaf, hook, writes_back, NULL, &id, &err));
  CHECK_OK(distag_mul_scalar(leaf, 2, &y, &err));
  CHECK_OK(distag_backward(context, &y, 1, NULL, &err));
  if (writes_back == NULL) {
    CHECK_NEAR(number_of(seen_gradient), 2);
    distag_tensor_release(seen_gradient);
  }
  CHECK_OK(distag_get_gradients(context, &gradients, &err));
  MISUSE(tensor, distag_gradients_get_tensor(gradients, 0));
  MISUSE(tensor, distag_gradients_get_gradient(gradients, 0));
  gradient = distag_gradients_find(gradients, leaf);
  MISUSE(tensor, gradient);
  CHECK_NEAR(number_of(distag_gradients_get_tensor(gradients, 0)), 1);
  CHECK_NEAR(number_of(leaf), 1);
  distag_tensor_retain(gradient);
  distag_gradients_release(gradients);
  CHECK_NEAR(number_of(gradient), 2);
  distag_tensor_release(gradient);
  distag_context_release(context);
  distag_tensor_release(y);
  distag_tensor_release(leaf);
}

/* ---- custom ops ---- */

static distag_status forward(void *user_data, distag_tensor *const *inputs, size_t input_count,
                             distag_tensor **out_outputs, size_t output_count, distag_error *told) {
  (void)user_data;
  (void)output_count;
  for (size_t i = 0; i < input_count; ++i) {
    MISUSE(tensor, inputs[i]);
    CHECK_NEAR(number_of(inputs[i]), 4 + (double)i);
  }
  return distag_add(inputs[0], inputs[1], out_outputs, told);
}

static distag_status backward(void *user_data, distag_tensor *const *output_gradients, size_t output_count,
                              distag_tensor **out_input_gradients, size_t input_count, distag_error *told) {
  (void)user_data;
  (void)output_count;
  (void)told;
  MISUSE(tensor, output_gradients[0]);
  CHECK_NEAR(number_of(output_gradients[0]), 1);
  /* With a reference for distag, and without. */
  distag_tensor_retain(output_gradients[0]);
  for (size_t i = 0; i < input_count; ++i) out_input_gradients[i] = output_gradients[0];
  return DISTAG_OK;
}

static void of_custom_ops(void) {
  distag_custom_op op = DISTAG_CUSTOM_OP_INIT;
  distag_context *context = NULL;
  distag_gradients *gradients = NULL;
  distag_tensor *inputs[] = {scalar(4), scalar(5)}, *y = NULL;
  op.name = "sum_of_both";
  op.forward = forward;
  op.backward = backward;
  CHECK_OK(distag_context_create(NULL, &context, &err));
  for (int i = 0; i < 2; ++i) CHECK_OK(distag_tensor_set_requires_grad(inputs[i], 1, &err));
  CHECK_OK(distag_apply_custom(&op, inputs, 2, &y, 1, &err));
  CHECK_OK(distag_backward(context, &y, 1, NULL, &err));
  CHECK_OK(distag_get_gradients(context, &gradients, &err));
  for (int i = 0; i < 2; ++i) CHECK_NEAR(number_of(distag_gradients_find(gradients, inputs[i])), 1);
  distag_gradients_release(gradients);
  distag_context_release(context);
  distag_tensor_release(y);
  for (int i = 0; i < 2; ++i) distag_tensor_release(inputs[i]);
}

/* An op that gives back what it was lent fails, and the input lives. */
static distag_status give_back(void *user_data, distag_tensor *const *inputs, size_t input_count,
                               distag_tensor **out_outputs, size_t output_count, distag_error *told) {
  (void)user_data;
  (void)input_count;
  (void)output_count;
  (void)told;
  out_outputs[0] = inputs[0];
  return DISTAG_OK;
}

/* A single reference is enough for one output. */
static distag_status twice(void *user_data, distag_tensor *const *inputs, size_t input_count,
                           distag_tensor **out_outputs, size_t output_count, distag_error *told) {
  (void)user_data;
  (void)input_count;
  (void)output_count;
  const distag_status status = distag_neg(inputs[0], out_outputs, told);
  out_outputs[1] = out_outputs[0];
  return status;
}

static void of_careless_ops(void) {
  distag_custom_op op = DISTAG_CUSTOM_OP_INIT;
  distag_tensor *input = scalar(6), *outputs[2] = {NULL, NULL};
  op.name = "careless";
  op.forward = give_back;
  CHECK_FAILS(distag_apply_custom(&op, &input, 1, outputs, 1, &err), DISTAG_E_INVALID_ARGUMENT, "input");
  op.forward = twice;
  CHECK_FAILS(distag_apply_custom(&op, &input, 1, outputs, 2, &err), DISTAG_E_INVALID_ARGUMENT, "no tensor handle");
  CHECK_NEAR(number_of(input), 6);
  distag_tensor_release(input);
}

/* ---- what a worker's callbacks are lent ---- */

static distag_worker *kept_worker;
static distag_context *kept_context;
static distag_value *kept_arg;
static distag_tensor *kept_tensor;
static sem_t member_seen;

static void on_member(void *user_data, distag_worker *self, const distag_member *member) {
  (void)user_data;
  (void)member;
  MISUSE(worker, self);
  CHECK_TEXT(distag_worker_get_name(self), "w0");
  sem_post(&member_seen);
}

static distag_status function(void *user_data, distag_invocation *invocation, distag_error *told) {
  distag_tensor *seen = NULL;
  (void)user_data;
  kept_worker = distag_invocation_get_worker(invocation);
  kept_context = distag_invocation_get_context(invocation);
  kept_arg = distag_invocation_get_arg(invocation, 0);
  CHECK_INT(distag_invocation_get_tensor(invocation, 1, &kept_tensor, told), DISTAG_OK);
  CHECK_INT(distag_value_get_tensor(distag_invocation_get_arg(invocation, 1), &seen, told), DISTAG_OK);
  MISUSE(worker, kept_worker);
  MISUSE(context, kept_context);
  MISUSE(value, kept_arg);
  MISUSE(tensor, kept_tensor);
  MISUSE(tensor, seen);
  CHECK_TEXT(distag_worker_get_name(kept_worker), "w0");
  CHECK(distag_invocation_get_worker(invocation) == kept_worker);
  CHECK(distag_context_get_id(kept_context) != 0);
  CHECK_INT(whole_of(kept_arg), 8);
  CHECK_NEAR(number_of(kept_tensor), 9);
  CHECK_NEAR(number_of(seen), 9);
  distag_worker_retain(kept_worker);
  distag_context_retain(kept_context);
  distag_value_retain(kept_arg);
  distag_tensor_retain(kept_tensor);
  return DISTAG_OK;
}

static void of_invocations(void) {
  distag_context *context = NULL;
  distag_tensor *t = scalar(9);
  distag_value *args[] = {whole(8), distag_tensor_as_value(t)};
  distag_member self = DISTAG_MEMBER_INIT;
  distag_context_info info = DISTAG_CONTEXT_INFO_INIT;
  CHECK_OK(distag_context_create(worker, &context, &err));
  CHECK_OK(distag_call(worker, context, "w0", "function", args, 2, NULL, NULL, &err));
  /* A worker handle that was lent is as good as any, once retained. */
  CHECK_OK(distag_worker_get_member(kept_worker, 0, &self, &err));
  CHECK_TEXT(self.name, "w0");
  CHECK_INT(distag_context_get_id(kept_context), distag_context_get_id(context));
  CHECK_INT(whole_of(kept_arg), 8);
  CHECK_NEAR(number_of(kept_tensor), 9);
  CHECK_INT(distag_worker_get_rank(worker), 0);
  /* The handle does not keep the context, even on the worker that made it. */
  CHECK_OK(distag_context_get_info(kept_context, &info, &err));
  distag_context_release(context);
  /* The end comes before what is called later. */
  CHECK_FAILS(distag_call(worker, NULL, "w0", "nothing", NULL, 0, NULL, NULL, &err), DISTAG_E_NOT_FOUND, "nothing");
  CHECK_FAILS(distag_context_get_info(kept_context, &info, &err), DISTAG_E_INVALID_STATE, "context");
  distag_worker_release(kept_worker);
  distag_context_release(kept_context);
  distag_value_release(kept_arg);
  distag_tensor_release(kept_tensor);
  distag_value_release(args[0]);
  distag_tensor_release(t);
}

static distag_future *kept_future;

static void on_done(void *user_data, distag_future *future) {
  distag_value *value = NULL;
  MISUSE(future, future);
  CHECK_INT(distag_future_poll(future), 1);
  CHECK_INT(distag_future_get_value(future, &value, NULL), DISTAG_OK);
  MISUSE(value, value);
  CHECK_INT(distag_value_get_kind(value), DISTAG_VALUE_NULL);
  distag_future_retain(future);
  kept_future = future;
  sem_post((sem_t *)user_data);
}

static distag_status then(void *user_data, distag_future *future, distag_value **out_value, distag_error *told) {
  distag_value *value = NULL;
  (void)user_data;
  MISUSE(future, future);
  CHECK_INT(distag_future_get_value(future, &value, told), DISTAG_OK);
  *out_value = value; /* without a reference for distag */
  return DISTAG_OK;
}

static void of_futures(void) {
  sem_t is_done;
  distag_future *future = NULL, *next = NULL;
  distag_value *value = NULL;
  distag_value *args[] = {whole(8), NULL};
  distag_tensor *t = scalar(9);
  distag_context *context = NULL;
  args[1] = distag_tensor_as_value(t);
  sem_init(&is_done, 0, 0);
  CHECK_OK(distag_context_create(worker, &context, &err));
  CHECK_OK(distag_call_async(worker, context, "w0", "function", args, 2, NULL, &future, &err));
  is_told_alone = 0;
  CHECK_OK(distag_future_on_done(future, on_done, &is_done, NULL, &err));
  CHECK_OK(distag_future_then(future, then, NULL, NULL, &next, &err));
  CHECK_OK(distag_future_wait(next, DISTAG_FOREVER, &err));
  CHECK_OK(distag_future_get_value(next, &value, &err));
  MISUSE(value, value);
  CHECK_INT(distag_value_get_kind(value), DISTAG_VALUE_NULL);
  sem_wait(&is_done);
  /* The host's own future goes when the host releases it; the future kept from the callback stays. */
  CHECK_OK(distag_future_get_value(future, &value, &err));
  distag_future_release(future);
  CHECK_INT(distag_future_poll(kept_future), 1);
  distag_future_release(kept_future);
  distag_future_release(next);
  distag_worker_release(kept_worker);
  distag_context_release(kept_context);
  distag_value_release(kept_arg);
  distag_tensor_release(kept_tensor);
  distag_context_release(context);
  distag_value_release(args[0]);
  distag_tensor_release(t);
}

/* The host's own reference can go inside of a callback, while the lent handle stays. */
struct own {
  distag_future *future;
  sem_t *is_done;
};

static void release_own(void *user_data, distag_future *future) {
  distag_future_release(((struct own *)user_data)->future);
  CHECK_INT(distag_future_poll(future), 1);
}

static void end_own(void *user_data) { sem_post(((struct own *)user_data)->is_done); }

static void of_owned(void) {
  sem_t is_done;
  struct own own = {NULL, &is_done};
  sem_init(&is_done, 0, 0);
  CHECK_OK(distag_call_async(worker, NULL, "w0", "zeros", NULL, 0, NULL, &own.future, &err));
  CHECK_OK(distag_future_on_done(own.future, release_own, &own, end_own, &err));
  sem_wait(&is_done);
}

/* ---- what a sharded tensor lends ---- */

static void of_sharded_tensors(void) {
  const double data[] = {1, 2};
  const int64_t shape[] = {2};
  distag_mesh *mesh = NULL;
  distag_tensor *x = NULL;
  CHECK_OK(distag_mesh_create(worker, NULL, 0, NULL, NULL, 0, NULL, &mesh, &err));
  CHECK_OK(distag_tensor_create(data, sizeof data, DISTAG_FLOAT64, shape, 1, &x, &err));
  CHECK_OK(distag_tensor_mark_sharding(x, mesh, "('axis0',)", -1, &err));
  distag_mesh_release(mesh);
  distag_mesh *lent = distag_tensor_get_mesh(x);
  MISUSE(mesh, lent);
  CHECK(distag_tensor_get_mesh(x) == lent);
  distag_mesh_info info = DISTAG_MESH_INFO_INIT;
  CHECK_OK(distag_mesh_get_info(lent, &info, &err));
  CHECK_INT(info.count, 1);
  distag_tensor_release(x);
}

int main(void) {
  distag_worker_options options = group_options(0, 1, "inproc://lent");
  options.on_member = on_member;
  of_values();
  of_gradients(NULL);
  of_gradients(&options);
  of_custom_ops();
  of_careless_ops();
  CHECK_OK(distag_worker_create(&options, &worker, &err));
  CHECK_OK(distag_worker_register(worker, "function", function, NULL, NULL, NULL, &err));
  sem_init(&member_seen, 0, 0);
  CHECK_OK(distag_worker_start(worker, 120 * DISTAG_SECOND, &err));
  sem_wait(&member_seen);
  of_rrefs();
  of_invocations();
  of_futures();
  of_owned();
  of_sharded_tensors();
  CHECK_OK(distag_worker_shutdown(worker, 120 * DISTAG_SECOND, NULL, &err));
  distag_worker_release(worker);
  return check_end();
}
