/* NULL for every pointer parameter of every function, and the rule of chains for every function with a handle. */
#include "capi/check.h"
#include "capi/support/group.h"

static distag_tensor *t;
static distag_value *v;
static distag_worker *w;
static distag_context *c;
static distag_gradients *g;
static distag_future *f;

static const int64_t dims[] = {2, 2};
static distag_tensor *out_t;
static distag_value *out_v;
static distag_future *out_f;

/* A NULL is refused by name, and nothing is written out. */
#define REFUSED(call)                                                                      \
  do {                                                                                     \
    distag_error err = DISTAG_ERROR_INIT;                                                  \
    check_fails(call, DISTAG_E_INVALID_ARGUMENT, &err, "NULL", __FILE__, __LINE__, #call); \
    CHECK(out_t == NULL && out_v == NULL && out_f == NULL);                                \
  } while (0)

/* A NULL handle is refused, and passes on a failure that err holds already. */
#define CHAINED(call)                                                                      \
  do {                                                                                     \
    distag_error err = DISTAG_ERROR_INIT;                                                  \
    check_fails(call, DISTAG_E_INVALID_ARGUMENT, &err, "NULL", __FILE__, __LINE__, #call); \
    distag_error_set(&err, 1999, "kept");                                                  \
    err.origin_rank = 5;                                                                   \
    check_fails(call, 1999, &err, "kept", __FILE__, __LINE__, #call);                      \
    check_int(err.origin_rank, 5, __FILE__, __LINE__, #call);                              \
    CHECK(out_t == NULL && out_v == NULL && out_f == NULL);                                \
  } while (0)

/* Without an err the status says it all. */
#define STATUS_ONLY(call) check_status(call, DISTAG_E_INVALID_ARGUMENT, NULL, __FILE__, __LINE__, #call)

static distag_status answer_nothing(void *user_data, distag_invocation *invocation, distag_error *unused) {
  distag_reply *reply = NULL;
  distag_tensor *none = NULL;
  (void)user_data;
  (void)unused;
  REFUSED(distag_invocation_get_tensor(invocation, 0, NULL, &err));
  CHAINED(distag_invocation_get_tensor(NULL, 0, &out_t, &err));
  CHAINED(distag_invocation_return(invocation, NULL, &err));
  CHAINED(distag_invocation_return(NULL, v, &err));
  REFUSED(distag_invocation_defer(invocation, NULL, &err));
  CHAINED(distag_invocation_defer(NULL, &reply, &err));
  CHECK(reply == NULL && none == NULL);
  return DISTAG_OK;
}

static void on_done(void *user_data, distag_future *future) {
  (void)user_data;
  (void)future;
}

static distag_status then(void *user_data, distag_future *future, distag_value **out_value, distag_error *unused) {
  (void)user_data;
  (void)future;
  (void)out_value;
  (void)unused;
  return DISTAG_OK;
}

static distag_status hook(void *user_data, distag_tensor *gradient, distag_tensor **out_gradient,
                          distag_error *unused) {
  (void)user_data;
  (void)gradient;
  (void)out_gradient;
  (void)unused;
  return DISTAG_OK;
}

static void tensors(void) {
  double item = 0;
  uint64_t id = 7;
  CHAINED(distag_tensor_add_hook(NULL, hook, NULL, NULL, &id, &err));
  CHECK_INT(id, 0);
  REFUSED(distag_tensor_add_hook(t, NULL, NULL, NULL, &id, &err));
  REFUSED(distag_tensor_add_hook(t, hook, NULL, NULL, NULL, &err));
  CHAINED(distag_tensor_remove_hook(NULL, 1, &err));
  REFUSED(distag_tensor_create(NULL, 16, DISTAG_FLOAT32, dims, 2, &out_t, &err));
  REFUSED(distag_tensor_create(dims, 16, DISTAG_FLOAT32, NULL, 2, &out_t, &err));
  REFUSED(distag_tensor_create(dims, 16, DISTAG_FLOAT32, dims, 2, NULL, &err));
  STATUS_ONLY(distag_tensor_create(dims, 16, DISTAG_FLOAT32, dims, 2, NULL, NULL));
  REFUSED(distag_tensor_create_borrowed(NULL, 16, DISTAG_FLOAT32, dims, NULL, 2, NULL, NULL, &out_t, &err));
  REFUSED(distag_tensor_create_borrowed(dims, 16, DISTAG_FLOAT32, NULL, NULL, 2, NULL, NULL, &out_t, &err));
  REFUSED(distag_tensor_create_borrowed(dims, 16, DISTAG_FLOAT32, dims, NULL, 2, NULL, NULL, NULL, &err));
  REFUSED(distag_tensor_create_deferred(DISTAG_FLOAT32, NULL, 2, NULL, &out_t, &err));
  REFUSED(distag_tensor_create_deferred(DISTAG_FLOAT32, dims, 2, NULL, NULL, &err));
  STATUS_ONLY(distag_tensor_create_deferred(DISTAG_FLOAT32, dims, 2, NULL, NULL, NULL));
  REFUSED(distag_security_create_keys(NULL, &err));
  STATUS_ONLY(distag_security_create_keys(NULL, NULL));
  REFUSED(distag_get_environment(NULL, &err));
  STATUS_ONLY(distag_get_environment(NULL, NULL));
  REFUSED(distag_worker_set_peers(NULL, NULL, NULL, 0, &err));
  STATUS_ONLY(distag_worker_set_peers(NULL, NULL, NULL, 0, NULL));
  REFUSED(distag_checkpoint_save(NULL, "folder", v, 0, &err));
  STATUS_ONLY(distag_checkpoint_save(NULL, "folder", v, 0, NULL));
  REFUSED(distag_checkpoint_load(NULL, NULL, NULL, 0, NULL, &err));
  STATUS_ONLY(distag_checkpoint_load(NULL, NULL, NULL, 0, NULL, NULL));
  REFUSED(distag_checkpoint_save_async(NULL, "folder", v, 0, &out_f, &err));
  STATUS_ONLY(distag_checkpoint_save_async(NULL, "folder", v, 0, &out_f, NULL));
  REFUSED(distag_checkpoint_load_async(NULL, NULL, NULL, 0, &out_f, &err));
  STATUS_ONLY(distag_checkpoint_load_async(NULL, NULL, NULL, 0, &out_f, NULL));
  distag_loader *loader = NULL;
  distag_loader_info progress = DISTAG_LOADER_INFO_INIT;
  CHAINED(distag_loader_create(NULL, NULL, NULL, NULL, NULL, &loader, &err));
  CHAINED(distag_loader_next(NULL, 0, &out_v, &err));
  CHAINED(distag_loader_next_async(NULL, 0, &out_f, &err));
  CHAINED(distag_loader_save(NULL, &out_v, &err));
  CHAINED(distag_loader_get_info(NULL, &progress, &err));
  distag_tensor_info info = DISTAG_TENSOR_INFO_INIT;
  CHAINED(distag_tensor_get_info(NULL, &info, &err));
  REFUSED(distag_tensor_get_info(t, NULL, &err));
  CHAINED(distag_tensor_create_snapshot(NULL, &out_t, &err));
  REFUSED(distag_tensor_create_snapshot(t, NULL, &err));
  CHAINED(distag_tensor_copy_data(NULL, &item, 8, &err));
  REFUSED(distag_tensor_copy_data(t, NULL, 16, &err));
  CHAINED(distag_tensor_get_item(NULL, &item, &err));
  CHECK_INT(distag_tensor_get_item(t, NULL, NULL), DISTAG_E_INVALID_ARGUMENT);
  CHAINED(distag_tensor_set_requires_grad(NULL, 1, &err));
  CHAINED(distag_tensor_write(NULL, dims, 16, &err));
  REFUSED(distag_tensor_write(t, NULL, 16, &err));
  CHAINED(distag_tensor_assign(NULL, t, &err));
  CHAINED(distag_tensor_assign(t, NULL, &err));
  CHAINED(distag_tensor_add_scaled(NULL, t, 1, &err));
  CHAINED(distag_tensor_add_scaled(t, NULL, 1, &err));
  STATUS_ONLY(distag_tensor_add_scaled(t, NULL, 1, NULL));

  CHECK_INT(distag_tensor_get_dtype(NULL), 0);
  CHECK_INT(distag_tensor_get_ndim(NULL), 0);
  CHECK(distag_tensor_get_shape(NULL) == NULL && distag_tensor_get_strides(NULL) == NULL);
  CHECK_INT(distag_tensor_get_count(NULL), 0);
  CHECK_INT(distag_tensor_get_size(NULL), 0);
  CHECK_INT(distag_tensor_get_id(NULL), 0);
  CHECK(distag_tensor_get_data(NULL) == NULL);
  CHECK_INT(distag_tensor_get_requires_grad(NULL), 0);
  CHECK(distag_tensor_as_value(NULL) == NULL);
  distag_tensor_retain(NULL);
  distag_tensor_release(NULL);
}

static void ops_of_tensors(void) {
  static const distag_unary_op unary[] = {distag_neg,     distag_exp,  distag_log,   distag_sqrt,  distag_tanh,
                                          distag_sigmoid, distag_relu, distag_clone, distag_detach};
  static const distag_binary_op binary[] = {distag_add,    distag_sub,           distag_mul,
                                            distag_div,    distag_maximum,       distag_eq,
                                            distag_matmul, distag_cross_entropy, distag_mse_loss};
  static const distag_scalar_op scalar[] = {distag_add_scalar, distag_mul_scalar};
  static const distag_reduce_op reduce[] = {distag_sum, distag_mean, distag_max};
  static const distag_dim_op along[] = {distag_argmax, distag_softmax, distag_log_softmax};
  for (size_t i = 0; i < sizeof unary / sizeof unary[0]; ++i) {
    CHAINED(unary[i](NULL, &out_t, &err));
    REFUSED(unary[i](t, NULL, &err));
    STATUS_ONLY(unary[i](NULL, NULL, NULL));
  }
  for (size_t i = 0; i < sizeof binary / sizeof binary[0]; ++i) {
    CHAINED(binary[i](NULL, t, &out_t, &err));
    CHAINED(binary[i](t, NULL, &out_t, &err));
    REFUSED(binary[i](t, t, NULL, &err));
  }
  for (size_t i = 0; i < sizeof scalar / sizeof scalar[0]; ++i) {
    CHAINED(scalar[i](NULL, 1, &out_t, &err));
    REFUSED(scalar[i](t, 1, NULL, &err));
  }
  for (size_t i = 0; i < sizeof reduce / sizeof reduce[0]; ++i) {
    CHAINED(reduce[i](NULL, NULL, 0, 0, &out_t, &err));
    REFUSED(reduce[i](t, NULL, 1, 0, &out_t, &err));
    REFUSED(reduce[i](t, NULL, 0, 0, NULL, &err));
  }
  for (size_t i = 0; i < sizeof along / sizeof along[0]; ++i) {
    CHAINED(along[i](NULL, 0, &out_t, &err));
    REFUSED(along[i](t, 0, NULL, &err));
  }
}

static void other_ops(void) {
  distag_tensor *const holes[] = {t, NULL};
  distag_custom_op custom = DISTAG_CUSTOM_OP_INIT;
  custom.name = "nameless";
  REFUSED(distag_zeros(DISTAG_FLOAT32, NULL, 1, &out_t, &err));
  REFUSED(distag_zeros(DISTAG_FLOAT32, NULL, 0, NULL, &err));
  REFUSED(distag_ones(DISTAG_FLOAT32, NULL, 1, &out_t, &err));
  REFUSED(distag_ones(DISTAG_FLOAT32, NULL, 0, NULL, &err));
  REFUSED(distag_full(1, DISTAG_FLOAT32, NULL, 1, &out_t, &err));
  REFUSED(distag_full(1, DISTAG_FLOAT32, NULL, 0, NULL, &err));
  REFUSED(distag_arange(0, 1, 1, DISTAG_FLOAT32, NULL, &err));
  REFUSED(distag_rand(1, DISTAG_FLOAT32, NULL, 1, &out_t, &err));
  REFUSED(distag_rand(1, DISTAG_FLOAT32, NULL, 0, NULL, &err));
  REFUSED(distag_randn(1, DISTAG_FLOAT32, NULL, 1, &out_t, &err));
  REFUSED(distag_randn(1, DISTAG_FLOAT32, NULL, 0, NULL, &err));
  CHAINED(distag_linear(NULL, t, t, &out_t, &err));
  CHAINED(distag_linear(t, NULL, t, &out_t, &err));
  REFUSED(distag_linear(t, t, NULL, NULL, &err)); /* the bias is nullable */
  CHAINED(distag_transpose(NULL, 0, 1, &out_t, &err));
  REFUSED(distag_transpose(t, 0, 1, NULL, &err));
  CHAINED(distag_reshape(NULL, dims, 2, &out_t, &err));
  REFUSED(distag_reshape(t, NULL, 2, &out_t, &err));
  REFUSED(distag_reshape(t, dims, 2, NULL, &err));
  CHAINED(distag_slice(NULL, 0, 0, 1, 1, &out_t, &err));
  REFUSED(distag_slice(t, 0, 0, 1, 1, NULL, &err));
  REFUSED(distag_concat(NULL, 2, 0, &out_t, &err));
  CHAINED(distag_concat(holes, 2, 0, &out_t, &err));
  REFUSED(distag_concat(holes, 1, 0, NULL, &err));
  CHAINED(distag_conv2d(NULL, t, NULL, dims, dims, &out_t, &err));
  CHAINED(distag_conv2d(t, NULL, NULL, dims, dims, &out_t, &err));
  REFUSED(distag_conv2d(t, t, NULL, NULL, dims, &out_t, &err));
  REFUSED(distag_conv2d(t, t, NULL, dims, NULL, &out_t, &err));
  REFUSED(distag_conv2d(t, t, NULL, dims, dims, NULL, &err));
  CHAINED(distag_max_pool2d(NULL, dims, dims, dims, &out_t, &err));
  REFUSED(distag_max_pool2d(t, NULL, dims, dims, &out_t, &err));
  REFUSED(distag_max_pool2d(t, dims, NULL, dims, &out_t, &err));
  REFUSED(distag_max_pool2d(t, dims, dims, NULL, &out_t, &err));
  REFUSED(distag_max_pool2d(t, dims, dims, dims, NULL, &err));
  CHAINED(distag_cast(NULL, DISTAG_FLOAT64, &out_t, &err));
  REFUSED(distag_cast(t, DISTAG_FLOAT64, NULL, &err));

  REFUSED(distag_apply(NULL, holes, 1, NULL, 0, &out_t, 1, &err));
  REFUSED(distag_apply("neg", NULL, 1, NULL, 0, &out_t, 1, &err));
  CHAINED(distag_apply("add", holes, 2, NULL, 0, &out_t, 1, &err));
  REFUSED(distag_apply("neg", holes, 1, NULL, 0, NULL, 1, &err));
  REFUSED(distag_get_op(0, NULL, &err));
  REFUSED(distag_apply_custom(NULL, holes, 1, &out_t, 1, &err));
  REFUSED(distag_apply_custom(&custom, holes, 1, &out_t, 1, &err)); /* no forward */
  REFUSED(distag_apply_custom(&custom, NULL, 1, &out_t, 1, &err));
  CHAINED(distag_apply_custom(&custom, holes, 2, &out_t, 1, &err));
  REFUSED(distag_apply_custom(&custom, holes, 1, NULL, 1, &err));
}

static void values(void) {
  distag_value *const holes[] = {v, NULL};
  const char *const keys[] = {"a", "b"};
  int32_t flag = 0;
  int64_t whole = 0;
  double real = 0;
  const char *text = NULL;
  const void *data = NULL;
  size_t size = 0;
  REFUSED(distag_value_create_null(NULL, &err));
  REFUSED(distag_value_create_bool(1, NULL, &err));
  REFUSED(distag_value_create_int64(1, NULL, &err));
  REFUSED(distag_value_create_float64(1, NULL, &err));
  REFUSED(distag_value_create_text(NULL, &out_v, &err));
  REFUSED(distag_value_create_text("", NULL, &err));
  REFUSED(distag_value_create_bytes(NULL, 1, &out_v, &err));
  REFUSED(distag_value_create_bytes("", 1, NULL, &err));
  REFUSED(distag_value_create_list(NULL, 1, &out_v, &err));
  CHAINED(distag_value_create_list(holes, 2, &out_v, &err));
  REFUSED(distag_value_create_list(holes, 1, NULL, &err));
  REFUSED(distag_value_create_int64_list(NULL, 1, &out_v, &err));
  REFUSED(distag_value_create_int64_list(dims, 1, NULL, &err));
  REFUSED(distag_value_create_float64_list(NULL, 1, &out_v, &err));
  REFUSED(distag_value_create_float64_list(&real, 1, NULL, &err));
  CHAINED(distag_value_copy_int64s(NULL, &whole, 1, &size, &err));
  REFUSED(distag_value_copy_int64s(v, NULL, 1, &size, &err));
  REFUSED(distag_value_copy_int64s(v, &whole, 1, NULL, &err));
  CHAINED(distag_value_copy_float64s(NULL, &real, 1, &size, &err));
  REFUSED(distag_value_copy_float64s(v, NULL, 1, &size, &err));
  REFUSED(distag_value_copy_float64s(v, &real, 1, NULL, &err));
  REFUSED(distag_value_create_map(NULL, holes, 1, &out_v, &err));
  REFUSED(distag_value_create_map(keys, NULL, 1, &out_v, &err));
  CHAINED(distag_value_create_map(keys, holes, 2, &out_v, &err));
  REFUSED(distag_value_create_map(keys, holes, 1, NULL, &err));
  CHAINED(distag_value_get_bool(NULL, &flag, &err));
  REFUSED(distag_value_get_bool(v, NULL, &err));
  CHAINED(distag_value_get_int64(NULL, &whole, &err));
  REFUSED(distag_value_get_int64(v, NULL, &err));
  CHAINED(distag_value_get_float64(NULL, &real, &err));
  REFUSED(distag_value_get_float64(v, NULL, &err));
  CHAINED(distag_value_get_text(NULL, &text, &err));
  REFUSED(distag_value_get_text(v, NULL, &err));
  CHAINED(distag_value_get_bytes(NULL, &data, &size, &err));
  REFUSED(distag_value_get_bytes(v, NULL, &size, &err));
  REFUSED(distag_value_get_bytes(v, &data, NULL, &err));
  CHAINED(distag_value_get_tensor(NULL, &out_t, &err));
  REFUSED(distag_value_get_tensor(v, NULL, &err));
  CHECK_INT(distag_value_get_kind(NULL), 0);
  CHECK_INT(distag_value_get_count(NULL), 0);
  CHECK(distag_value_get_item(NULL, 0) == NULL);
  CHECK(distag_value_get_key(NULL, 0) == NULL);
  CHECK(distag_value_get_entry(NULL, "a") == NULL && distag_value_get_entry(v, NULL) == NULL);
  distag_value_retain(NULL);
  distag_value_release(NULL);
}

static void workers(void) {
  distag_value *const holes[] = {v, NULL};
  size_t done = 0;
  distag_stats stats = DISTAG_STATS_INIT;
  distag_member member = DISTAG_MEMBER_INIT;
  REFUSED(distag_worker_create(NULL, NULL, &err));
  CHAINED(distag_worker_register(NULL, "f", answer_nothing, NULL, NULL, NULL, &err));
  REFUSED(distag_worker_register(w, NULL, answer_nothing, NULL, NULL, NULL, &err));
  REFUSED(distag_worker_register(w, "f", NULL, NULL, NULL, NULL, &err));
  CHAINED(distag_worker_copy_report(NULL, NULL, 0, &done, &err));
  REFUSED(distag_worker_copy_report(w, NULL, 1, &done, &err));
  REFUSED(distag_worker_copy_report(w, NULL, 0, NULL, &err));
  CHAINED(distag_worker_copy_group_report(NULL, 0, NULL, 0, &done, &err));
  REFUSED(distag_worker_copy_group_report(w, 0, NULL, 1, &done, &err));
  REFUSED(distag_worker_copy_group_report(w, 0, NULL, 0, NULL, &err));
  CHAINED(distag_worker_copy_metrics(NULL, NULL, 0, &done, &err));
  REFUSED(distag_worker_copy_metrics(w, NULL, 1, &done, &err));
  REFUSED(distag_worker_copy_metrics(w, NULL, 0, NULL, &err));
  uint64_t span = 0;
  CHAINED(distag_worker_start_trace(NULL, NULL, &err));
  CHAINED(distag_worker_stop_trace(NULL, &err));
  CHAINED(distag_trace_begin(NULL, "span", &span, &err));
  REFUSED(distag_trace_begin(w, NULL, &span, &err));
  REFUSED(distag_trace_begin(w, "span", NULL, &err));
  distag_trace_end(NULL, 1);
  CHAINED(distag_worker_unregister(NULL, "f", 0, &err));
  REFUSED(distag_worker_unregister(w, NULL, 0, &err));
  CHAINED(distag_worker_start(NULL, 0, &err));
  CHAINED(distag_worker_start_async(NULL, 0, &out_f, &err));
  REFUSED(distag_worker_start_async(w, 0, NULL, &err));
  CHAINED(distag_worker_shutdown(NULL, 0, &out_v, &err));
  CHAINED(distag_worker_shutdown_async(NULL, 0, &out_f, &err));
  REFUSED(distag_worker_shutdown_async(w, 0, NULL, &err));
  CHAINED(distag_worker_poll(NULL, 0, 0, &done, &err));
  CHAINED(distag_worker_wait(NULL, 0, &err));
  distag_event event = DISTAG_EVENT_INIT;
  CHAINED(distag_worker_offer(NULL, "f", 0, NULL, &err));
  REFUSED(distag_worker_offer(w, NULL, 0, NULL, &err));
  CHAINED(distag_worker_take_event(NULL, 0, &event, &err));
  REFUSED(distag_worker_take_event(w, 0, NULL, &err));
  CHAINED(distag_worker_get_stats(NULL, &stats, &err));
  REFUSED(distag_worker_get_stats(w, NULL, &err));
  CHAINED(distag_worker_get_member(NULL, 0, &member, &err));
  REFUSED(distag_worker_get_member(w, 0, NULL, &err));
  CHAINED(distag_worker_get_member_by_name(NULL, "w0", &member, &err));
  REFUSED(distag_worker_get_member_by_name(w, NULL, &member, &err));
  REFUSED(distag_worker_get_member_by_name(w, "w0", NULL, &err));
  CHAINED(distag_worker_copy_ranks(NULL, "", NULL, 0, &done, &err));
  REFUSED(distag_worker_copy_ranks(w, NULL, NULL, 0, &done, &err));
  REFUSED(distag_worker_copy_ranks(w, "", NULL, 1, &done, &err));
  REFUSED(distag_worker_copy_ranks(w, "", NULL, 0, NULL, &err));
  CHECK_INT(distag_worker_get_fd(NULL), -1);
  CHECK(distag_worker_get_name(NULL) == NULL);
  CHECK_INT(distag_worker_get_rank(NULL), -1);
  CHECK_INT(distag_worker_get_world_size(NULL), 0);
  distag_worker_retain(NULL);
  distag_worker_release(NULL);

  CHAINED(distag_worker_all_gather(NULL, v, NULL, 0, 0, &out_v, &err));
  CHAINED(distag_worker_all_gather(w, NULL, NULL, 0, 0, &out_v, &err));
  REFUSED(distag_worker_all_gather(w, v, NULL, 1, 0, &out_v, &err));
  STATUS_ONLY(distag_worker_all_gather(w, NULL, NULL, 0, 0, NULL, NULL));
  CHAINED(distag_worker_all_gather_async(NULL, v, NULL, 0, 0, &out_f, &err));
  CHAINED(distag_worker_all_gather_async(w, NULL, NULL, 0, 0, &out_f, &err));
  REFUSED(distag_worker_all_gather_async(w, v, NULL, 1, 0, &out_f, &err));
  REFUSED(distag_worker_all_gather_async(w, v, NULL, 0, 0, NULL, &err));

  CHAINED(distag_call(NULL, NULL, "w0", "f", NULL, 0, NULL, &out_v, &err));
  REFUSED(distag_call(w, NULL, NULL, "f", NULL, 0, NULL, &out_v, &err));
  REFUSED(distag_call(w, NULL, "w0", NULL, NULL, 0, NULL, &out_v, &err));
  REFUSED(distag_call(w, NULL, "w0", "f", NULL, 1, NULL, &out_v, &err));
  CHAINED(distag_call(w, NULL, "w0", "f", holes, 2, NULL, &out_v, &err));
  CHAINED(distag_call_async(NULL, NULL, "w0", "f", NULL, 0, NULL, &out_f, &err));
  REFUSED(distag_call_async(w, NULL, NULL, "f", NULL, 0, NULL, &out_f, &err));
  REFUSED(distag_call_async(w, NULL, "w0", NULL, NULL, 0, NULL, &out_f, &err));
  CHAINED(distag_call_async(w, NULL, "w0", "f", holes, 2, NULL, &out_f, &err));
  REFUSED(distag_call_async(w, NULL, "w0", "f", NULL, 0, NULL, NULL, &err));
}

static void invocations_and_replies(void) {
  CHECK(distag_invocation_get_worker(NULL) == NULL && distag_invocation_get_context(NULL) == NULL);
  CHECK(distag_invocation_get_caller(NULL) == NULL && distag_invocation_get_arg(NULL, 0) == NULL);
  CHECK_INT(distag_invocation_get_time_left(NULL), 0);
  CHECK_INT(distag_invocation_is_cancelled(NULL), 0);
  CHECK_INT(distag_invocation_get_arg_count(NULL), 0);
  CHAINED(distag_reply_finish(NULL, v, NULL, &err));
  CHAINED(distag_invocation_finish(NULL, v, NULL, &err));
  CHECK(distag_invocation_get_function(NULL) == NULL);
  CHECK(distag_invocation_get_traceparent(NULL) == NULL);
  CHECK_INT(distag_reply_is_cancelled(NULL), 0);
  distag_reply_retain(NULL);
  distag_reply_release(NULL);
}

static void rrefs(void) {
  distag_value *const holes[] = {v, NULL};
  distag_rref *r = NULL, *out_r = NULL;
  void *object = NULL;
  REFUSED(distag_value_create_object(NULL, NULL, NULL, &out_v, &err));
  REFUSED(distag_value_create_object("type", NULL, NULL, NULL, &err));
  CHAINED(distag_value_get_object(NULL, "type", &object, &err));
  REFUSED(distag_value_get_object(v, NULL, &object, &err));
  REFUSED(distag_value_get_object(v, "type", NULL, &err));
  CHAINED(distag_invocation_get_object(NULL, 0, "type", &object, &err));
  CHAINED(distag_value_get_rref(NULL, &out_r, &err));
  REFUSED(distag_value_get_rref(v, NULL, &err));
  CHAINED(distag_rref_create(NULL, v, &out_r, &err));
  CHAINED(distag_rref_create(w, NULL, &out_r, &err));
  REFUSED(distag_rref_create(w, v, NULL, &err));
  CHAINED(distag_remote(NULL, NULL, "w0", "f", NULL, 0, NULL, &out_r, &err));
  REFUSED(distag_remote(w, NULL, NULL, "f", NULL, 0, NULL, &out_r, &err));
  REFUSED(distag_remote(w, NULL, "w0", NULL, NULL, 0, NULL, &out_r, &err));
  REFUSED(distag_remote(w, NULL, "w0", "f", NULL, 1, NULL, &out_r, &err));
  CHAINED(distag_remote(w, NULL, "w0", "f", holes, 2, NULL, &out_r, &err));
  REFUSED(distag_remote(w, NULL, "w0", "f", NULL, 0, NULL, NULL, &err));
  CHECK_INT(distag_rref_create(w, v, &r, NULL), DISTAG_OK);
  CHAINED(distag_rref_fetch(NULL, NULL, NULL, &out_v, &err));
  REFUSED(distag_rref_fetch(r, NULL, NULL, NULL, &err));
  CHAINED(distag_rref_fetch_async(NULL, NULL, NULL, &out_f, &err));
  REFUSED(distag_rref_fetch_async(r, NULL, NULL, NULL, &err));
  CHAINED(distag_rref_get_local(NULL, &out_v, &err));
  REFUSED(distag_rref_get_local(r, NULL, &err));
  CHECK(distag_rref_get_owner(NULL) == NULL && distag_rref_as_value(NULL) == NULL);
  CHECK_INT(distag_rref_is_owner(NULL), 0);
  CHECK_INT(distag_rref_is_confirmed(NULL), 0);
  CHECK_INT(distag_rref_get_id(NULL), 0);
  distag_rref_retain(NULL);
  distag_rref_release(NULL);
  distag_rref_release(r);
}

static void futures(void) {
  distag_future *const holes[] = {f, NULL};
  CHAINED(distag_future_wait(NULL, 0, &err));
  CHAINED(distag_future_get_value(NULL, &out_v, &err));
  REFUSED(distag_future_get_value(f, NULL, &err));
  CHAINED(distag_future_on_done(NULL, on_done, NULL, NULL, &err));
  REFUSED(distag_future_on_done(f, NULL, NULL, NULL, &err));
  CHAINED(distag_future_post(NULL, w, 0, &err));
  CHAINED(distag_future_post(f, NULL, 0, &err));
  CHAINED(distag_future_then(NULL, then, NULL, NULL, &out_f, &err));
  REFUSED(distag_future_then(f, NULL, NULL, NULL, &out_f, &err));
  REFUSED(distag_future_then(f, then, NULL, NULL, NULL, &err));
  REFUSED(distag_wait_all(NULL, 1, 0, &err));
  CHAINED(distag_wait_all(holes, 2, 0, &err));
  CHECK_INT(distag_wait_all(NULL, 0, 0, NULL), DISTAG_OK);
  CHECK_INT(distag_future_poll(NULL), 0);
  distag_future_cancel(NULL);
  distag_future_retain(NULL);
  distag_future_release(NULL);
}

static void contexts(void) {
  distag_tensor *const holes[] = {t, NULL};
  distag_context_info info = DISTAG_CONTEXT_INFO_INIT;
  size_t count = 0;
  distag_gradients *out_g = NULL;
  REFUSED(distag_context_create(NULL, NULL, &err));
  CHAINED(distag_context_get_info(NULL, &info, &err));
  REFUSED(distag_context_get_info(c, NULL, &err));
  CHAINED(distag_context_copy_known_ranks(NULL, NULL, 0, &count, &err));
  REFUSED(distag_context_copy_known_ranks(c, NULL, 1, &count, &err));
  REFUSED(distag_context_copy_known_ranks(c, NULL, 0, NULL, &err));
  CHAINED(distag_backward(NULL, holes, 1, NULL, &err));
  CHAINED(distag_backward(c, holes, 2, NULL, &err));
  REFUSED(distag_backward(c, NULL, 1, NULL, &err));
  CHAINED(distag_backward_async(NULL, holes, 1, NULL, &out_f, &err));
  CHAINED(distag_backward_async(c, holes, 2, NULL, &out_f, &err));
  REFUSED(distag_backward_async(c, NULL, 1, NULL, &out_f, &err));
  REFUSED(distag_backward_async(c, holes, 1, NULL, NULL, &err));
  CHAINED(distag_get_gradients(NULL, &out_g, &err));
  REFUSED(distag_get_gradients(c, NULL, &err));
  size_t size = 0;
  CHAINED(distag_context_copy_report(NULL, NULL, 0, &size, &err));
  REFUSED(distag_context_copy_report(c, NULL, 1, &size, &err));
  REFUSED(distag_context_copy_report(c, NULL, 0, NULL, &err));
  CHAINED(distag_context_settle_async(NULL, &out_f, &err));
  REFUSED(distag_context_settle_async(c, NULL, &err));
  CHECK(out_g == NULL);
  CHECK_INT(distag_context_get_id(NULL), 0);
  CHECK_INT(distag_gradients_get_count(NULL), 0);
  CHECK(distag_gradients_get_tensor(NULL, 0) == NULL && distag_gradients_get_gradient(NULL, 0) == NULL);
  CHECK(distag_gradients_find(NULL, t) == NULL && distag_gradients_find(g, NULL) == NULL);
  distag_context_retain(NULL);
  distag_context_release(NULL);
  distag_gradients_retain(NULL);
  distag_gradients_release(NULL);
}

/* An impossible count is the caller's mistake, not a defect of distag. */
static void counts_beyond_memory(void) {
  const size_t most = SIZE_MAX;
  int32_t rank = 0;
  distag_mesh *mesh = NULL;
  distag_optimizer *optimizer = NULL;
  distag_error err = DISTAG_ERROR_INIT;
  CHECK_FAILS(distag_concat(&t, most, 0, &out_t, &err), DISTAG_E_INVALID_ARGUMENT, "more than memory can hold");
  CHECK_FAILS(distag_apply("concat", &t, most, NULL, 0, &out_t, 1, &err), DISTAG_E_INVALID_ARGUMENT, "inputs");
  CHECK_FAILS(distag_value_create_bytes("b", most, &out_v, &err), DISTAG_E_INVALID_ARGUMENT, "data");
  CHECK_FAILS(distag_value_create_list(&v, most, &out_v, &err), DISTAG_E_INVALID_ARGUMENT, "items");
  CHECK_FAILS(distag_call(w, NULL, "w0", "answer_nothing", &v, most, NULL, &out_v, &err), DISTAG_E_INVALID_ARGUMENT,
              "args");
  CHECK_FAILS(distag_backward(c, &t, most, NULL, &err), DISTAG_E_INVALID_ARGUMENT, "roots");
  CHECK_FAILS(distag_wait_all(&f, most, 0, &err), DISTAG_E_INVALID_ARGUMENT, "futures");
  CHECK_FAILS(distag_worker_all_gather(w, v, &rank, most, 0, &out_v, &err), DISTAG_E_INVALID_ARGUMENT, "ranks");
  CHECK_FAILS(distag_mesh_create(w, &rank, most, NULL, NULL, 0, NULL, &mesh, &err), DISTAG_E_INVALID_ARGUMENT,
              "rank_count");
  CHECK_FAILS(distag_optimizer_create(w, "sgd", &v, most, &optimizer, &err), DISTAG_E_INVALID_ARGUMENT, "parameters");
  CHECK(out_t == NULL && out_v == NULL && mesh == NULL && optimizer == NULL);
}

int main(void) {
  distag_error err = DISTAG_ERROR_INIT;
  const distag_worker_options options = group_options(0, 1, "inproc://nulls");
  CHECK_OK(distag_zeros(DISTAG_FLOAT32, dims, 2, &t, &err));
  CHECK_OK(distag_value_create_text("v", &v, &err));
  CHECK_OK(distag_worker_create(&options, &w, &err));
  CHECK_OK(distag_worker_register(w, "answer_nothing", answer_nothing, NULL, NULL, NULL, &err));
  CHECK_OK(distag_worker_start(w, 120 * DISTAG_SECOND, &err));
  CHECK_OK(distag_call_async(w, NULL, "w0", "answer_nothing", NULL, 0, NULL, &f, &err));
  CHECK_OK(distag_future_wait(f, DISTAG_FOREVER, &err));
  CHECK_OK(distag_context_create(NULL, &c, &err));
  CHECK_OK(distag_get_gradients(c, &g, &err));
  tensors();
  ops_of_tensors();
  other_ops();
  values();
  workers();
  invocations_and_replies();
  CHECK_OK(distag_call(w, NULL, "w0", "answer_nothing", NULL, 0, NULL, NULL, &err));
  rrefs();
  futures();
  contexts();
  counts_beyond_memory();
  distag_tensor_release(t);
  distag_value_release(v);
  distag_context_release(c);
  distag_gradients_release(g);
  distag_future_release(f);
  CHECK_OK(distag_worker_shutdown(w, 120 * DISTAG_SECOND, NULL, &err));
  distag_worker_release(w);
  return check_end();
}
