#include "capi/support/local_round.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

static atomic_int given, destroyed;

int local_round_given(void) { return atomic_load(&given); }
int local_round_destroyed(void) { return atomic_load(&destroyed); }

static void count_destroyed(void *user_data) {
  (void)user_data;
  atomic_fetch_add(&destroyed, 1);
}

static distag_status twice(void *user_data, distag_tensor *const *inputs, size_t input_count,
                           distag_tensor **out_outputs, size_t output_count, distag_error *err) {
  (void)user_data, (void)input_count, (void)output_count;
  return distag_mul_scalar(inputs[0], 2, &out_outputs[0], err);
}

static distag_status twice_back(void *user_data, distag_tensor *const *output_gradients, size_t output_count,
                                distag_tensor **out_input_gradients, size_t input_count, distag_error *err) {
  (void)user_data, (void)output_count, (void)input_count;
  return distag_mul_scalar(output_gradients[0], 2, &out_input_gradients[0], err);
}

static distag_status see_gradient(void *user_data, distag_tensor *gradient, distag_tensor **out_gradient,
                                  distag_error *err) {
  (void)user_data, (void)gradient, (void)out_gradient, (void)err;
  return DISTAG_OK;
}

/* ---- values ---- */

static void values(distag_error *err) {
  static int object;
  const char *const keys[] = {"a", "b"};
  const int64_t whole[] = {1, 2, 3};
  const double reals[] = {0.5, 1.5};
  int64_t numbers[3] = {0};
  double copied[2] = {0};
  distag_value *v[9] = {NULL}, *list = NULL, *map = NULL, *items[2];
  int32_t yes = 0;
  int64_t number = 0;
  double real = 0;
  const char *text = NULL;
  const void *bytes = NULL;
  size_t size = 0;
  void *found = NULL;
  distag_value_create_null(&v[0], err);
  distag_value_create_bool(1, &v[1], err);
  distag_value_create_int64(7, &v[2], err);
  distag_value_create_float64(0.5, &v[3], err);
  distag_value_create_text("text", &v[4], err);
  distag_value_create_bytes("bytes", 5, &v[5], err);
  distag_value_create_int64_list(whole, 3, &v[6], err);
  distag_value_copy_int64s(v[6], numbers, 3, &size, err);
  distag_value_create_float64_list(reals, 2, &v[8], err);
  distag_value_copy_float64s(v[8], copied, 2, &size, err);
  atomic_fetch_add(&given, 1);
  distag_value_create_object("thing", &object, count_destroyed, &v[7], err);
  distag_value_create_list(v, 7, &list, err);
  items[0] = v[1], items[1] = list;
  distag_value_create_map(keys, items, 2, &map, err);
  distag_value_get_bool(distag_value_get_entry(map, "a"), &yes, err);
  distag_value_get_int64(v[2], &number, err);
  distag_value_get_float64(v[3], &real, err);
  distag_value_get_text(v[4], &text, err);
  distag_value_get_bytes(v[5], &bytes, &size, err);
  distag_value_get_object(v[7], "thing", &found, err);
  if (err->code == DISTAG_OK &&
      (yes != 1 || numbers[2] != 3 || copied[1] != 1.5 || number != 7 || real != 0.5 || strcmp(text, "text") != 0 ||
       size != 5 || found != &object || distag_value_get_count(list) != 7 || distag_value_get_item(list, 7) != NULL ||
       strcmp(distag_value_get_key(map, 1), "b") != 0 || distag_value_get_kind(map) != DISTAG_VALUE_MAP)) {
    distag_error_set(err, DISTAG_E_USER, "a value is not as it was made");
  }
  distag_value_retain(map);
  distag_value_release(map);
  distag_value_release(map);
  distag_value_release(list);
  for (size_t i = 0; i < 9; ++i) distag_value_release(v[i]);
}

/* ---- tensors and ops ---- */

