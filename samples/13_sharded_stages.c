/* A driver trains a model of which one layer lies on a mesh of workers. To the driver that stage is a function on each
 * member: it calls them side by side, and one backward pass runs through all. The optimizer steps at the owners. The
 * first process drives, the others are members: 1 to 16 of them, and the numbers stay the same.
 *
 *   cc 13_sharded_stages.c $(pkg-config --cflags --libs distag) -o stages && distag run -n 3 ./stages */
#include <distag.h>
#include <stdio.h>

enum { kSteps = 60, kRows = 24, kIn = 8, kHidden = 32, kOut = 16, kMaxMembers = 16 };

static distag_tensor *make(uint64_t seed, int64_t rows, int64_t columns, distag_error *err) {
  distag_tensor *numbers = NULL;
  distag_randn(seed, DISTAG_FLOAT64, (const int64_t[]){rows, columns}, 2, &numbers, err);
  return numbers;
}

/* Each member is given all of x, and gives back its columns of the product. Each has a part of the gradient of x, and
 * the driver gets their sum: sum('model') says so. */
static distag_status run_stage(void *user_data, distag_invocation *call, distag_error *err) {
  distag_tensor *const weight = *(distag_tensor **)user_data;
  distag_tensor *given = NULL, *x = NULL, *product = NULL, *part = NULL;
  distag_invocation_get_tensor(call, 0, &given, err);
  distag_tensor_from_local(distag_tensor_get_mesh(weight), given, "(None, None)", distag_tensor_get_shape(given), 2,
                           "(None, None) sum('model')", &x, err);
  distag_matmul(x, weight, &product, err); /* lies as the weight: (None, 'model') */
  distag_tensor_to_local(product, NULL, &part, err);
  if (part != NULL) distag_invocation_return(call, distag_tensor_as_value(part), err);
  distag_tensor *const made[] = {x, product, part};
  for (int i = 0; i < 3; ++i) distag_tensor_release(made[i]);
  return err->code;
}

static double step(distag_worker *driver, distag_tensor *x, distag_tensor *y, distag_tensor *weight, size_t members,
                   distag_optimizer *adam, distag_error *err) {
  distag_context *context = NULL;
  distag_tensor *product = NULL, *hidden = NULL, *parts[kMaxMembers] = {NULL}, *out = NULL, *loss = NULL;
  distag_future *futures[kMaxMembers] = {NULL};
  double value = 0;
  distag_context_create(driver, &context, err);
  distag_matmul(x, weight, &product, err); /* the driver's own layer */
  distag_tanh(product, &hidden, err);
  for (size_t i = 0; i < members; ++i) {
    distag_member to = DISTAG_MEMBER_INIT;
    distag_worker_get_member(driver, (int32_t)(i + 1), &to, err);
    distag_call_async(driver, context, to.name, "run_stage", (distag_value *[]){distag_tensor_as_value(hidden)}, 1,
                      NULL, &futures[i], err);
  }
  for (size_t i = 0; i < members; ++i) {
    distag_value *answer = NULL;
    distag_future_wait(futures[i], DISTAG_FOREVER, err);
    distag_future_get_value(futures[i], &answer, err);
    distag_value_get_tensor(answer, &parts[i], err); /* lent: lives as long as the future */
  }
  distag_concat(parts, members, 1, &out, err);
  distag_mse_loss(out, y, &loss, err);
  if (distag_backward(context, &loss, 1, NULL, err) == DISTAG_OK) distag_optimizer_step(adam, context, NULL, err);
  distag_tensor_get_item(loss, &value, err);
  for (size_t i = 0; i < members; ++i) distag_future_release(futures[i]);
  distag_tensor *const made[] = {product, hidden, out, loss};
  for (int i = 0; i < 4; ++i) distag_tensor_release(made[i]);
  distag_context_release(context);
  return value;
}

static void drive(distag_worker *driver, size_t members, distag_value *of_ranks, distag_error *err) {
  distag_tensor *const made[] = {make(1, kRows, kIn, err), make(2, kRows, kOut, err), make(3, kIn, kHidden, err)};
  distag_tensor *const x = made[0], *const y = made[1], *const weight = made[2];
  distag_value *parameters[1 + kMaxMembers] = {distag_tensor_as_value(weight)};
  distag_optimizer *adam = NULL;
  distag_tensor_set_requires_grad(weight, 1, err);
  for (size_t i = 1; i <= members; ++i) parameters[i] = distag_value_get_item(of_ranks, i);
  distag_optimizer_create(driver, "adam", parameters, 1 + members, &adam, err);
  distag_optimizer_set(adam, "lr", 0.01, err);
  for (int i = 1; i <= kSteps && err->code == DISTAG_OK; ++i) {
    const double loss = step(driver, x, y, weight, members, adam, err);
    if (i == 1 || i == kSteps) printf("step %2d   loss %.9f\n", i, loss);
  }
  distag_optimizer_release(adam);
  for (int i = 0; i < 3; ++i) distag_tensor_release(made[i]);
}

/* Makes the value that a member gives to the driver: a reference to its part of the weight. */
static distag_value *make_stage(distag_worker *worker, int members, distag_tensor **out_weight, distag_error *err) {
  int32_t ranks[kMaxMembers];
  distag_mesh *mesh = NULL;
  distag_rref *part = NULL;
  for (int i = 0; i < members; ++i) ranks[i] = i + 1;
  distag_mesh_create(worker, ranks, (size_t)members, (const int64_t[]){-1}, (const char *const[]){"model"}, 1, NULL,
                     &mesh, err);
  *out_weight = make(4, kHidden, kOut, err); /* the same numbers everywhere, of which each keeps its part */
  distag_tensor_mark_sharding(*out_weight, mesh, "(None, 'model')", -1, err);
  distag_tensor_set_requires_grad(*out_weight, 1, err);
  distag_rref_create(worker, distag_tensor_as_value(*out_weight), &part, err);
  distag_mesh_release(mesh); /* the weight holds it */
  return distag_rref_as_value(part);
}

int main(void) {
  distag_worker *worker = NULL;
  distag_value *given = NULL, *all = NULL;
  distag_tensor *weight = NULL;
  distag_error err = DISTAG_ERROR_INIT;
  distag_worker_create(NULL, &worker, &err); /* rank, size and address come from distag run */
  distag_worker_register(worker, "run_stage", run_stage, &weight, NULL, NULL, &err);
  if (distag_worker_start(worker, 30 * DISTAG_SECOND, &err) == DISTAG_OK) {
    const int members = distag_worker_get_world_size(worker) - 1, is_driver = distag_worker_get_rank(worker) == 0;
    if (members < 1 || members > kMaxMembers) return fprintf(stderr, "start 2 to %d processes\n", 1 + kMaxMembers), 1;
    if (is_driver) distag_value_create_null(&given, &err);
    if (!is_driver) given = make_stage(worker, members, &weight, &err);
    distag_worker_all_gather(worker, given, NULL, 0, DISTAG_FOREVER, &all, &err); /* now all stages are there */
    if (is_driver && all != NULL) drive(worker, (size_t)members, all, &err);
  }
  distag_value_release(all);
  distag_value_release(given);
  distag_worker_shutdown(worker, 30 * DISTAG_SECOND, NULL, &err); /* members serve until the driver is here, too */
  distag_tensor_release(weight);
  distag_worker_release(worker);
  if (err.code != DISTAG_OK) fprintf(stderr, "%s: %s\n", distag_status_get_name(err.code), err.message);
  return err.code != DISTAG_OK;
}
