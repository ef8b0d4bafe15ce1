/* Ops of the host's own, in a context without a worker: forward, backward, failures, and the end of their data. */
#include "capi/check.h"

typedef struct {
  int forwards, backwards, destroyed;
  int misbehave;
  distag_tensor *kept;
} square_data;

static distag_error err = DISTAG_ERROR_INIT;

/* y0 = x * x, y1 = 3 x */
static distag_status forward(void *user_data, distag_tensor *const *inputs, size_t input_count,
                             distag_tensor **out_outputs, size_t output_count, distag_error *told) {
  square_data *data = (square_data *)user_data;
  ++data->forwards;
  CHECK_INT(input_count, 1);
  CHECK(output_count == 2 && out_outputs[0] == NULL && out_outputs[1] == NULL);
  CHECK(told != NULL && told->code == DISTAG_OK);
  CHECK_INT(distag_tensor_get_requires_grad(inputs[0]), 0); /* nothing in here is recorded */
  if (data->misbehave == 1) return distag_error_set(told, 1042, "square is not in the mood");
  if (data->misbehave == 2) return DISTAG_OK; /* leaves its outputs NULL */
  distag_mul(inputs[0], inputs[0], &out_outputs[0], told);
  distag_mul_scalar(inputs[0], 3, &out_outputs[1], told);
  if (data->misbehave == 3) return 1043; /* fails with outputs written */
  if (data->misbehave == 4) {
    distag_tensor_release(out_outputs[1]);
    distag_tensor_retain(inputs[0]);
    out_outputs[1] = inputs[0];
  }
  if (data->kept == NULL) distag_detach(inputs[0], &data->kept, told);
  return told->code;
}

static distag_status backward(void *user_data, distag_tensor *const *output_gradients, size_t output_count,
                              distag_tensor **out_input_gradients, size_t input_count, distag_error *told) {
  square_data *data = (square_data *)user_data;
  distag_tensor *slope = NULL;
  ++data->backwards;
  CHECK(output_count == 2 && input_count == 1 && out_input_gradients[0] == NULL);
  CHECK(output_gradients[1] == NULL); /* no gradient reached it */
  if (data->misbehave == 5) return distag_error_set(told, 1044, "no slope today");
  distag_mul_scalar(data->kept, 2, &slope, told);
  distag_mul(slope, output_gradients[0], &out_input_gradients[0], told);
  distag_tensor_release(slope);
  return told->code;
}

static void destroy(void *user_data) {
  square_data *data = (square_data *)user_data;
  ++data->destroyed;
  distag_tensor_release(data->kept);
  data->kept = NULL;
}

static distag_custom_op square(square_data *data) {
  distag_custom_op op = DISTAG_CUSTOM_OP_INIT;
  op.name = "square";
  op.forward = forward;
  op.backward = backward;
  op.user_data = data;
  op.destroy = destroy;
  return op;
}

static void good_path(void) {
  square_data data = {0, 0, 0, 0, NULL};
  const distag_custom_op op = square(&data);
  distag_context *context = NULL;
  distag_gradients *gradients = NULL;
  distag_tensor *x = NULL, *y[2] = {NULL, NULL};
  double item = 0;
  CHECK_OK(distag_context_create(NULL, &context, &err));
  CHECK_OK(distag_full(5, DISTAG_FLOAT32, NULL, 0, &x, &err));
  CHECK_OK(distag_tensor_set_requires_grad(x, 1, &err));
  CHECK_OK(distag_apply_custom(&op, &x, 1, y, 2, &err));
  CHECK_INT(distag_tensor_get_requires_grad(y[0]), 1);
  CHECK_OK(distag_tensor_get_item(y[1], &item, &err));
  CHECK_NEAR(item, 15);
  CHECK_OK(distag_backward(context, y, 1, NULL, &err));
  CHECK_OK(distag_get_gradients(context, &gradients, &err));
  CHECK_OK(distag_tensor_get_item(distag_gradients_find(gradients, x), &item, &err));
  CHECK_NEAR(item, 10);
  CHECK_INT(data.forwards, 1);
  CHECK_INT(data.backwards, 1);
  distag_gradients_release(gradients);
  distag_tensor_release(y[0]);
  distag_tensor_release(y[1]);
  distag_tensor_release(x);
  distag_context_release(context);
  CHECK_INT(data.destroyed, 1);
}