static void sources(uint64_t seed, distag_error *err) {
  const int64_t shape[] = {2, 3};
  static const float data[6] = {1, 2, 3, 4, 5, 6};
  float copy[6];
  double item = 0;
  distag_tensor_info info = DISTAG_TENSOR_INFO_INIT;
  distag_tensor *t[11] = {NULL};
  struct DLManagedTensorVersioned *managed = NULL;
  struct DLManagedTensor *legacy = NULL;
  distag_tensor_create(data, sizeof data, DISTAG_FLOAT32, shape, 2, &t[0], err);
  atomic_fetch_add(&given, 1);
  distag_tensor_create_borrowed(data, sizeof data, DISTAG_FLOAT32, shape, NULL, 2, NULL, count_destroyed, &t[1], err);
  distag_zeros(DISTAG_FLOAT32, shape, 2, &t[2], err);
  distag_ones(DISTAG_FLOAT32, shape, 2, &t[3], err);
  distag_full(2, DISTAG_FLOAT32, NULL, 0, &t[4], err);
  distag_arange(0, 6, 1, DISTAG_FLOAT32, &t[5], err);
  distag_rand(seed, DISTAG_FLOAT32, shape, 2, &t[6], err);
  distag_randn(seed, DISTAG_FLOAT32, shape, 2, &t[7], err);
  distag_tensor_create_snapshot(t[1], &t[8], err);
  distag_tensor_get_info(t[8], &info, err);
  distag_tensor_export_dlpack(t[8], 0, &managed, err);
  distag_tensor_import_dlpack(managed, &t[9], err);
  distag_tensor_export_dlpack_legacy(t[9], DISTAG_DLPACK_SHARE, &legacy, err);
  distag_tensor_import_dlpack_legacy(legacy, &t[10], err);
  distag_tensor_write(t[2], data, sizeof data, err);
  distag_tensor_assign(t[3], t[2], err);
  distag_tensor_add_scaled(t[3], t[1], 0.5, err);
  distag_tensor_copy_data(t[3], copy, sizeof copy, err);
  distag_tensor_get_item(t[4], &item, err);
  if (err->code == DISTAG_OK &&
      (copy[5] != 9 || info.size != sizeof data || item != 2 || distag_tensor_get_dtype(t[0]) != DISTAG_FLOAT32 ||
       distag_tensor_get_ndim(t[0]) != 2 || distag_tensor_get_shape(t[0])[1] != 3 ||
       distag_tensor_get_strides(t[0])[0] != 3 || distag_tensor_get_count(t[0]) != 6 ||
       distag_tensor_get_size(t[0]) != 24 || distag_tensor_get_id(t[0]) == distag_tensor_get_id(t[1]) ||
       distag_tensor_get_data(t[0]) == NULL || distag_tensor_get_data(t[10]) != data ||
       distag_tensor_get_requires_grad(t[0]) != 0 || distag_dtype_get_size(DISTAG_FLOAT64) != 8)) {
    distag_error_set(err, DISTAG_E_USER, "a tensor is not as it was made");
  }
  distag_tensor_retain(t[0]);
  distag_tensor_release(t[0]);
  for (size_t i = 0; i < 11; ++i) distag_tensor_release(t[i]);
}

typedef distag_status (*unary)(distag_tensor *x, distag_tensor **out_y, distag_error *err);
typedef distag_status (*binary)(distag_tensor *a, distag_tensor *b, distag_tensor **out_y, distag_error *err);
typedef distag_status (*reduction)(distag_tensor *x, const int64_t *dims, size_t dim_count, int32_t keepdim,
                                   distag_tensor **out_y, distag_error *err);

static void alike(distag_tensor *x, distag_error *err) {
  static const unary unaries[] = {distag_neg,     distag_exp,  distag_log,   distag_sqrt,  distag_tanh,
                                  distag_sigmoid, distag_relu, distag_clone, distag_detach};
  static const binary binaries[] = {distag_add,     distag_sub, distag_mul,     distag_div,
                                    distag_maximum, distag_eq,  distag_mse_loss};
  static const reduction reductions[] = {distag_sum, distag_mean, distag_max};
  distag_tensor *y = NULL;
  for (size_t i = 0; i < sizeof unaries / sizeof *unaries; ++i) {
    unaries[i](x, &y, err);
    distag_tensor_release(y);
  }
  for (size_t i = 0; i < sizeof binaries / sizeof *binaries; ++i) {
    binaries[i](x, x, &y, err);
    distag_tensor_release(y);
  }
  for (size_t i = 0; i < sizeof reductions / sizeof *reductions; ++i) {
    reductions[i](x, NULL, 0, 0, &y, err);
    distag_tensor_release(y);
  }
}

