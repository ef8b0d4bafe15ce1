/* Every op on its good path, its failures, distag_apply, and the list of ops. */
#include "capi/check.h"

static distag_error err = DISTAG_ERROR_INIT;
static distag_tensor *y;

static distag_tensor *make(const double *data, size_t count, const int64_t *shape, size_t ndim) {
  distag_tensor *t = NULL;
  CHECK_OK(distag_tensor_create(data, count * sizeof *data, DISTAG_FLOAT64, shape, ndim, &t, &err));
  return t;
}

static distag_tensor *vector(const double *data, int64_t count) { return make(data, (size_t)count, &count, 1); }

/* Compares all elements of y as float64, and releases it. */
static void expect(const double *expected, size_t count, const char *what) {
  double copy[64];
  distag_tensor *wide = NULL;
  if (!CHECK_OK(distag_cast(y, DISTAG_FLOAT64, &wide, &err))) return;
  if (check_int((int64_t)distag_tensor_get_count(y), (int64_t)count, what, 0, "count") && count <= 64) {
    CHECK_OK(distag_tensor_copy_data(wide, copy, sizeof copy, &err));
    for (size_t i = 0; i < count; ++i) check_near(copy[i], expected[i], what, (int)i, "element");
  }
  distag_tensor_release(wide);
  distag_tensor_release(y);
  y = NULL;
}

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define EXPECT(call, ...)                                         \
  do {                                                            \
    const double expected[] = {__VA_ARGS__};                      \
    if (CHECK_OK(call)) expect(expected, COUNT(expected), #call); \
  } while (0)

static void sources(void) {
  const int64_t two[] = {2};
  distag_tensor *again = NULL;
  double a[2], b[2];
  EXPECT(distag_zeros(DISTAG_FLOAT32, two, 1, &y, &err), 0, 0);
  EXPECT(distag_ones(DISTAG_INT64, two, 1, &y, &err), 1, 1);
  EXPECT(distag_full(2.5, DISTAG_FLOAT64, two, 1, &y, &err), 2.5, 2.5);
  EXPECT(distag_arange(1, 2, 0.5, DISTAG_FLOAT32, &y, &err), 1, 1.5);
  EXPECT(distag_arange(3, 0, -1, DISTAG_INT64, &y, &err), 3, 2, 1);
  CHECK_INT(distag_arange(0, 1, 0, DISTAG_FLOAT32, &y, &err), DISTAG_E_INVALID_ARGUMENT);
  CHECK_INT(distag_zeros(DISTAG_INT8, two, 1, &y, &err), DISTAG_E_UNSUPPORTED);
  CHECK_OK(distag_rand(7, DISTAG_FLOAT64, two, 1, &y, &err));
  CHECK_OK(distag_rand(7, DISTAG_FLOAT64, two, 1, &again, &err));
  CHECK_OK(distag_tensor_copy_data(y, a, sizeof a, &err));
  CHECK_OK(distag_tensor_copy_data(again, b, sizeof b, &err));
  CHECK(memcmp(a, b, sizeof a) == 0 && a[0] >= 0 && a[0] < 1 && fabs(a[0] - a[1]) > 0);
  distag_tensor_release(y);
  distag_tensor_release(again);
  CHECK_OK(distag_randn(UINT64_MAX, DISTAG_FLOAT32, two, 1, &y, &err));
  distag_tensor_release(y);
}

static void elementwise(void) {
  const double numbers[] = {1, 4};
  const double others[] = {2, 2};
  distag_tensor *a = vector(numbers, 2), *b = vector(others, 2);
  EXPECT(distag_add(a, b, &y, &err), 3, 6);
  EXPECT(distag_sub(a, b, &y, &err), -1, 2);
  EXPECT(distag_mul(a, b, &y, &err), 2, 8);
  EXPECT(distag_div(a, b, &y, &err), 0.5, 2);
  EXPECT(distag_maximum(a, b, &y, &err), 2, 4);
  EXPECT(distag_eq(a, a, &y, &err), 1, 1);
  EXPECT(distag_add_scalar(a, 0.5, &y, &err), 1.5, 4.5);
  EXPECT(distag_mul_scalar(a, -2, &y, &err), -2, -8);
  EXPECT(distag_neg(a, &y, &err), -1, -4);
  EXPECT(distag_exp(a, &y, &err), exp(1), exp(4));
  EXPECT(distag_log(a, &y, &err), 0, log(4));
  EXPECT(distag_sqrt(a, &y, &err), 1, 2);
  EXPECT(distag_tanh(a, &y, &err), tanh(1), tanh(4));
  EXPECT(distag_sigmoid(a, &y, &err), 1 / (1 + exp(-1)), 1 / (1 + exp(-4)));
  EXPECT(distag_relu(a, &y, &err), 1, 4);
  EXPECT(distag_clone(a, &y, &err), 1, 4);
  EXPECT(distag_detach(a, &y, &err), 1, 4);
  EXPECT(distag_cast(a, DISTAG_BOOL, &y, &err), 1, 1);
  CHECK_INT(distag_cast(a, DISTAG_UINT8, &y, &err), DISTAG_E_UNSUPPORTED);
  CHECK_OK(distag_cast(a, DISTAG_INT64, &y, &err));
  distag_tensor *z = NULL;
  CHECK_INT(distag_add_scalar(y, 0.5, &z, &err), DISTAG_E_INVALID_ARGUMENT);
  CHECK(z == NULL);
  distag_tensor_release(y);
  distag_tensor_release(a);
  distag_tensor_release(b);
}

static void reductions_and_layouts(void) {
  const double numbers[] = {1, 2, 3, 4, 5, 6};
  const int64_t shape[] = {2, 3};
  const int64_t turned[] = {3, -1};
  const int64_t last[] = {-1};
  distag_tensor *a = make(numbers, 6, shape, 2);
  EXPECT(distag_sum(a, NULL, 0, 0, &y, &err), 21);
  EXPECT(distag_sum(a, last, 1, 0, &y, &err), 6, 15);
  EXPECT(distag_mean(a, last, 1, 1, &y, &err), 2, 5);
  EXPECT(distag_max(a, last, 1, 0, &y, &err), 3, 6);
  EXPECT(distag_argmax(a, 0, &y, &err), 1, 1, 1);
  EXPECT(distag_transpose(a, 0, 1, &y, &err), 1, 4, 2, 5, 3, 6);
  EXPECT(distag_reshape(a, turned, 2, &y, &err), 1, 2, 3, 4, 5, 6);
  EXPECT(distag_slice(a, 1, 0, 3, 2, &y, &err), 1, 3, 4, 6);
  distag_tensor *both[2];
  both[0] = both[1] = a;
  EXPECT(distag_concat(both, 2, 1, &y, &err), 1, 2, 3, 1, 2, 3, 4, 5, 6, 4, 5, 6);
  CHECK_FAILS(distag_sum(a, NULL, 0, 2, &y, &err), DISTAG_E_INVALID_ARGUMENT, "keepdim");
  CHECK_FAILS(distag_softmax(a, 2, &y, &err), DISTAG_E_INVALID_ARGUMENT, "softmax");
  CHECK_INT(distag_reshape(a, shape, 1, &y, &err), DISTAG_E_INVALID_ARGUMENT);
  CHECK_INT(distag_transpose(a, 0, 5, &y, &err), DISTAG_E_INVALID_ARGUMENT);
  CHECK_INT(distag_concat(NULL, 0, 0, &y, &err), DISTAG_E_INVALID_ARGUMENT);
  distag_tensor_release(a);
}

static void layers(void) {
  const double numbers[] = {1, 2, 3, 4};
  const double ones[] = {1, 1};
  const double classes[] = {0, 1};
  const int64_t square[] = {2, 2}, image[] = {1, 1, 2, 2};
  const int64_t unit[] = {1, 1}, none[] = {0, 0}, two[] = {2, 2};
  distag_tensor *a = make(numbers, 4, square, 2), *v = vector(ones, 2), *c = vector(classes, 2);
  distag_tensor *targets = NULL, *x = NULL;
  EXPECT(distag_matmul(a, a, &y, &err), 7, 10, 15, 22);
  EXPECT(distag_matmul(a, v, &y, &err), 3, 7);
  EXPECT(distag_linear(a, a, v, &y, &err), 6, 12, 12, 26);
  EXPECT(distag_linear(a, a, NULL, &y, &err), 5, 11, 11, 25);
  const double s = 1 / (1 + exp(1));
  EXPECT(distag_softmax(a, -1, &y, &err), s, 1 - s, s, 1 - s);
  EXPECT(distag_log_softmax(a, -1, &y, &err), log(s), log(1 - s), log(s), log(1 - s));
  CHECK_OK(distag_cast(c, DISTAG_INT64, &targets, &err));
  EXPECT(distag_cross_entropy(a, targets, &y, &err), -(log(s) + log(1 - s)) / 2);
  EXPECT(distag_mse_loss(v, c, &y, &err), 0.5);
  CHECK_OK(distag_reshape(a, image, 4, &x, &err));
  EXPECT(distag_conv2d(x, x, NULL, unit, none, &y, &err), 30);
  distag_tensor *bias = NULL;
  CHECK_OK(distag_slice(v, 0, 0, 1, 1, &bias, &err));
  EXPECT(distag_conv2d(x, x, bias, unit, none, &y, &err), 31);
  distag_tensor_release(bias);
  EXPECT(distag_max_pool2d(x, two, two, none, &y, &err), 4);
  CHECK_OK(distag_zeros(DISTAG_FLOAT64, NULL, 0, &y, &err));
  distag_tensor *z = NULL;
  CHECK_FAILS(distag_matmul(y, a, &z, &err), DISTAG_E_INVALID_ARGUMENT, "matmul");
  CHECK(z == NULL);
  distag_tensor_release(y);
  CHECK_INT(distag_conv2d(a, a, NULL, unit, none, &y, &err), DISTAG_E_INVALID_ARGUMENT);
  CHECK_INT(distag_max_pool2d(x, none, two, none, &y, &err), DISTAG_E_INVALID_ARGUMENT);
  CHECK_INT(distag_cross_entropy(a, c, &y, &err), DISTAG_E_INVALID_ARGUMENT);
  distag_tensor_release(a);
  distag_tensor_release(v);
  distag_tensor_release(c);
  distag_tensor_release(targets);
  distag_tensor_release(x);
}

static void apply_by_name(void) {
  const double numbers[] = {1, 2, 3, 4};
  const int64_t square[] = {2, 2};
  const char *const keys[] = {"dim"};
  const char *const wrong_keys[] = {"no_such"};
  distag_tensor *a = make(numbers, 4, square, 2), *two[2] = {NULL, NULL};
  distag_tensor *const linear[] = {a, a, NULL};
  distag_value *zero = NULL, *attributes = NULL, *wrong = NULL;
  CHECK_OK(distag_value_create_int64(0, &zero, &err));
  CHECK_OK(distag_value_create_map(keys, &zero, 1, &attributes, &err));
  CHECK_OK(distag_value_create_map(wrong_keys, &zero, 1, &wrong, &err));
  EXPECT(distag_apply("argmax", &a, 1, attributes, 0, &y, 1, &err), 1, 1);
  EXPECT(distag_apply("neg", &a, 1, NULL, 0, &y, 1, &err), -1, -2, -3, -4);
  EXPECT(distag_apply("linear", linear, 3, NULL, 0, &y, 1, &err), 5, 11, 11, 25); /* a NULL the op allows */
  CHECK_OK(distag_tensor_set_requires_grad(a, 1, &err));
  CHECK_OK(distag_apply("neg", &a, 1, NULL, 0, &y, 1, &err));
  CHECK_INT(distag_tensor_get_requires_grad(y), 1);
  distag_tensor_release(y);
  CHECK_OK(distag_apply("neg", &a, 1, NULL, DISTAG_APPLY_NO_GRAD, &y, 1, &err));
  CHECK_INT(distag_tensor_get_requires_grad(y), 0);
  distag_tensor_release(y);
  CHECK_FAILS(distag_apply("no_such", &a, 1, NULL, 0, &y, 1, &err), DISTAG_E_NOT_FOUND, "no_such");
  CHECK_FAILS(distag_apply("argmax", &a, 1, wrong, 0, &y, 1, &err), DISTAG_E_NOT_FOUND, "no_such");
  CHECK_FAILS(distag_apply("argmax", &a, 1, zero, 0, &y, 1, &err), DISTAG_E_INVALID_ARGUMENT, "map");
  CHECK_FAILS(distag_apply("neg", linear, 2, NULL, 0, &y, 1, &err), DISTAG_E_INVALID_ARGUMENT, "neg");
  CHECK_FAILS(distag_apply("neg", &a, 1, NULL, 2, &y, 1, &err), DISTAG_E_UNSUPPORTED, "flags");
  two[0] = two[1] = a;
  CHECK_FAILS(distag_apply("neg", &a, 1, NULL, 0, two, 2, &err), DISTAG_E_INVALID_ARGUMENT, "outputs");
  CHECK(two[0] == NULL && two[1] == NULL);
  const char *const shape_keys[] = {"shape"};
  distag_value *negative = NULL, *shape = NULL, *shapes = NULL;
  CHECK_OK(distag_value_create_int64(-2, &negative, &err));
  CHECK_OK(distag_value_create_list(&negative, 1, &shape, &err));
  CHECK_OK(distag_value_create_map(shape_keys, &shape, 1, &shapes, &err));
  CHECK_FAILS(distag_apply("ones", NULL, 0, shapes, 0, &y, 1, &err), DISTAG_E_INVALID_ARGUMENT, "ones: shape");
  CHECK_FAILS(distag_apply("expand", &a, 1, shapes, 0, &y, 1, &err), DISTAG_E_INVALID_ARGUMENT, "expand: shape");
  distag_value_release(negative);
  distag_value_release(shape);
  distag_value_release(shapes);
  distag_value_release(zero);
  distag_value_release(attributes);
  distag_value_release(wrong);
  distag_tensor_release(a);
}

static void list_of_ops(void) {
  distag_op_info info = DISTAG_OP_INFO_INIT;
  int found = 0;
  CHECK(distag_get_op_count() >= 38);
  for (size_t i = 0; i < distag_get_op_count(); ++i) {
    CHECK_OK(distag_get_op(i, &info, &err));
    CHECK(info.name != NULL && strncmp(info.signature, info.name, strlen(info.name)) == 0);
    CHECK(info.min_inputs <= info.max_inputs);
    CHECK(info.summary != NULL && info.summary[0] != '\0' && info.summary[strlen(info.summary) - 1] == '.');
    for (uint32_t k = 0; k < info.attribute_count; ++k) CHECK(strstr(info.signature, info.attribute_names[k]) != NULL);
    if (strcmp(info.name, "linear") != 0) continue;
    found = 1;
    CHECK_INT(info.min_inputs, 2);
    CHECK_INT(info.max_inputs, 3);
    CHECK_INT(info.struct_size, sizeof info);
  }
  CHECK(found);
  CHECK_FAILS(distag_get_op(distag_get_op_count(), &info, &err), DISTAG_E_NOT_FOUND, "no op");
  CHECK(info.name == NULL && info.signature == NULL);
}

/* A host of 0.1 has a smaller struct, of which all fields are filled; a struct of another size is not used. */
static void op_info_of_before(void) {
  distag_op_info info = DISTAG_OP_INFO_INIT;
  info.struct_size = offsetof(distag_op_info, summary);
  info.summary = "the host's own";
  CHECK_OK(distag_get_op(0, &info, &err));
  CHECK(info.signature != NULL && info.struct_size == offsetof(distag_op_info, summary));
  CHECK_TEXT(info.summary, "the host's own");
  CHECK_FAILS(distag_get_op(distag_get_op_count(), &info, &err), DISTAG_E_NOT_FOUND, "no op");
  CHECK(info.signature == NULL);
  CHECK_TEXT(info.summary, "the host's own");
  info.name = "untouched";
  info.struct_size += 4;
  CHECK_FAILS(distag_get_op(0, &info, &err), DISTAG_E_INVALID_ARGUMENT, "distag_op_info");
  info.struct_size = offsetof(distag_op_info, signature);
  CHECK_FAILS(distag_get_op(0, &info, &err), DISTAG_E_INVALID_ARGUMENT, "distag_op_info");
  CHECK_TEXT(info.name, "untouched");
}

/* The weight of classes has no gradient: a weight that requires one is refused, as silence would pass for zero. */
static void weight_of_classes(void) {
  const float numbers[] = {1, 2, 3, 4};
  const int64_t classes[] = {0, 1};
  const int64_t shape[] = {2, 2};
  distag_tensor *inputs[3] = {NULL, NULL, NULL}, *loss = NULL;
  CHECK_OK(distag_tensor_create(numbers, sizeof numbers, DISTAG_FLOAT32, shape, 2, &inputs[0], &err));
  CHECK_OK(distag_tensor_create(classes, sizeof classes, DISTAG_INT64, shape, 1, &inputs[1], &err));
  CHECK_OK(distag_ones(DISTAG_FLOAT32, shape, 1, &inputs[2], &err));
  CHECK_OK(distag_tensor_set_requires_grad(inputs[2], 1, &err));
  const char *losses[] = {"cross_entropy", "nll_loss"};
  for (int i = 0; i < 2; ++i) {
    CHECK_FAILS(distag_apply(losses[i], inputs, 3, NULL, 0, &loss, 1, &err), DISTAG_E_INVALID_ARGUMENT, "input 2");
    CHECK(loss == NULL && strstr(err.message, "detach") != NULL);
    CHECK_OK(distag_apply(losses[i], inputs, 3, NULL, DISTAG_APPLY_NO_GRAD, &loss, 1, &err));
    distag_tensor_release(loss);
  }
  for (int i = 0; i < 3; ++i) distag_tensor_release(inputs[i]);
}

int main(void) {
  sources();
  elementwise();
  reductions_and_layouts();
  layers();
  apply_by_name();
  weight_of_classes();
  list_of_ops();
  op_info_of_before();
  return check_end();
}
