/* Tensors of DISTAG_INIT_SHAPE: ops are noted, sizes cost nothing, and nothing reads an element. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "capi/check.h"
#include "capi/support/members.h"

static distag_tensor *make(uint32_t init, const int64_t *shape, size_t ndim) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_deferred_options options = DISTAG_DEFERRED_OPTIONS_INIT;
  distag_tensor *tensor = NULL;
  options.init = init;
  CHECK_OK(distag_tensor_create_deferred(DISTAG_FLOAT32, shape, ndim, &options, &tensor, &err));
  return tensor;
}

static uint32_t flags_of(distag_tensor *tensor) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_tensor_info info = DISTAG_TENSOR_INFO_INIT;
  CHECK_OK(distag_tensor_get_info(tensor, &info, &err));
  return info.flags;
}

/* The properties that such a tensor has, and the calls that it refuses. */
static void read_and_write(void) {
  const distag_status state = DISTAG_E_INVALID_STATE;
  const int64_t shape[] = {2, 3}, element[] = {1}, nothing[] = {0};
  const float numbers[6] = {0};
  float out[6];
  double item = 0;
  distag_error err = DISTAG_ERROR_INIT;
  distag_tensor *x = make(DISTAG_INIT_SHAPE, shape, 2), *one = make(DISTAG_INIT_SHAPE, element, 1), *y = NULL;
  distag_tensor *plain = NULL, *none = make(DISTAG_INIT_SHAPE, nothing, 1);
  struct DLManagedTensorVersioned *managed = NULL;
  distag_value *parameter = NULL;
  distag_optimizer *optimizer = NULL;
  distag_deferred_options options = DISTAG_DEFERRED_OPTIONS_INIT;
  CHECK_INT(flags_of(x), DISTAG_TENSOR_SHAPE_ONLY | DISTAG_TENSOR_CONTIGUOUS);
  CHECK_INT(distag_tensor_get_count(x), 6);
  CHECK(distag_tensor_get_data(x) == NULL && distag_tensor_get_spec(x) == NULL && distag_tensor_get_mesh(x) == NULL);
  CHECK_FAILS(distag_tensor_copy_data(x, out, sizeof out, &err), state, "DISTAG_INIT_SHAPE");
  CHECK_FAILS(distag_tensor_get_item(one, &item, &err), state, "make the tensors with another init");
  CHECK_FAILS(distag_tensor_write(x, numbers, sizeof numbers, &err), state, "a shape without elements");
  CHECK_OK(distag_ones(DISTAG_FLOAT32, shape, 2, &plain, &err));
  CHECK_FAILS(distag_tensor_assign(plain, x, &err), state, "a shape without elements");
  CHECK_FAILS(distag_tensor_assign(x, plain, &err), state, "a shape without elements");
  CHECK_FAILS(distag_tensor_add_scaled(x, plain, 1, &err), state, "a shape without elements");
  CHECK_FAILS(distag_tensor_create_snapshot(x, &y, &err), state, "a shape without elements");
  CHECK_FAILS(distag_tensor_export_dlpack(x, 0, &managed, &err), state, "a shape without elements");
  CHECK_FAILS(distag_tensor_to_local(x, NULL, &y, &err), state, "a shape without elements");
  CHECK_FAILS(distag_redistribute(x, "(None, None)", 0, &y, &err), state, "a shape without elements");
  options.init = DISTAG_INIT_SHAPE;
  options.shift = 1;
  CHECK_FAILS(distag_tensor_create_deferred(DISTAG_FLOAT32, shape, 2, &options, &y, &err), DISTAG_E_INVALID_ARGUMENT,
              "shift is not of DISTAG_INIT_SHAPE");
  options.shift = 0;
  options.seed = 1;
  CHECK_FAILS(distag_tensor_create_deferred(DISTAG_FLOAT32, shape, 2, &options, &y, &err), DISTAG_E_INVALID_ARGUMENT,
              "seed");
  options.seed = 0;
  options.init = DISTAG_INIT_SHAPE + 1;
  CHECK_FAILS(distag_tensor_create_deferred(DISTAG_FLOAT32, shape, 2, &options, &y, &err), DISTAG_E_UNSUPPORTED,
              "_SHAPE");
  parameter = distag_tensor_as_value(x);
  CHECK_FAILS(distag_optimizer_create(NULL, "sgd", &parameter, 1, &optimizer, &err), state, "with another init");
  CHECK_FAILS(distag_tensor_copy_data(none, out, sizeof out, &err), state, "a shape without elements");
  CHECK_FAILS(distag_tensor_write(none, NULL, 0, &err), state, "a shape without elements");
  distag_tensor_release(x);
  distag_tensor_release(one);
  distag_tensor_release(none);
  distag_tensor_release(plain);
}

