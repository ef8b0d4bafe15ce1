/* A driver trains a model whose layers lie on two meshes: its functions compute with sharded tensors and give back
 * parts. Micro-batches go through on lines of their own; the weights end as in one process. */
#include "capi/check.h"
#include "capi/support/members.h"
#include "capi/support/sharded_model.h"

enum { kStages = 2, kMembers = 2, kBatches = 2, kSteps = 8, kRows = 6, kIn = 5, kHidden = 8, kOut = 3 };

static const int64_t kInputShape[] = {kRows, kIn};
static const int64_t kWeightShapes[kStages][2] = {{kIn, kHidden}, {kHidden, kOut}};
static const char *const kWeightSpecs[kStages] = {"(None, 'x')", "('x', None)"};
static const char *const kPartSpecs[kStages] = {"(None, 'x')", "('x', None)"};
static const int64_t kPartDims[kStages] = {1, 0}; /* along which the parts make up the whole */

/* A member of a stage. */
typedef struct place {
  distag_mesh *mesh;
  distag_tensor *weight;
  int stage;
} place;

static members group; /* rank 0 drives; 1 and 2 are the first stage, 3 and 4 the second */
static place places[1 + kStages * kMembers];

/* Computes the same on a mesh as alone. */
static distag_status compute(distag_tensor *x, distag_tensor *weight, distag_tensor **out_y, distag_error *e) {
  distag_tensor *product = NULL;
  if (distag_matmul(x, weight, &product, e) == DISTAG_OK) distag_tanh(product, out_y, e);
  distag_tensor_release(product);
  return e->code;
}

static distag_status compute_part(void *user_data, distag_invocation *invocation, distag_error *e) {
  place *own = user_data;
  distag_tensor *given = NULL, *x = NULL, *y = NULL, *placed = NULL, *part = NULL;
  distag_mesh *line = NULL;
  int64_t batch = 0;
  char name[32];
  distag_value_get_int64(distag_invocation_get_arg(invocation, 1), &batch, e);
  snprintf(name, sizeof name, "batch %d", (int)batch);
  if (distag_invocation_get_tensor(invocation, 0, &given, e) == DISTAG_OK &&
      distag_mesh_open_line(own->mesh, name, &line, e) == DISTAG_OK &&
      distag_tensor_from_local(line, given, "(None, None)", distag_tensor_get_shape(given), 2, "(None, None) sum('x')",
                               &x, e) == DISTAG_OK &&
      compute(x, own->weight, &y, e) == DISTAG_OK &&
      distag_redistribute(y, kPartSpecs[own->stage], 0, &placed, e) == DISTAG_OK &&
      distag_tensor_to_local(placed, NULL, &part, e) == DISTAG_OK) {
    distag_invocation_return(invocation, distag_tensor_as_value(part), e);
  }
  distag_tensor *const made[] = {x, y, placed, part};
  for (size_t i = 0; i < sizeof made / sizeof *made; ++i) distag_tensor_release(made[i]);
  distag_mesh_release(line);
  return e->code;
}

static distag_status give_weight(void *user_data, distag_invocation *invocation, distag_error *e) {
  place *own = user_data;
  distag_rref *rref = NULL;
  if (distag_rref_create(distag_invocation_get_worker(invocation), distag_tensor_as_value(own->weight), &rref, e) ==
      DISTAG_OK) {
    distag_invocation_return(invocation, distag_rref_as_value(rref), e);
  }
  distag_rref_release(rref);
  return e->code;
}

static void take_place(members *all, int32_t rank) {
  static const char *const names[] = {"x"};
  static const int64_t shape[] = {kMembers};
  distag_error err = DISTAG_ERROR_INIT;
  if (rank == 0) return;
  place *own = &places[rank];
  own->stage = (rank - 1) / kMembers;
  const int32_t ranks[] = {1 + own->stage * kMembers, 2 + own->stage * kMembers};
  distag_worker *worker = all->workers[rank];
  CHECK_OK(distag_mesh_create(worker, ranks, kMembers, shape, names, 1, NULL, &own->mesh, &err));
  own->weight = sharded_numbers(kWeightShapes[own->stage], 2, 10 + own->stage, &err);
  CHECK_OK(distag_tensor_mark_sharding(own->weight, own->mesh, kWeightSpecs[own->stage], -1, &err));
  CHECK_OK(distag_tensor_set_requires_grad(own->weight, 1, &err));
  CHECK_OK(distag_worker_register(worker, "compute_part", compute_part, own, NULL, NULL, &err));
  CHECK_OK(distag_worker_register(worker, "give_weight", give_weight, own, NULL, NULL, &err));
}

