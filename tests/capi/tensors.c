/* Tensors: making them over copied and borrowed memory, reading, writing, and what they refuse. */
#include "capi/check.h"

static void count_destroy(void *user_data) { ++*(int *)user_data; }

static void create_and_read(void) {
  const float data[] = {1, 2, 3, 4, 5, 6};
  const int64_t shape[] = {2, 3};
  const int64_t negative[] = {-2, -3};
  float copy[6];
  double item = 1;
  distag_error err = DISTAG_ERROR_INIT;
  distag_tensor *t = NULL;

  CHECK_OK(distag_tensor_create(data, sizeof data, DISTAG_FLOAT32, shape, 2, &t, &err));
  CHECK_INT(distag_tensor_get_dtype(t), DISTAG_FLOAT32);
  CHECK_INT(distag_tensor_get_ndim(t), 2);
  CHECK_INT(distag_tensor_get_shape(t)[1], 3);
  CHECK_INT(distag_tensor_get_strides(t)[0], 3);
  CHECK_INT(distag_tensor_get_count(t), 6);
  CHECK_INT(distag_tensor_get_size(t), 24);
  CHECK(distag_tensor_get_id(t) != 0);
  CHECK_NEAR(((const float *)distag_tensor_get_data(t))[4], 5);
  CHECK_OK(distag_tensor_copy_data(t, copy, sizeof copy, &err));
  CHECK(memcmp(copy, data, sizeof data) == 0);
  CHECK_FAILS(distag_tensor_copy_data(t, copy, sizeof copy - 1, &err), DISTAG_E_INVALID_ARGUMENT, "24");
  CHECK_FAILS(distag_tensor_get_item(t, &item, &err), DISTAG_E_INVALID_ARGUMENT, "6");
  CHECK_NEAR(item, 0);
  distag_tensor_release(t);

  CHECK_OK(distag_tensor_create(data + 3, 4, DISTAG_FLOAT32, NULL, 0, &t, &err));
  CHECK_OK(distag_tensor_get_item(t, &item, &err));
  CHECK_NEAR(item, 4);
  distag_tensor_release(t);

  CHECK_FAILS(distag_tensor_create(data, 20, DISTAG_FLOAT32, shape, 2, &t, &err), DISTAG_E_INVALID_ARGUMENT, "24");
  CHECK(t == NULL);
  CHECK_FAILS(distag_tensor_create(data, 24, DISTAG_FLOAT32, negative, 2, &t, &err), DISTAG_E_INVALID_ARGUMENT, "-2");
  CHECK_FAILS(distag_tensor_create(data, 24, DISTAG_FLOAT32, shape, 17, &t, &err), DISTAG_E_INVALID_ARGUMENT, "16");
  CHECK_FAILS(distag_tensor_create(data, 12, DISTAG_FLOAT16, shape, 2, &t, &err), DISTAG_E_UNSUPPORTED, "float16");
  CHECK_INT(distag_tensor_create(data, 24, 99, shape, 2, &t, &err), DISTAG_E_UNSUPPORTED);
  CHECK_FAILS(distag_tensor_create("\2", 1, DISTAG_BOOL, NULL, 0, &t, &err), DISTAG_E_INVALID_ARGUMENT, "0 or 1");
  CHECK(t == NULL);
}

static void dtypes_and_empty(void) {
  const int64_t none[] = {0, 3};
  distag_error err = DISTAG_ERROR_INIT;
  distag_tensor *t = NULL;
  CHECK_INT(distag_dtype_get_size(DISTAG_FLOAT32), 4);
  CHECK_INT(distag_dtype_get_size(DISTAG_FLOAT64), 8);
  CHECK_INT(distag_dtype_get_size(DISTAG_INT64), 8);
  CHECK_INT(distag_dtype_get_size(DISTAG_BOOL), 1);
  CHECK_INT(distag_dtype_get_size(0), 0);
  CHECK_INT(distag_dtype_get_size(1000), 0);
  CHECK_OK(distag_tensor_create(NULL, 0, DISTAG_INT64, none, 2, &t, &err));
  CHECK_INT(distag_tensor_get_count(t), 0);
  CHECK(distag_tensor_get_data(t) == NULL);
  CHECK_OK(distag_tensor_copy_data(t, NULL, 0, &err));
  CHECK_OK(distag_tensor_write(t, NULL, 0, &err));
  distag_tensor_release(t);
}

