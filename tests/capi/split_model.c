/* A model whose layers live on three workers learns as the same model in one process: losses, gradients, parameters. */
#include <stdlib.h>

#include "capi/check.h"
#include "capi/support/group.h"

enum { kLayers = 3, kSteps = 20, kBatch = 32, kPixels = 64, kClasses = 10 };
static const int64_t kWeightShapes[kLayers][4] = {{16, 1, 3, 3}, {64, 256}, {kClasses, 64}};
static const size_t kWeightDims[kLayers] = {4, 2, 2};
static const double kScales[kLayers] = {0.5, 0.1, 0.2};
static const double kTolerance = 1e-5; /* of the largest element */

static distag_error err = DISTAG_ERROR_INIT;

typedef struct layer {
  int index;
  distag_tensor *parameters[2]; /* weight and bias */
} layer;

static layer create_layer(int index) {
  layer made = {index, {NULL, NULL}};
  distag_tensor *random = NULL;
  distag_randn((uint64_t)(100 + index), DISTAG_FLOAT32, kWeightShapes[index], kWeightDims[index], &random, &err);
  distag_mul_scalar(random, kScales[index], &made.parameters[0], &err);
  distag_zeros(DISTAG_FLOAT32, kWeightShapes[index], 1, &made.parameters[1], &err);
  for (int i = 0; i < 2; ++i) distag_tensor_set_requires_grad(made.parameters[i], 1, &err);
  distag_tensor_release(random);
  return made;
}

/* Convolution, relu and pooling; linear and relu; linear. */
static distag_tensor *apply_layer(const layer *self, distag_tensor *x, distag_error *error) {
  const int64_t image[4] = {-1, 1, 8, 8}, flat[2] = {-1, 256}, one[2] = {1, 1}, two[2] = {2, 2}, none[2] = {0, 0};
  distag_tensor *images = NULL, *sum = NULL, *positive = NULL, *pooled = NULL, *y = NULL;
  if (self->index == 0) {
    distag_reshape(x, image, 4, &images, error);
    distag_conv2d(images, self->parameters[0], self->parameters[1], one, one, &sum, error);
    distag_relu(sum, &positive, error);
    distag_max_pool2d(positive, two, two, none, &pooled, error);
    distag_reshape(pooled, flat, 2, &y, error);
  } else {
    distag_linear(x, self->parameters[0], self->parameters[1], &sum, error);
    if (self->index == kLayers - 1) return sum;
    distag_relu(sum, &y, error);
  }
  distag_tensor *const made[] = {images, sum, positive, pooled};
  for (int i = 0; i < 4; ++i) distag_tensor_release(made[i]);
  return y;
}

static distag_status forward(void *own, distag_invocation *invocation, distag_error *error) {
  distag_tensor *x = NULL, *y = NULL;
  distag_invocation_get_tensor(invocation, 0, &x, error);
  y = apply_layer(own, x, error);
  distag_invocation_return(invocation, distag_tensor_as_value(y), error);
  distag_tensor_release(y);
  return error->code;
}

static distag_status parameters(void *own, distag_invocation *invocation, distag_error *error) {
  const layer *self = own;
  distag_value *items[] = {distag_tensor_as_value(self->parameters[0]), distag_tensor_as_value(self->parameters[1])};
  distag_value *list = NULL;
  distag_value_create_list(items, 2, &list, error);
  distag_invocation_return(invocation, list, error);
  distag_value_release(list);
  return error->code;
}

/* The gradients that the context has for this layer, on the worker of this layer. */
static distag_status gradients_of_layer(void *own, distag_invocation *invocation, distag_error *error) {
  const layer *self = own;
  distag_gradients *gradients = NULL;
  distag_value *items[2], *list = NULL;
  distag_get_gradients(distag_invocation_get_context(invocation), &gradients, error);
  for (int i = 0; i < 2; ++i) {
    items[i] = distag_tensor_as_value(distag_gradients_find(gradients, self->parameters[i]));
  }
  distag_value_create_list(items, 2, &list, error);
  distag_invocation_return(invocation, list, error);
  distag_value_release(list);
  distag_gradients_release(gradients);
  return error->code;
}

static void compare(distag_tensor *actual, distag_tensor *expected) {
  static float a[64 * 256], b[64 * 256];
  const size_t count = distag_tensor_get_count(expected);
  double scale = 0, difference = 0;
  if (!CHECK_INT(distag_tensor_get_count(actual), count)) return;
  CHECK_OK(distag_tensor_copy_data(actual, a, sizeof a, &err));
  CHECK_OK(distag_tensor_copy_data(expected, b, sizeof b, &err));
  for (size_t i = 0; i < count; ++i) {
    if (fabs(b[i]) > scale) scale = fabs(b[i]);
    if (!(fabs((double)a[i] - b[i]) <= difference)) difference = fabs((double)a[i] - b[i]);
  }
  CHECK(scale > 0);
  CHECK(difference <= kTolerance * scale);
}

typedef struct model {
  distag_worker *workers[kLayers];
  layer layers[kLayers];
  distag_rref *rrefs[kLayers]; /* of layers 1 and 2 */
  distag_optimizer *optimizer;
} model;