static void leave_place(members *all, int32_t rank) {
  (void)all;
  distag_tensor_release(places[rank].weight);
  distag_mesh_release(places[rank].mesh);
}

/* Calls of all batches on all members of a stage, side by side; the parts of each batch make up its result. */
static void run_stage(distag_context *context, int stage, distag_tensor *const x[kBatches],
                      distag_tensor *out_y[kBatches]) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_future *futures[kBatches * kMembers] = {NULL};
  for (int i = 0; i < kBatches * kMembers; ++i) {
    char to[32];
    distag_value *args[2] = {distag_tensor_as_value(x[i / kMembers]), NULL};
    CHECK_OK(distag_value_create_int64(i / kMembers, &args[1], &err));
    snprintf(to, sizeof to, "%s", distag_worker_get_name(group.workers[1 + stage * kMembers + i % kMembers]));
    CHECK_OK(distag_call_async(group.workers[0], context, to, "compute_part", args, 2, NULL, &futures[i], &err));
    distag_value_release(args[1]);
  }
  CHECK_OK(distag_wait_all(futures, kBatches * kMembers, DISTAG_FOREVER, &err));
  for (int batch = 0; batch < kBatches; ++batch) {
    distag_tensor *parts[kMembers] = {NULL};
    for (int i = 0; i < kMembers; ++i) {
      distag_value *value = NULL;
      CHECK_OK(distag_future_get_value(futures[batch * kMembers + i], &value, &err));
      CHECK_OK(distag_value_get_tensor(value, &parts[i], &err));
    }
    CHECK_OK(distag_concat(parts, kMembers, kPartDims[stage], &out_y[batch], &err));
  }
  for (int i = 0; i < kBatches * kMembers; ++i) distag_future_release(futures[i]);
}

static void run_stage_alone(distag_tensor *weight, distag_tensor *const x[kBatches], distag_tensor *out_y[kBatches]) {
  distag_error err = DISTAG_ERROR_INIT;
  for (int batch = 0; batch < kBatches; ++batch) CHECK_OK(compute(x[batch], weight, &out_y[batch], &err));
}

/* The mean of the squares of all batches, and the input's own part in them. `weights` NULL: on the meshes. */
static distag_tensor *loss_of(distag_context *context, distag_tensor *input, distag_tensor *const weights[kStages]) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_tensor *values[kStages + 1][kBatches] = {{NULL}};
  for (int batch = 0; batch < kBatches; ++batch) {
    CHECK_OK(distag_mul_scalar(input, 1 + 0.5 * batch, &values[0][batch], &err));
  }
  for (int stage = 0; stage < kStages; ++stage) {
    if (weights == NULL) {
      run_stage(context, stage, values[stage], values[stage + 1]);
    } else {
      run_stage_alone(weights[stage], values[stage], values[stage + 1]);
    }
  }
  distag_tensor *both = NULL, *squares = NULL, *loss = NULL;
  CHECK_OK(distag_concat(values[kStages], kBatches, 0, &both, &err));
  CHECK_OK(distag_mul(both, both, &squares, &err));
  CHECK_OK(distag_mean(squares, NULL, 0, 0, &loss, &err));
  for (int stage = 0; stage <= kStages; ++stage) {
    for (int batch = 0; batch < kBatches; ++batch) distag_tensor_release(values[stage][batch]);
  }
  distag_tensor_release(both);
  distag_tensor_release(squares);
  return loss;
}

static distag_tensor *make_input(void) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_tensor *input = sharded_numbers(kInputShape, 2, 3, &err);
  CHECK_OK(distag_tensor_set_requires_grad(input, 1, &err));
  return input;
}

/* The losses of all steps, and at last the gradient of the input. */
typedef struct history {
  double losses[kSteps];
  double gradient[kRows * kIn];
} history;

