/* Members of a mesh call a worker outside of it in a joint context, each with its part; passes go through those calls,
 * and optimizers step there. The losses and weights are those of one process. */
#include "capi/check.h"
#include "capi/support/members.h"
#include "capi/support/sharded_model.h"

enum { kMembers = 2, kOutside = kMembers, kSteps = 8, kSize = 6 };

static const int64_t kShape[] = {kSize, kSize};

static members group;
static distag_tensor *outside_weight;
static double losses[1 + kMembers][kSteps];            /* alone, and of each member */
static double weights[1 + kMembers][2][kSize * kSize]; /* likewise, in the end */

static distag_tensor *parameter(int64_t seed) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_tensor *made = sharded_numbers(kShape, 2, seed, &err);
  CHECK_OK(distag_tensor_set_requires_grad(made, 1, &err));
  return made;
}

/* Computes with rows, so that parts of rows may be given. */
static distag_status project(distag_tensor *x, distag_tensor *weight, distag_tensor **out_y, distag_error *e) {
  distag_tensor *product = NULL;
  if (distag_matmul(x, weight, &product, e) == DISTAG_OK) distag_tanh(product, out_y, e);
  distag_tensor_release(product);
  return e->code;
}

static distag_status project_part(void *user_data, distag_invocation *invocation, distag_error *e) {
  (void)user_data;
  distag_tensor *x = NULL, *y = NULL;
  if (distag_invocation_get_tensor(invocation, 0, &x, e) == DISTAG_OK &&
      project(x, outside_weight, &y, e) == DISTAG_OK) {
    distag_invocation_return(invocation, distag_tensor_as_value(y), e);
  }
  distag_tensor_release(y);
  return e->code;
}

static distag_status give_weight(void *user_data, distag_invocation *invocation, distag_error *e) {
  (void)user_data;
  distag_rref *rref = NULL;
  if (distag_rref_create(distag_invocation_get_worker(invocation), distag_tensor_as_value(outside_weight), &rref, e) ==
      DISTAG_OK) {
    distag_invocation_return(invocation, distag_rref_as_value(rref), e);
  }
  distag_rref_release(rref);
  return e->code;
}

/* The rows of a member go to the other worker and come back. */
static distag_tensor *project_outside(distag_worker *worker, distag_context *context, distag_mesh *mesh,
                                      distag_tensor *x) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_tensor *part = NULL, *answer = NULL, *y = NULL;
  distag_value *value = NULL;
  CHECK_OK(distag_tensor_to_local(x, NULL, &part, &err));
  distag_value *args[] = {distag_tensor_as_value(part)};
  CHECK_OK(distag_call(worker, context, distag_worker_get_name(group.workers[kOutside]), "project_part", args, 1, NULL,
                       &value, &err));
  CHECK_OK(distag_value_get_tensor(value, &answer, &err));
  CHECK_OK(distag_tensor_from_local(mesh, answer, "('x', None)", kShape, 2, NULL, &y, &err));
  distag_value_release(value);
  distag_tensor_release(part);
  return y;
}

static distag_tensor *mean_of_squares(distag_tensor *y) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_tensor *squares = NULL, *loss = NULL;
  CHECK_OK(distag_mul(y, y, &squares, &err));
  CHECK_OK(distag_mean(squares, NULL, 0, 0, &loss, &err));
  distag_tensor_release(squares);
  return loss;
}

static void train_alone(void) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_tensor *both[] = {parameter(1), parameter(2)};
  distag_value *values[] = {distag_tensor_as_value(both[0]), distag_tensor_as_value(both[1])};
  distag_tensor *input = sharded_numbers(kShape, 2, 3, &err);
  distag_optimizer *optimizer = NULL;
  CHECK_OK(distag_optimizer_create(NULL, "adam", values, 2, &optimizer, &err));
  for (int step = 0; step < kSteps; ++step) {
    distag_context *context = NULL;
    distag_tensor *hidden = NULL, *y = NULL;
    CHECK_OK(distag_context_create(NULL, &context, &err));
    CHECK_OK(distag_matmul(input, both[0], &hidden, &err));
    CHECK_OK(project(hidden, both[1], &y, &err));
    distag_tensor *loss = mean_of_squares(y);
    CHECK_OK(distag_tensor_get_item(loss, &losses[0][step], &err));
    CHECK_OK(distag_backward(context, &loss, 1, NULL, &err));
    CHECK_OK(distag_optimizer_step(optimizer, context, NULL, &err));
    distag_tensor *const made[] = {hidden, y, loss};
    for (size_t i = 0; i < sizeof made / sizeof *made; ++i) distag_tensor_release(made[i]);
    distag_context_release(context);
  }
  for (int i = 0; i < 2; ++i) {
    CHECK_OK(distag_tensor_copy_data(both[i], weights[0][i], sizeof weights[0][i], &err));
    distag_tensor_release(both[i]);
  }
  distag_tensor_release(input);
  distag_optimizer_release(optimizer);
}

