#include "capi/support/sharded_model.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const sharded_form kShardedForms[4] = {
    {"data parallel", "('x', None)", {"(None, None)", "(None,)", "(None, None)", "(None,)"}},
    {"tensor parallel", "(None, None)", {"('x', None)", "('x',)", "(None, 'x')", "(None,)"}},
    {"fully sharded", "('x', None)", {"('x', None)", "('x',)", "('x', None)", "('x',)"}},
    {"both", "('x', None)", {"('x', None)", "('x',)", "(None, 'x')", "(None,)"}},
};

distag_tensor *sharded_numbers(const int64_t *shape, size_t ndim, int64_t seed, distag_error *err) {
  double data[64];
  size_t count = 1;
  for (size_t i = 0; i < ndim; ++i) count *= (size_t)shape[i];
  for (size_t i = 0; i < count; ++i) data[i] = sin((double)((int64_t)i * 37 + seed * 101)) / 2;
  distag_tensor *tensor = NULL;
  distag_tensor_create(data, count * sizeof *data, DISTAG_FLOAT64, shape, ndim, &tensor, err);
  return tensor;
}

/* Whether a call has failed: the first failure stays. */
static int failed(const distag_error *err) { return err->code != DISTAG_OK; }

static distag_tensor *make(distag_mesh *mesh, const char *spec, const int64_t *shape, size_t ndim, int64_t seed,
                           distag_error *err) {
  if (failed(err)) return NULL;
  distag_tensor *tensor = sharded_numbers(shape, ndim, seed, err);
  if (!failed(err) && mesh != NULL) distag_tensor_mark_sharding(tensor, mesh, spec, -1, err);
  return tensor;
}

static void step(distag_worker *worker, distag_mesh *mesh, const sharded_form *form, int number,
                 distag_tensor *const parameters[kParameters], distag_optimizer *adam, distag_error *err) {
  static const int64_t in[] = {8, 5};
  static const int64_t out[] = {8, 3};
  distag_tensor *t[6] = {0};
  distag_context *context = NULL;
  t[0] = make(mesh, form->batch, in, 2, 100 + number, err);
  t[1] = make(mesh, form->batch, out, 2, 200 + number, err);
  if (!failed(err)) {
    if (mesh == NULL) {
      distag_context_create(worker, &context, err);
    } else {
      distag_context_create_joint(mesh, &context, err);
    }
  }
  if (!failed(err)) distag_linear(t[0], parameters[0], parameters[1], &t[2], err);
  if (!failed(err)) distag_tanh(t[2], &t[3], err);
  if (!failed(err)) distag_linear(t[3], parameters[2], parameters[3], &t[4], err);
  if (!failed(err)) distag_mse_loss(t[4], t[1], &t[5], err);
  if (!failed(err)) distag_backward(context, &t[5], 1, NULL, err);
  if (!failed(err)) distag_optimizer_step(adam, context, NULL, err);
  for (size_t i = 0; i < 6; ++i) distag_tensor_release(t[i]);
  distag_context_release(context);
}

void sharded_train(distag_worker *worker, distag_mesh *mesh, const sharded_form *form, double weights[kWeights],
                   distag_error *err) {
  static const int64_t shapes[kParameters][2] = {{8, 5}, {8, 0}, {3, 8}, {3, 0}};
  static const size_t ndims[kParameters] = {2, 1, 2, 1};
  distag_tensor *parameters[kParameters] = {0};
  distag_value *values[kParameters];
  distag_optimizer *adam = NULL;
  for (size_t i = 0; i < kParameters; ++i) {
    parameters[i] = make(mesh, form->parameters[i], shapes[i], ndims[i], (int64_t)i + 1, err);
    if (!failed(err)) distag_tensor_set_requires_grad(parameters[i], 1, err);
    values[i] = distag_tensor_as_value(parameters[i]);
  }
  if (!failed(err)) distag_optimizer_create(worker, "adam", values, kParameters, &adam, err);
  for (int number = 0; number < kTrainingSteps && !failed(err); ++number) {
    step(worker, mesh, form, number, parameters, adam, err);
  }
  for (size_t i = 0; i < kParameters; ++i) {
    distag_tensor *whole = NULL;
    if (!failed(err) && mesh != NULL) {
      distag_tensor_gather(parameters[i], -1, 0, &whole, err);
    } else if (!failed(err)) {
      distag_tensor_retain(whole = parameters[i]);
    }
    if (!failed(err)) distag_tensor_copy_data(whole, weights, distag_tensor_get_size(whole), err);
    weights += distag_tensor_get_count(parameters[i]);
    distag_tensor_release(whole);
    distag_tensor_release(parameters[i]);
  }
  distag_optimizer_release(adam);
}

int sharded_train_is_right(distag_worker *worker, distag_mesh *mesh, const sharded_form *form) {
  distag_error err = DISTAG_ERROR_INIT;
  double alone[kWeights] = {0};
  double together[kWeights] = {0};
  sharded_train(NULL, NULL, form, alone, &err);
  sharded_train(worker, mesh, form, together, &err);
  if (failed(&err)) {
    fprintf(stderr, "%s: %s: %s\n", form->name, distag_status_get_name(err.code), err.message);
    return 0;
  }
  for (size_t i = 0; i < kWeights; ++i) {
    if (fabs(together[i] - alone[i]) <= 1e-9) continue;
    fprintf(stderr, "%s: weight %zu is %.17g together and %.17g alone\n", form->name, i, together[i], alone[i]);
    return 0;
  }
  return 1;
}