static void others(distag_error *err) {
  const int64_t shape[] = {2, 2}, image[] = {1, 1, 2, 2}, pair[] = {1, 1}, kernel[] = {2, 2}, flat[] = {4};
  distag_tensor *x = NULL, *picture = NULL, *weight = NULL, *targets = NULL, *y[14] = {NULL}, *both[2];
  distag_ones(DISTAG_FLOAT32, shape, 2, &x, err);
  distag_ones(DISTAG_FLOAT32, image, 4, &picture, err);
  distag_ones(DISTAG_FLOAT32, (const int64_t[]){1, 1, 1, 1}, 4, &weight, err);
  distag_zeros(DISTAG_INT64, (const int64_t[]){2}, 1, &targets, err);
  both[0] = both[1] = x;
  alike(x, err);
  distag_add_scalar(x, 1, &y[0], err);
  distag_mul_scalar(x, 2, &y[1], err);
  distag_argmax(x, 1, &y[2], err);
  distag_matmul(x, x, &y[3], err);
  distag_linear(x, x, NULL, &y[4], err);
  distag_transpose(x, 0, 1, &y[5], err);
  distag_reshape(x, flat, 1, &y[6], err);
  distag_slice(x, 0, 0, 1, 1, &y[7], err);
  distag_concat(both, 2, 0, &y[8], err);
  distag_softmax(x, 1, &y[9], err);
  distag_log_softmax(x, 1, &y[10], err);
  distag_cross_entropy(x, targets, &y[11], err);
  distag_conv2d(picture, weight, NULL, pair, (const int64_t[]){0, 0}, &y[12], err);
  distag_max_pool2d(picture, kernel, kernel, (const int64_t[]){0, 0}, &y[13], err);
  for (size_t i = 0; i < 14; ++i) distag_tensor_release(y[i]);
  distag_cast(x, DISTAG_FLOAT64, &y[0], err);
  distag_apply("add", both, 2, NULL, 0, &y[1], 1, err);
  distag_tensor_release(y[0]);
  distag_tensor_release(y[1]);
  distag_tensor_release(targets);
  distag_tensor_release(weight);
  distag_tensor_release(picture);
  distag_tensor_release(x);
}

/* A custom op and a hook in a pass of a context without a worker. */
static void training(distag_error *err) {
  distag_custom_op op = DISTAG_CUSTOM_OP_INIT;
  distag_context *context = NULL;
  distag_gradients *gradients = NULL;
  distag_tensor *x = NULL, *y = NULL;
  uint64_t hook = 0;
  double item = 0;
  op.name = "twice";
  op.forward = twice;
  op.backward = twice_back;
  op.destroy = count_destroyed;
  distag_context_create(NULL, &context, err);
  distag_ones(DISTAG_FLOAT64, NULL, 0, &x, err);
  distag_tensor_set_requires_grad(x, 1, err);
  atomic_fetch_add(&given, 2);
  distag_tensor_add_hook(x, see_gradient, NULL, count_destroyed, &hook, err);
  distag_apply_custom(&op, &x, 1, &y, 1, err);
  distag_backward(context, &y, 1, NULL, err);
  distag_get_gradients(context, &gradients, err);
  distag_tensor_get_item(distag_gradients_find(gradients, x), &item, err);
  distag_tensor_remove_hook(x, hook, err);
  if (err->code == DISTAG_OK && item != 2) distag_error_set(err, DISTAG_E_USER, "a gradient is wrong");
  distag_gradients_release(gradients);
  distag_tensor_release(y);
  distag_tensor_release(x);
  distag_context_release(context);
}

static void library(distag_error *err) {
  distag_op_info info = DISTAG_OP_INFO_INIT;
  distag_environment place = DISTAG_ENVIRONMENT_INIT;
  size_t size = 0;
  (void)distag_get_environment(&place, NULL); /* whatever has started this */
  distag_get_op(distag_get_op_count() - 1, &info, err);
  distag_copy_handle_report(NULL, 0, &size, err);
  if (distag_get_api(DISTAG_ABI_MAJOR) == NULL || distag_get_version()[0] != '0' ||
      strcmp(distag_status_get_name(DISTAG_OK), "OK") != 0 || distag_get_handle_count() == UINT64_MAX) {
    distag_error_set(err, DISTAG_E_USER, "the library does not know itself");
  }
}

int local_round(uint64_t seed) {
  distag_error err = DISTAG_ERROR_INIT;
  values(&err);
  sources(seed, &err);
  others(&err);
  training(&err);
  library(&err);
  if (err.code != DISTAG_OK) fprintf(stderr, "local round: %s\n", err.message);
  return err.code != DISTAG_OK;
}