static void start_model(model *self, const char *rendezvous) {
  distag_value *all[4];
  for (int i = 0; i < kLayers; ++i) {
    const distag_worker_options options = group_options(i, kLayers, rendezvous);
    self->layers[i] = create_layer(i);
    CHECK_OK(distag_worker_create(&options, &self->workers[i], &err));
    distag_worker_register(self->workers[i], "forward", forward, &self->layers[i], NULL, NULL, &err);
    distag_worker_register(self->workers[i], "parameters", parameters, &self->layers[i], NULL, NULL, &err);
    distag_worker_register(self->workers[i], "gradients", gradients_of_layer, &self->layers[i], NULL, NULL, &err);
  }
  CHECK_INT(group_start(self->workers, kLayers), 0);
  for (int i = 0; i < 2; ++i) all[i] = distag_tensor_as_value(self->layers[0].parameters[i]);
  for (int i = 1; i < kLayers; ++i) {
    distag_remote(self->workers[0], NULL, i == 1 ? "w1" : "w2", "parameters", NULL, 0, NULL, &self->rrefs[i], &err);
    all[1 + i] = distag_rref_as_value(self->rrefs[i]);
  }
  CHECK_OK(distag_optimizer_create(self->workers[0], "sgd", all, 4, &self->optimizer, &err));
  CHECK_OK(distag_optimizer_set(self->optimizer, "lr", 0.2, &err));
}

static void start_reference(model *self) {
  distag_value *all[2 * kLayers];
  for (int i = 0; i < kLayers; ++i) {
    self->layers[i] = create_layer(i);
    for (int k = 0; k < 2; ++k) all[2 * i + k] = distag_tensor_as_value(self->layers[i].parameters[k]);
  }
  CHECK_OK(distag_optimizer_create(NULL, "sgd", all, 2 * kLayers, &self->optimizer, &err));
  CHECK_OK(distag_optimizer_set(self->optimizer, "lr", 0.2, &err));
}

static void end_model(model *self) {
  distag_optimizer_release(self->optimizer);
  for (int i = 0; i < kLayers; ++i) distag_rref_release(self->rrefs[i]);
  if (self->workers[0] != NULL) CHECK_INT(group_shutdown(self->workers, kLayers), 0);
  for (int i = 0; i < kLayers; ++i) {
    distag_worker_release(self->workers[i]);
    for (int k = 0; k < 2; ++k) distag_tensor_release(self->layers[i].parameters[k]);
  }
}

/* The loss of one forward and backward; without workers, in this process alone. */
static distag_tensor *run_pass(model *self, distag_context *context, distag_tensor *x, distag_tensor *target) {
  distag_tensor *activation = apply_layer(&self->layers[0], x, &err), *loss = NULL;
  for (int i = 1; i < kLayers; ++i) {
    distag_value *arg = distag_tensor_as_value(activation), *answer = NULL;
    distag_tensor *next = NULL;
    if (self->workers[0] == NULL) {
      next = apply_layer(&self->layers[i], activation, &err);
    } else {
      distag_call(self->workers[0], context, i == 1 ? "w1" : "w2", "forward", &arg, 1, NULL, &answer, &err);
      distag_value_get_tensor(answer, &next, &err);
      if (next != NULL) distag_tensor_retain(next);
      distag_value_release(answer);
    }
    distag_tensor_release(activation);
    activation = next;
  }
  distag_cross_entropy(activation, target, &loss, &err);
  CHECK_OK(distag_backward(context, &loss, 1, NULL, &err));
  distag_tensor_release(activation);
  return loss;
}

static void compare_gradients(model *split, distag_context *context, model *whole, distag_context *local) {
  distag_gradients *expected = NULL;
  CHECK_OK(distag_get_gradients(local, &expected, &err));
  for (int i = 0; i < kLayers; ++i) {
    const char *owner = i == 0 ? "w0" : i == 1 ? "w1" : "w2";
    distag_value *answer = NULL;
    CHECK_OK(distag_call(split->workers[0], context, owner, "gradients", NULL, 0, NULL, &answer, &err));
    for (int k = 0; k < 2; ++k) {
      distag_tensor *actual = NULL;
      distag_value_get_tensor(distag_value_get_item(answer, (size_t)k), &actual, &err);
      compare(actual, distag_gradients_find(expected, whole->layers[i].parameters[k]));
    }
    distag_value_release(answer);
  }
  distag_gradients_release(expected);
}

static void step_both(model *split, model *whole, distag_tensor *x, distag_tensor *target) {
  distag_context *context = NULL, *local = NULL;
  distag_tensor *loss, *expected;
  distag_context_create(split->workers[0], &context, &err);
  distag_context_create(NULL, &local, &err);
  loss = run_pass(split, context, x, target);
  expected = run_pass(whole, local, x, target);
  compare(loss, expected);
  compare_gradients(split, context, whole, local);
  CHECK_OK(distag_optimizer_step(split->optimizer, context, NULL, &err));
  CHECK_OK(distag_optimizer_step(whole->optimizer, local, NULL, &err));
  for (int i = 0; i < kLayers; ++i) {
    for (int k = 0; k < 2; ++k) compare(split->layers[i].parameters[k], whole->layers[i].parameters[k]);
  }
  distag_tensor_release(expected);
  distag_tensor_release(loss);
  distag_context_release(local);
  distag_context_release(context);
}

int main(void) {
  const int64_t x_shape[] = {kBatch, kPixels}, target_shape[] = {kBatch};
  int64_t classes[kBatch];
  model split = {0}, whole = {0};
  start_model(&split, "inproc://split_model");
  start_reference(&whole);
  for (int step = 0; step < kSteps && err.code == DISTAG_OK; ++step) {
    distag_tensor *x = NULL, *target = NULL;
    for (int i = 0; i < kBatch; ++i) classes[i] = (i * 7 + step) % kClasses;
    distag_rand((uint64_t)step, DISTAG_FLOAT32, x_shape, 2, &x, &err);
    distag_tensor_create(classes, sizeof classes, DISTAG_INT64, target_shape, 1, &target, &err);
    step_both(&split, &whole, x, target);
    distag_tensor_release(target);
    distag_tensor_release(x);
  }
  end_model(&whole);
  end_model(&split);
  CHECK_INT(err.code, DISTAG_OK);
  return check_end();
}