static distag_status never(void *user_data, distag_tensor *const *inputs, size_t input_count,
                           distag_tensor **out_outputs, size_t output_count, distag_error *err) {
  (void)user_data, (void)inputs, (void)input_count, (void)out_outputs, (void)output_count, (void)err;
  CHECK(0);
  return DISTAG_E_INTERNAL;
}

/* Ops on such tensors: shapes, dtypes and history as usual; deferred tensors beside them stay deferred. */
static void ops(void) {
  const int64_t in[] = {2, 3}, weights[] = {4, 3}, wrong[] = {4, 5};
  distag_error err = DISTAG_ERROR_INIT;
  distag_tensor *x = make(DISTAG_INIT_SHAPE, in, 2), *weight = make(DISTAG_INIT_RANDN, weights, 2);
  distag_tensor *other = make(DISTAG_INIT_SHAPE, wrong, 2), *y = NULL, *flag = NULL, *sum = NULL;
  const int64_t images[] = {1, 1, 4, 4}, huge[] = {INT64_C(1) << 62, INT64_C(1) << 62}, stride[] = {1, 1};
  const int64_t rows[] = {INT64_C(1) << 30, 1}, columns[] = {1, INT64_C(1) << 30};
  distag_tensor *image = make(DISTAG_INIT_SHAPE, images, 4), *column = make(DISTAG_INIT_SHAPE, rows, 2);
  distag_tensor *row = make(DISTAG_INIT_SHAPE, columns, 2);
  distag_custom_op custom = DISTAG_CUSTOM_OP_INIT;
  CHECK_OK(distag_tensor_set_requires_grad(weight, 1, &err));
  CHECK_OK(distag_linear(x, weight, NULL, &y, &err));
  CHECK_INT(distag_tensor_get_shape(y)[0], 2);
  CHECK_INT(distag_tensor_get_shape(y)[1], 4);
  CHECK_INT(flags_of(y), DISTAG_TENSOR_SHAPE_ONLY | DISTAG_TENSOR_CONTIGUOUS | DISTAG_TENSOR_HAS_HISTORY);
  CHECK_INT(distag_tensor_get_requires_grad(y), 1);
  CHECK_INT(flags_of(weight), DISTAG_TENSOR_DEFERRED | DISTAG_TENSOR_CONTIGUOUS);
  CHECK_OK(distag_eq(y, y, &flag, &err));
  CHECK_INT(distag_tensor_get_dtype(flag), DISTAG_BOOL);
  CHECK_INT(distag_tensor_get_requires_grad(flag), 0);
  CHECK_FAILS(distag_linear(x, other, NULL, &sum, &err), DISTAG_E_INVALID_ARGUMENT,
              "linear: x [2, 3] and weight [4, 5]");
  CHECK_FAILS(distag_neg(flag, &sum, &err), DISTAG_E_UNSUPPORTED, "neg: dtype bool");
  custom.name = "mine";
  custom.forward = never;
  CHECK_FAILS(distag_apply_custom(&custom, &x, 1, &sum, 1, &err), DISTAG_E_UNSUPPORTED, "custom op \"mine\"");
  CHECK_FAILS(distag_apply("nonzero", &x, 1, NULL, 0, &sum, 1, &err), DISTAG_E_UNSUPPORTED, "nonzero");
  /* Sizes of which a sum would overflow, and a result beyond what costs can count. */
  CHECK_FAILS(distag_max_pool2d(image, huge, stride, huge, &sum, &err), DISTAG_E_INVALID_ARGUMENT, "max_pool2d: ");
  CHECK_FAILS(distag_matmul(column, row, &sum, &err), DISTAG_E_INVALID_ARGUMENT, "matmul: ");
  CHECK(sum == NULL);
  distag_tensor_release(image);
  distag_tensor_release(column);
  distag_tensor_release(row);
  distag_tensor_release(x);
  distag_tensor_release(weight);
  distag_tensor_release(other);
  distag_tensor_release(y);
  distag_tensor_release(flag);
}

/* Layers of 2^33 bytes each, 128 of them, forward to a loss. */
static int64_t resident(void) {
  long long kib = -1;
  char line[256];
  FILE *file = fopen("/proc/self/status", "r");
  if (!CHECK(file != NULL)) return 0;
  while (kib < 0 && fgets(line, sizeof line, file) != NULL) sscanf(line, "VmRSS: %lld", &kib);
  fclose(file);
  return (int64_t)kib << 10;
}