/* If each member's optimizer had all parameters, the outside weight would step twice: only the first member has it. */
static distag_optimizer *make_optimizer(distag_worker *worker, distag_tensor *weight, int is_first) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_value *values[] = {distag_tensor_as_value(weight), NULL};
  if (is_first) {
    CHECK_OK(distag_call(worker, NULL, distag_worker_get_name(group.workers[kOutside]), "give_weight", NULL, 0, NULL,
                         &values[1], &err));
  }
  distag_optimizer *optimizer = NULL;
  CHECK_OK(distag_optimizer_create(worker, "adam", values, is_first ? 2 : 1, &optimizer, &err));
  distag_value_release(values[1]);
  return optimizer;
}

static void train_step(distag_worker *worker, distag_mesh *mesh, distag_tensor *input, distag_tensor *weight,
                       distag_optimizer *optimizer, double *out_loss) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_context *context = NULL;
  distag_tensor *hidden = NULL, *rows = NULL, *whole = NULL, *ready = NULL;
  CHECK_OK(distag_context_create_joint(mesh, &context, &err));
  CHECK_OK(distag_matmul(input, weight, &hidden, &err));
  CHECK_OK(distag_redistribute(hidden, "('x', None)", 0, &rows, &err));
  distag_tensor *y = project_outside(worker, context, mesh, rows);
  distag_tensor *loss = mean_of_squares(y);
  CHECK_OK(distag_tensor_gather(loss, -1, 0, &whole, &err));
  CHECK_OK(distag_tensor_get_item(whole, out_loss, &err));
  CHECK_OK(distag_backward(context, &loss, 1, NULL, &err));
  CHECK_OK(distag_optimizer_step(optimizer, context, NULL, &err));
  /* No member calls again before the step outside is made. */
  CHECK_OK(distag_collective(mesh, DISTAG_ALL_REDUCE, NULL, whole, NULL, &ready, &err));
  distag_tensor *const made[] = {hidden, rows, whole, ready, y, loss};
  for (size_t i = 0; i < sizeof made / sizeof *made; ++i) distag_tensor_release(made[i]);
  distag_context_release(context);
}

static void train(members *all, int32_t rank) {
  static const char *const names[] = {"x"};
  static const int32_t ranks[] = {0, 1};
  static const int64_t shape[] = {kMembers};
  distag_error err = DISTAG_ERROR_INIT;
  if (rank == kOutside) return;
  distag_worker *worker = all->workers[rank];
  distag_mesh *mesh = NULL;
  CHECK_OK(distag_mesh_create(worker, ranks, kMembers, shape, names, 1, NULL, &mesh, &err));
  distag_tensor *weight = sharded_numbers(kShape, 2, 1, &err), *input = sharded_numbers(kShape, 2, 3, &err);
  CHECK_OK(distag_tensor_mark_sharding(weight, mesh, "(None, 'x')", -1, &err));
  CHECK_OK(distag_tensor_set_requires_grad(weight, 1, &err));
  CHECK_OK(distag_tensor_mark_sharding(input, mesh, "(None, None)", -1, &err));
  distag_optimizer *optimizer = make_optimizer(worker, weight, rank == 0);
  for (int step = 0; step < kSteps; ++step) {
    train_step(worker, mesh, input, weight, optimizer, &losses[1 + rank][step]);
  }
  distag_tensor *whole = NULL;
  CHECK_OK(distag_tensor_gather(weight, -1, 0, &whole, &err));
  CHECK_OK(distag_tensor_copy_data(whole, weights[1 + rank][0], sizeof weights[1 + rank][0], &err));
  distag_tensor *const made[] = {whole, weight, input};
  for (size_t i = 0; i < sizeof made / sizeof *made; ++i) distag_tensor_release(made[i]);
  distag_optimizer_release(optimizer);
  distag_mesh_release(mesh);
}

int main(void) {
  distag_error err = DISTAG_ERROR_INIT;
  if (members_start(&group, kMembers + 1, "joint calls") != 0) return 1;
  outside_weight = parameter(2);
  distag_worker *outside = group.workers[kOutside];
  CHECK_OK(distag_worker_register(outside, "project_part", project_part, NULL, NULL, NULL, &err));
  CHECK_OK(distag_worker_register(outside, "give_weight", give_weight, NULL, NULL, NULL, &err));
  train_alone();
  members_run(&group, group.count, train);
  for (int member = 1; member <= kMembers; ++member) {
    CHECK_OK(distag_tensor_copy_data(outside_weight, weights[member][1], sizeof weights[member][1], &err));
    for (int step = 0; step < kSteps; ++step) CHECK(fabs(losses[member][step] - losses[0][step]) <= 1e-12);
    for (int i = 0; i < kSize * kSize; ++i) {
      CHECK(fabs(weights[member][0][i] - weights[0][0][i]) <= 1e-9);
      CHECK(fabs(weights[member][1][i] - weights[0][1][i]) <= 1e-9);
    }
  }
  CHECK(losses[1][kSteps - 1] < losses[1][0]);
  distag_tensor_release(outside_weight);
  CHECK_INT(members_end(&group), 0);
  CHECK_INT(distag_get_handle_count(), 0);
  return check_end();
}
