/* A driver trains a model whose first layer lies on a mesh of workers. To the driver that stage is a function on each
 * member: it calls them side by side, and one backward pass runs through all. The optimizer steps at the owners.
 *
 *   cc 13_sharded_stages.c $(pkg-config --cflags --libs distag) -o stages && distag run -n 3 ./stages
 *
 * The first process drives, all others (up to 16) are members: the numbers stay the same, however many there are. */
#include <distag.h>
#include <stdio.h>

enum { kSteps = 60, kRows = 24, kIn = 8, kHidden = 32, kOut = 4, kMaxMembers = 16 };

typedef struct stage {
  distag_mesh *mesh;
  distag_tensor *weight;
} stage;

static distag_tensor *make(uint64_t seed, int64_t rows, int64_t columns, distag_error *err) {
  distag_tensor *numbers = NULL;
  distag_randn(seed, DISTAG_FLOAT64, (const int64_t[]){rows, columns}, 2, &numbers, err);
  return numbers;
}

/* Each member is given all of x, and gives back its columns of the result. The gradients of x that they have add up to
 * the whole: sum('model') says so. */
static distag_status run_stage(void *user_data, distag_invocation *call, distag_error *err) {
  stage *own = user_data;
  distag_tensor *given = NULL, *x = NULL, *product = NULL, *active = NULL, *part = NULL;
  distag_invocation_get_tensor(call, 0, &given, err);
  distag_tensor_from_local(own->mesh, given, "(None, None)", distag_tensor_get_shape(given), 2,
                           "(None, None) sum('model')", &x, err);
  distag_matmul(x, own->weight, &product, err); /* lies as (None, 'model') */
  distag_tanh(product, &active, err);
  distag_tensor_to_local(active, NULL, &part, err);
  if (err->code == DISTAG_OK) distag_invocation_return(call, distag_tensor_as_value(part), err);
  distag_tensor *const made[] = {given, x, product, active, part};
  for (int i = 0; i < 5; ++i) distag_tensor_release(made[i]);
  return err->code;
}

static double step(distag_worker *driver, distag_tensor *x, distag_tensor *y, distag_tensor *weight,
                   distag_optimizer *adam, distag_error *err) {
  const size_t members = (size_t)distag_worker_get_world_size(driver) - 1;
  distag_context *context = NULL;
  distag_tensor *parts[kMaxMembers] = {NULL}, *hidden = NULL, *out = NULL, *loss = NULL;
  distag_future *futures[kMaxMembers] = {NULL};
  distag_value *const args[] = {distag_tensor_as_value(x)};
  double value = 0;
  distag_context_create(driver, &context, err);
  for (size_t i = 0; i < members; ++i) {
    distag_member to = DISTAG_MEMBER_INIT;
    distag_worker_get_member(driver, (int32_t)(i + 1), &to, err);
    distag_call_async(driver, context, to.name, "run_stage", args, 1, NULL, &futures[i], err);
  }
  for (size_t i = 0; i < members; ++i) {
    distag_value *answer = NULL;
    distag_future_wait(futures[i], DISTAG_FOREVER, err);
    distag_future_get_value(futures[i], &answer, err);
    distag_value_get_tensor(answer, &parts[i], err); /* lent: lives as long as the future */
  }
  distag_concat(parts, members, 1, &hidden, err);
  distag_matmul(hidden, weight, &out, err); /* the driver's own layer */
  distag_mse_loss(out, y, &loss, err);
  distag_backward(context, &loss, 1, NULL, err);
  distag_optimizer_step(adam, context, NULL, err);
  distag_tensor_get_item(loss, &value, err);
  for (size_t i = 0; i < members; ++i) distag_future_release(futures[i]);
  distag_tensor *const made[] = {hidden, out, loss};
  for (int i = 0; i < 3; ++i) distag_tensor_release(made[i]);
  distag_context_release(context);
  return value;
}

/* `of_ranks`: null for the driver itself, from each member a reference to its part of the weight. */
static void drive(distag_worker *driver, distag_value *of_ranks, distag_error *err) {
  const size_t size = distag_value_get_count(of_ranks);
  distag_tensor *const x = make(1, kRows, kIn, err), *const y = make(2, kRows, kOut, err);
  distag_tensor *const weight = make(3, kHidden, kOut, err);
  distag_value *parameters[1 + kMaxMembers] = {distag_tensor_as_value(weight)};
  distag_optimizer *adam = NULL;
  distag_tensor_set_requires_grad(weight, 1, err);
  for (size_t i = 1; i < size; ++i) parameters[i] = distag_value_get_item(of_ranks, i);
  distag_optimizer_create(driver, "adam", parameters, size, &adam, err);
  distag_optimizer_set(adam, "lr", 0.01, err);
  for (int i = 1; i <= kSteps && err->code == DISTAG_OK; ++i) {
    const double loss = step(driver, x, y, weight, adam, err);
    if (i == 1 || i == kSteps) printf("step %2d   loss %.9f\n", i, loss);
  }
  distag_optimizer_release(adam);
  distag_tensor_release(weight);
  distag_tensor_release(y);
  distag_tensor_release(x);
}

/* The part of a member, to which the driver is given a reference. */
static distag_rref *make_stage(distag_worker *worker, int32_t members, stage *own, distag_error *err) {
  int32_t ranks[kMaxMembers];
  distag_rref *rref = NULL;
  for (int32_t i = 0; i < members; ++i) ranks[i] = i + 1;
  distag_mesh_create(worker, ranks, (size_t)members, (const int64_t[]){members}, (const char *const[]){"model"}, 1,
                     NULL, &own->mesh, err);
  own->weight = make(4, kIn, kHidden, err); /* the same numbers everywhere, of which each keeps its part */
  distag_tensor_mark_sharding(own->weight, own->mesh, "(None, 'model')", -1, err);
  distag_tensor_set_requires_grad(own->weight, 1, err);
  distag_rref_create(worker, distag_tensor_as_value(own->weight), &rref, err);
  return rref;
}

int main(void) {
  distag_worker *worker = NULL;
  distag_value *given = NULL, *all = NULL;
  stage own = {NULL, NULL};
  distag_error err = DISTAG_ERROR_INIT;
  distag_worker_create(NULL, &worker, &err); /* rank, size and address come from distag run */
  distag_worker_register(worker, "run_stage", run_stage, &own, NULL, NULL, &err);
  distag_worker_start(worker, 30 * DISTAG_SECOND, &err);
  const int32_t rank = distag_worker_get_rank(worker), members = distag_worker_get_world_size(worker) - 1;
  if (err.code == DISTAG_OK && members >= 1 && members <= kMaxMembers) {
    if (rank == 0) distag_value_create_null(&given, &err);
    if (rank != 0) given = distag_rref_as_value(make_stage(worker, members, &own, &err));
    distag_worker_all_gather(worker, given, NULL, 0, DISTAG_FOREVER, &all, &err); /* so all stages are there */
    if (rank == 0) drive(worker, all, &err);
  } else if (err.code == DISTAG_OK && rank == 0) {
    printf("%d processes: it takes a driver and 1 to %d members\n", (int)members + 1, (int)kMaxMembers);
  }
  distag_value_release(all);
  distag_value_release(given);
  distag_worker_shutdown(worker, 30 * DISTAG_SECOND, NULL, &err); /* members serve until the driver is here, too */
  distag_tensor_release(own.weight);
  distag_mesh_release(own.mesh);
  distag_worker_release(worker);
  if (err.code != DISTAG_OK) fprintf(stderr, "%s: %s\n", distag_status_get_name(err.code), err.message);
  return err.code != DISTAG_OK;
}