static void borrowed(void) {
  double data[] = {1, 2, 3, 4, 5, 6};
  double copy[4];
  const int64_t shape[] = {2, 2};
  const int64_t strides[] = {1, 3}; /* columns of two rows */
  const int64_t wide[] = {3, 3};
  int destroyed = 0;
  distag_error err = DISTAG_ERROR_INIT;
  distag_tensor *t = NULL, *view = NULL;

  CHECK_OK(distag_tensor_create_borrowed(data, sizeof data, DISTAG_FLOAT64, shape, strides, 2, &destroyed,
                                         count_destroy, &t, &err));
  CHECK(distag_tensor_get_data(t) == data);
  CHECK_OK(distag_tensor_copy_data(t, copy, sizeof copy, &err));
  CHECK_NEAR(copy[1], 4);
  CHECK_NEAR(copy[2], 2);
  CHECK_FAILS(distag_tensor_write(t, copy, sizeof copy, &err), DISTAG_E_INVALID_STATE, "borrow");
  CHECK_FAILS(distag_tensor_assign(t, t, &err), DISTAG_E_INVALID_STATE, "borrow");
  CHECK_FAILS(distag_tensor_add_scaled(t, t, 1, &err), DISTAG_E_INVALID_STATE, "borrow");
  CHECK_OK(distag_transpose(t, 0, 1, &view, &err));
  distag_tensor_release(t);
  CHECK_INT(destroyed, 0); /* the view needs it */
  distag_tensor_release(view);
  CHECK_INT(destroyed, 1);

  /* Row-major without strides, and without a destroy. */
  CHECK_OK(distag_tensor_create_borrowed(data, 32, DISTAG_FLOAT64, shape, NULL, 2, NULL, NULL, &t, &err));
  CHECK_INT(distag_tensor_get_strides(t)[0], 2);
  distag_tensor_release(t);

  /* destroy runs exactly once on every path, also when the call fails. */
  destroyed = 0;
  CHECK_FAILS(distag_tensor_create_borrowed(data, sizeof data, DISTAG_FLOAT64, wide, NULL, 2, &destroyed, count_destroy,
                                            &t, &err),
              DISTAG_E_INVALID_ARGUMENT, "outside");
  CHECK_INT(destroyed, 1);
  CHECK_FAILS(distag_tensor_create_borrowed((char *)data + 1, 16, DISTAG_FLOAT64, shape, NULL, 1, &destroyed,
                                            count_destroy, &t, &err),
              DISTAG_E_INVALID_ARGUMENT, "aligned");
  CHECK_FAILS(distag_tensor_create_borrowed(data, 8, DISTAG_INT8, shape, NULL, 2, &destroyed, count_destroy, &t, &err),
              DISTAG_E_UNSUPPORTED, "int8");
  CHECK_FAILS(
      distag_tensor_create_borrowed(NULL, 8, DISTAG_FLOAT64, shape, NULL, 0, &destroyed, count_destroy, &t, &err),
      DISTAG_E_INVALID_ARGUMENT, "data");
  CHECK_FAILS(
      distag_tensor_create_borrowed(data, 8, DISTAG_FLOAT64, shape, NULL, 0, &destroyed, count_destroy, NULL, &err),
      DISTAG_E_INVALID_ARGUMENT, "out_tensor");
  CHECK_INT(destroyed, 5);
  CHECK(t == NULL);
}

static double item_of(distag_tensor *t, int64_t index) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_tensor *one = NULL;
  double item = -1;
  distag_slice(t, 0, index, index + 1, 1, &one, &err);
  distag_tensor_get_item(one, &item, &err);
  distag_tensor_release(one);
  CHECK_INT(err.code, DISTAG_OK);
  return item;
}