static void nothing_to_record(void) {
  square_data data = {0, 0, 0, 0, NULL};
  const distag_custom_op op = square(&data);
  distag_tensor *x = NULL, *y[2] = {NULL, NULL};
  CHECK_OK(distag_full(5, DISTAG_FLOAT32, NULL, 0, &x, &err));
  CHECK_OK(distag_apply_custom(&op, &x, 1, y, 2, &err));
  CHECK_INT(distag_tensor_get_requires_grad(y[0]), 0);
  CHECK_INT(data.destroyed, 1); /* no pass can need it */
  distag_tensor_release(y[0]);
  distag_tensor_release(y[1]);
  distag_tensor_release(x);
}

static void failures(void) {
  static const struct {
    int misbehave;
    distag_status status;
    const char *word;
  } cases[] = {{1, 1042, "mood"},
               {2, DISTAG_E_INVALID_ARGUMENT, "NULL"},
               {3, 1043, "square"},
               {4, DISTAG_E_INVALID_ARGUMENT, "input"}};
  distag_tensor *x = NULL, *y[2] = {NULL, NULL};
  CHECK_OK(distag_full(5, DISTAG_FLOAT32, NULL, 0, &x, &err));
  CHECK_OK(distag_tensor_set_requires_grad(x, 1, &err));
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
    square_data data = {0, 0, 0, cases[i].misbehave, NULL};
    const distag_custom_op op = square(&data);
    CHECK_FAILS(distag_apply_custom(&op, &x, 1, y, 2, &err), cases[i].status, cases[i].word);
    CHECK(y[0] == NULL && y[1] == NULL);
    CHECK_INT(data.destroyed, 1);
  }

  square_data data = {0, 0, 0, 5, NULL}; /* backward fails: the pass does, and may be repeated */
  distag_custom_op op = square(&data);
  distag_context *context = NULL;
  distag_gradients *gradients = NULL;
  CHECK_OK(distag_context_create(NULL, &context, &err));
  CHECK_OK(distag_apply_custom(&op, &x, 1, y, 2, &err));
  CHECK_FAILS(distag_backward(context, y, 1, NULL, &err), 1044, "square");
  CHECK(strstr(err.message, "no slope today") != NULL);
  CHECK_OK(distag_get_gradients(context, &gradients, &err));
  CHECK_INT(distag_gradients_get_count(gradients), 0);
  distag_gradients_release(gradients);
  distag_tensor_release(y[0]);
  distag_tensor_release(y[1]);
  distag_context_release(context);
  CHECK_INT(data.destroyed, 1);

  /* Refused before forward: destroy runs; if the struct has an unknown size, nothing in it is used. */
  op.name = "\xFF";
  data.destroyed = 0;
  CHECK_FAILS(distag_apply_custom(&op, &x, 1, y, 2, &err), DISTAG_E_INVALID_ARGUMENT, "UTF-8");
  op.name = "square";
  op.reserved = 1;
  CHECK_FAILS(distag_apply_custom(&op, &x, 1, y, 2, &err), DISTAG_E_UNSUPPORTED, "reserved");
  op.reserved = 0;
  CHECK_INT(data.destroyed, 2);
  op.struct_size = 8;
  CHECK_FAILS(distag_apply_custom(&op, &x, 1, y, 2, &err), DISTAG_E_INVALID_ARGUMENT, "struct_size");
  CHECK_INT(data.destroyed, 2);
  distag_tensor_release(x);
}

int main(void) {
  good_path();
  nothing_to_record();
  failures();
  return check_end();
}