static void one_terabyte(void) {
  enum { kLayers = 128 };
  const int64_t width = INT64_C(46341), weights[] = {width, width}, batch[] = {1 << 20, width};
  distag_error err = DISTAG_ERROR_INIT;
  distag_tensor *layers[kLayers], *x = make(DISTAG_INIT_SHAPE, batch, 2), *loss = NULL;
  int64_t before = 0, bytes = 0;
  before = resident();
  for (int i = 0; i < kLayers; ++i) {
    distag_tensor *y = NULL, *z = NULL;
    layers[i] = make(i % 2 == 0 ? DISTAG_INIT_SHAPE : DISTAG_INIT_RANDN, weights, 2);
    bytes += (int64_t)distag_tensor_get_size(layers[i]);
    CHECK_OK(distag_tensor_set_requires_grad(layers[i], 1, &err));
    CHECK_OK(distag_linear(x, layers[i], NULL, &y, &err));
    CHECK_OK(distag_relu(y, &z, &err));
    distag_tensor_release(x);
    distag_tensor_release(y);
    x = z;
  }
  CHECK_OK(distag_mean(x, NULL, 0, 0, &loss, &err));
  CHECK(bytes > INT64_C(1) << 40);
  CHECK(resident() - before <= INT64_C(16) << 20);
  CHECK_INT(distag_tensor_get_ndim(loss), 0);
  distag_tensor_release(x);
  distag_tensor_release(loss);
  for (int i = 0; i < kLayers; ++i) distag_tensor_release(layers[i]);
}

/* Calls of a mesh, a context and a worker with such a tensor. */
static void on_workers(members *group, int32_t rank) {
  const distag_status state = DISTAG_E_INVALID_STATE;
  const int64_t shape[] = {2, 3}, size = 1;
  const int32_t self[] = {rank};
  distag_error err = DISTAG_ERROR_INIT;
  distag_tensor *x = make(DISTAG_INIT_SHAPE, shape, 2), *y = NULL, *loss = NULL, *plain = NULL;
  distag_mesh *mesh = NULL;
  distag_context *context = NULL, *joint = NULL;
  distag_value *answer = NULL, *args[2];
  CHECK_OK(distag_mesh_create(group->workers[rank], self, 1, &size, NULL, 1, NULL, &mesh, &err));
  CHECK_OK(distag_tensor_set_requires_grad(x, 1, &err));
  CHECK_FAILS(distag_tensor_mark_sharding(x, mesh, "(None, None)", -1, &err), state, "a shape without elements");
  CHECK_FAILS(distag_tensor_from_local(mesh, x, "(None, None)", shape, 2, NULL, &y, &err), state,
              "a shape without elements");
  CHECK_OK(distag_mean(x, NULL, 0, 0, &loss, &err));
  CHECK_OK(distag_context_create(group->workers[rank], &context, &err));
  CHECK_FAILS(distag_backward(context, &loss, 1, NULL, &err), state, "go backward");
  CHECK_OK(distag_context_create_joint(mesh, &joint, &err));
  CHECK_FAILS(distag_backward(joint, &loss, 1, NULL, &err), state, "go backward");
  args[0] = distag_tensor_as_value(x);
  args[1] = distag_tensor_as_value(x);
  CHECK_FAILS(distag_call(group->workers[rank], NULL, distag_worker_get_name(group->workers[1 - rank]), "mul", args, 2,
                          NULL, &answer, &err),
              state, "to send");
  /* An op with a sharded tensor is noted all the same. */
  CHECK_OK(distag_ones(DISTAG_FLOAT32, shape, 2, &plain, &err));
  CHECK_OK(distag_tensor_mark_sharding(plain, mesh, "(None, None)", -1, &err));
  CHECK_OK(distag_add(plain, x, &y, &err));
  CHECK_INT(flags_of(y) & DISTAG_TENSOR_SHAPE_ONLY, DISTAG_TENSOR_SHAPE_ONLY);
  distag_value_release(answer);
  distag_context_release(context);
  distag_context_release(joint);
  distag_tensor_release(x);
  distag_tensor_release(y);
  distag_tensor_release(loss);
  distag_tensor_release(plain);
  distag_mesh_release(mesh);
}

int main(void) {
  members group = {0};
  read_and_write();
  ops();
  one_terabyte();
  if (members_start(&group, 2, "shapes") == 0) {
    members_run(&group, 2, on_workers);
    CHECK_INT(members_end(&group), 0);
  }
  return check_end();
}