static void train(distag_worker *worker, distag_value *const *parameters, size_t count,
                  distag_tensor *const weights[kStages], history *out_history) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_tensor *input = make_input();
  distag_optimizer *optimizer = NULL;
  CHECK_OK(distag_optimizer_create(worker, "adam", parameters, count, &optimizer, &err));
  for (int step = 0; step < kSteps; ++step) {
    distag_context *context = NULL;
    CHECK_OK(distag_context_create(worker, &context, &err));
    distag_tensor *loss = loss_of(context, input, weights);
    CHECK_OK(distag_tensor_get_item(loss, &out_history->losses[step], &err));
    CHECK_OK(distag_backward(context, &loss, 1, NULL, &err));
    CHECK_OK(distag_optimizer_step(optimizer, context, NULL, &err));
    distag_gradients *gradients = NULL;
    CHECK_OK(distag_get_gradients(context, &gradients, &err));
    CHECK_OK(distag_tensor_copy_data(distag_gradients_find(gradients, input), out_history->gradient,
                                     sizeof out_history->gradient, &err));
    distag_gradients_release(gradients);
    distag_tensor_release(loss);
    distag_context_release(context);
  }
  distag_optimizer_release(optimizer);
  distag_tensor_release(input);
}

static void train_alone(distag_tensor *weights[kStages], history *out_history) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_value *parameters[kStages];
  for (int stage = 0; stage < kStages; ++stage) {
    weights[stage] = sharded_numbers(kWeightShapes[stage], 2, 10 + stage, &err);
    CHECK_OK(distag_tensor_set_requires_grad(weights[stage], 1, &err));
    parameters[stage] = distag_tensor_as_value(weights[stage]);
  }
  train(NULL, parameters, kStages, weights, out_history);
}

static void train_by_stages(history *out_history) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_value *parameters[kStages * kMembers] = {NULL};
  for (int i = 0; i < kStages * kMembers; ++i) {
    CHECK_OK(distag_call(group.workers[0], NULL, distag_worker_get_name(group.workers[1 + i]), "give_weight", NULL, 0,
                         NULL, &parameters[i], &err));
  }
  train(group.workers[0], parameters, kStages * kMembers, NULL, out_history);
  for (int i = 0; i < kStages * kMembers; ++i) distag_value_release(parameters[i]);
}

static distag_tensor *expected_weights[kStages];

static void check_weight(members *all, int32_t rank) {
  (void)all;
  distag_error err = DISTAG_ERROR_INIT;
  distag_tensor *whole = NULL;
  double got[kIn * kHidden], expected[kIn * kHidden];
  if (rank == 0) return;
  const place *own = &places[rank];
  const size_t count = (size_t)(kWeightShapes[own->stage][0] * kWeightShapes[own->stage][1]);
  CHECK_OK(distag_tensor_gather(own->weight, -1, 0, &whole, &err));
  CHECK_OK(distag_tensor_copy_data(whole, got, sizeof got, &err));
  CHECK_OK(distag_tensor_copy_data(expected_weights[own->stage], expected, sizeof expected, &err));
  for (size_t i = 0; i < count; ++i) CHECK(fabs(got[i] - expected[i]) <= 1e-9);
  distag_tensor_release(whole);
}

int main(void) {
  history alone, staged;
  if (members_start(&group, 1 + kStages * kMembers, "stages") != 0) return 1;
  members_run(&group, group.count, take_place);
  train_alone(expected_weights, &alone);
  train_by_stages(&staged);
  for (int step = 0; step < kSteps; ++step) CHECK(fabs(alone.losses[step] - staged.losses[step]) <= 1e-12);
  CHECK(staged.losses[kSteps - 1] < staged.losses[0]);
  for (int i = 0; i < kRows * kIn; ++i) CHECK(fabs(alone.gradient[i] - staged.gradient[i]) <= 1e-9);
  members_run(&group, group.count, check_weight);
  members_run(&group, group.count, leave_place);
  for (int stage = 0; stage < kStages; ++stage) distag_tensor_release(expected_weights[stage]);
  CHECK_INT(members_end(&group), 0);
  CHECK_INT(distag_get_handle_count(), 0);
  return check_end();
}