static void writing(void) {
  const float data[] = {1, 2, 3, 4};
  const int64_t four[] = {4};
  const int64_t square[] = {2, 2};
  float copy[4];
  distag_error err = DISTAG_ERROR_INIT;
  distag_tensor *t = NULL, *view = NULL, *turned = NULL, *source = NULL, *kept = NULL;

  CHECK_OK(distag_zeros(DISTAG_FLOAT32, four, 1, &t, &err));
  CHECK_OK(distag_reshape(t, square, 2, &view, &err));
  CHECK_OK(distag_clone(t, &kept, &err));
  const uint64_t id = distag_tensor_get_id(t);
  CHECK_OK(distag_tensor_write(t, data, sizeof data, &err));
  CHECK_INT(distag_tensor_get_id(t), id);
  CHECK_OK(distag_tensor_copy_data(view, copy, sizeof copy, &err)); /* a view follows */
  CHECK_NEAR(copy[3], 4);
  CHECK_NEAR(item_of(kept, 3), 0); /* a clone does not */
  CHECK_FAILS(distag_tensor_write(t, data, 12, &err), DISTAG_E_INVALID_ARGUMENT, "16");

  /* Row-major elements go into strides. */
  CHECK_OK(distag_transpose(view, 0, 1, &turned, &err));
  CHECK_OK(distag_tensor_write(turned, data, sizeof data, &err));
  CHECK_NEAR(item_of(t, 1), 3);
  CHECK_NEAR(item_of(t, 2), 2);

  CHECK_OK(distag_full(10, DISTAG_INT64, NULL, 0, &source, &err)); /* cast and broadcast */
  CHECK_OK(distag_tensor_assign(t, source, &err));
  CHECK_NEAR(item_of(t, 2), 10);
  CHECK_OK(distag_tensor_add_scaled(t, source, -0.25, &err));
  CHECK_NEAR(item_of(t, 3), 7.5);
  CHECK_INT(distag_tensor_assign(source, t, &err), DISTAG_E_INVALID_ARGUMENT); /* four do not fit one */
  CHECK_INT(distag_tensor_add_scaled(source, t, 1, &err), DISTAG_E_INVALID_ARGUMENT);
  distag_tensor_release(source);
  distag_tensor_release(turned);
  distag_tensor_release(view);
  distag_tensor_release(kept);
  distag_tensor_release(t);
}

static void requires_grad(void) {
  const int64_t two[] = {2};
  const float data[] = {1, 2};
  distag_error err = DISTAG_ERROR_INIT;
  distag_tensor *t = NULL, *y = NULL, *whole = NULL, *twin = NULL;

  CHECK_OK(distag_ones(DISTAG_FLOAT32, two, 1, &t, &err));
  CHECK_INT(distag_tensor_get_requires_grad(t), 0);
  CHECK_OK(distag_tensor_set_requires_grad(t, 1, &err));
  CHECK_INT(distag_tensor_get_requires_grad(t), 1);
  CHECK_FAILS(distag_tensor_set_requires_grad(t, 2, &err), DISTAG_E_INVALID_ARGUMENT, "requires_grad");
  CHECK_OK(distag_tensor_write(t, data, sizeof data, &err)); /* a leaf may change */
  CHECK_INT(distag_tensor_get_requires_grad(t), 1);
  CHECK_OK(distag_neg(t, &y, &err));
  CHECK_INT(distag_tensor_get_requires_grad(y), 1);
  CHECK_INT(distag_tensor_set_requires_grad(y, 0, &err), DISTAG_E_INVALID_STATE);
  CHECK_FAILS(distag_tensor_write(y, data, sizeof data, &err), DISTAG_E_INVALID_STATE, "grad");
  CHECK_INT(distag_tensor_assign(y, t, &err), DISTAG_E_INVALID_STATE);
  CHECK_INT(distag_tensor_add_scaled(y, t, 1, &err), DISTAG_E_INVALID_STATE);
  CHECK_OK(distag_detach(y, &twin, &err));
  CHECK_INT(distag_tensor_get_requires_grad(twin), 0);
  CHECK_OK(distag_tensor_set_requires_grad(t, 0, &err));
  CHECK_INT(distag_tensor_get_requires_grad(t), 0);
  CHECK_OK(distag_ones(DISTAG_INT64, two, 1, &whole, &err));
  CHECK_INT(distag_tensor_set_requires_grad(whole, 1, &err), DISTAG_E_INVALID_ARGUMENT);
  distag_tensor_release(t);
  distag_tensor_release(y);
  distag_tensor_release(twin);
  distag_tensor_release(whole);
}

int main(void) {
  create_and_read();
  dtypes_and_empty();
  borrowed();
  writing();
  requires_grad();
  return check_end();
}
