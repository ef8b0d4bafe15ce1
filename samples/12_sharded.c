/* A program, run by every worker of a mesh, trains a model whose tensors are cut over them. The specs decide what each
 * worker holds and what is sent; the program and its numbers stay the same.
 *
 *   cc 12_sharded.c $(pkg-config --cflags --libs distag) -o sharded && distag run -n 4 ./sharded fully
 *
 * data: each worker has all weights and a part of the batch; model: a part of the weights and all of the batch; fully:
 * a part of both, weights are gathered for the moment of their use; both: a grid of 2 by n / 2 workers. */
#include <distag.h>
#include <stdio.h>
#include <string.h>

enum { kSteps = 100, kParameters = 4 };

typedef struct plan {
  const char *name;
  int64_t mesh[2]; /* sizes of "data" and "model"; -1: the rest of the workers */
  const char *batch;
  const char *parameters[kParameters]; /* weights are [out, in] */
} plan;

static const plan kPlans[] = {
    {"data", {-1, 1}, "('data', None)", {"(None, None)", "(None,)", "(None, None)", "(None,)"}},
    {"model", {1, -1}, "(None, None)", {"('model', None)", "('model',)", "(None, 'model')", "(None,)"}},
    {"fully", {-1, 1}, "('data', None)", {"('data', None)", "('data',)", "('data', None)", "('data',)"}},
    {"both", {2, -1}, "('data', None)", {"('model', None)", "('model',)", "(None, 'model')", "(None,)"}},
};

static const int64_t kShapes[kParameters][2] = {{32, 8}, {32, 0}, {4, 32}, {4, 0}};
static const size_t kDims[kParameters] = {2, 1, 2, 1};

/* The same random numbers on every worker, of which each keeps its part. */
static distag_tensor *make(distag_mesh *mesh, const char *spec, uint64_t seed, const int64_t *shape, size_t ndim,
                           distag_error *err) {
  distag_tensor *numbers = NULL, *scaled = NULL;
  distag_randn(seed, DISTAG_FLOAT64, shape, ndim, &numbers, err);
  distag_mul_scalar(numbers, 0.3, &scaled, err);
  distag_tensor_mark_sharding(scaled, mesh, spec, -1, err);
  distag_tensor_release(numbers);
  return scaled;
}

static double step(distag_mesh *mesh, distag_tensor *x, distag_tensor *y, distag_tensor *const *parameters,
                   distag_optimizer *adam, distag_error *err) {
  distag_tensor *hidden = NULL, *active = NULL, *out = NULL, *loss = NULL, *whole = NULL;
  distag_context *context = NULL;
  double value = 0;
  distag_context_create_joint(mesh, &context, err); /* its backward pass is one of all workers */
  distag_linear(x, parameters[0], parameters[1], &hidden, err);
  distag_tanh(hidden, &active, err);
  distag_linear(active, parameters[2], parameters[3], &out, err);
  distag_mse_loss(out, y, &loss, err);
  distag_backward(context, &loss, 1, NULL, err);
  distag_optimizer_step(adam, context, NULL, err);
  distag_tensor_gather(loss, -1, DISTAG_FOREVER, &whole, err);
  distag_tensor_get_item(whole, &value, err);
  distag_tensor *const made[] = {hidden, active, out, loss, whole};
  for (int i = 0; i < 5; ++i) distag_tensor_release(made[i]);
  distag_context_release(context);
  return value;
}

static void train(distag_worker *worker, const plan *chosen, distag_error *err) {
  static const int64_t in[] = {64, 8}, out[] = {64, 4};
  const char *const axes[] = {"data", "model"};
  const int is_first = distag_worker_get_rank(worker) == 0;
  distag_mesh *mesh = NULL;
  distag_mesh_stats stats = DISTAG_MESH_STATS_INIT;
  distag_tensor *parameters[kParameters] = {NULL};
  distag_value *values[kParameters];
  distag_optimizer *adam = NULL;
  distag_mesh_create(worker, NULL, 0, chosen->mesh, axes, 2, NULL, &mesh, err);
  distag_tensor *x = make(mesh, chosen->batch, 1, in, 2, err), *y = make(mesh, chosen->batch, 2, out, 2, err);
  for (size_t i = 0; i < kParameters; ++i) {
    parameters[i] = make(mesh, chosen->parameters[i], 3 + i, kShapes[i], kDims[i], err);
    distag_tensor_set_requires_grad(parameters[i], 1, err);
    values[i] = distag_tensor_as_value(parameters[i]);
  }
  distag_optimizer_create(worker, "adam", values, kParameters, &adam, err);
  distag_optimizer_set(adam, "lr", 0.01, err);
  for (int i = 1; i <= kSteps && err->code == DISTAG_OK; ++i) {
    const double loss = step(mesh, x, y, parameters, adam, err);
    if (is_first && (i == 1 || i == kSteps)) printf("step %3d   loss %.9f\n", i, loss);
  }
  distag_mesh_get_stats(mesh, &stats, err);
  if (is_first && err->code == DISTAG_OK) {
    printf("%s: the first weight lies as %s; a step has %llu all_reduces, %llu all_gathers, %llu reduce_scatters\n",
           chosen->name, distag_tensor_get_spec(parameters[0]), (unsigned long long)stats.all_reduces / kSteps,
           (unsigned long long)stats.all_gathers / kSteps, (unsigned long long)stats.reduce_scatters / kSteps);
  }
  distag_optimizer_release(adam);
  for (size_t i = 0; i < kParameters; ++i) distag_tensor_release(parameters[i]);
  distag_tensor_release(y);
  distag_tensor_release(x);
  distag_mesh_release(mesh);
}

int main(int argc, char **argv) {
  const plan *chosen = &kPlans[0];
  distag_worker *worker = NULL;
  distag_error err = DISTAG_ERROR_INIT;
  for (size_t i = 0; i < sizeof kPlans / sizeof *kPlans; ++i) {
    if (argc > 1 && strcmp(argv[1], kPlans[i].name) == 0) chosen = &kPlans[i];
  }
  distag_worker_create(NULL, &worker, &err); /* rank, size and address come from distag run */
  distag_worker_start(worker, 30 * DISTAG_SECOND, &err);
  train(worker, chosen, &err);
  distag_worker_shutdown(worker, 30 * DISTAG_SECOND, NULL, &err);
  distag_worker_release(worker);
  if (err.code != DISTAG_OK) fprintf(stderr, "%s: %s\n", distag_status_get_name(err.code), err.message);
  return err.code != DISTAG_OK;
}
