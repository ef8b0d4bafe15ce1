/* Distributed autograd as in its guides: two workers, parameters behind rrefs, forward, backward, optimizer step.
 *
 *   cc 11_classic.c $(pkg-config --cflags --libs distag) -o classic && distag run -n 2 ./classic
 *
 * The model is relu(x w1) w2. w1 lives on worker0, which trains, and w2 on worker1. */
#include <distag.h>
#include <stdio.h>

enum { kSteps = 200 };

/* Returns a tensor as a parameter. Called by distag_remote it stays here, and the caller gets an rref to it. */
static distag_status keep_parameter(void *user_data, distag_invocation *invocation, distag_error *err) {
  distag_tensor *tensor = NULL;
  (void)user_data;
  distag_invocation_get_tensor(invocation, 0, &tensor, err);
  distag_tensor_set_requires_grad(tensor, 1, err);
  distag_invocation_return(invocation, distag_tensor_as_value(tensor), err);
  return err->code;
}

static distag_rref *place_parameter(distag_worker *worker, const char *owner, int64_t rows, int64_t columns,
                                    distag_error *err) {
  const int64_t shape[] = {rows, columns};
  distag_tensor *random = NULL;
  distag_rref *rref = NULL;
  distag_randn((uint64_t)rows, DISTAG_FLOAT32, shape, 2, &random, err);
  distag_value *arg = distag_tensor_as_value(random);
  distag_remote(worker, NULL, owner, "keep_parameter", &arg, 1, NULL, &rref, err);
  distag_tensor_release(random);
  return rref;
}

static double train_step(distag_worker *worker, distag_rref *const *parameters, distag_optimizer *optimizer,
                         distag_tensor *x, distag_tensor *target, distag_error *err) {
  distag_context *context = NULL;
  distag_value *fetched[2] = {NULL};
  distag_tensor *w[2] = {NULL}, *sum = NULL, *hidden = NULL, *y = NULL, *loss = NULL;
  double value = 0;

  distag_context_create(worker, &context, err);
  for (int i = 0; i < 2; ++i) distag_rref_fetch(parameters[i], context, NULL, &fetched[i], err); /* recorded */
  for (int i = 0; i < 2; ++i) distag_value_get_tensor(fetched[i], &w[i], err);
  distag_matmul(x, w[0], &sum, err);
  distag_relu(sum, &hidden, err);
  distag_matmul(hidden, w[1], &y, err);
  distag_mse_loss(y, target, &loss, err);
  distag_tensor_get_item(loss, &value, err);
  distag_backward(context, &loss, 1, NULL, err);        /* leaves each gradient with the owner of its parameter */
  distag_optimizer_step(optimizer, context, NULL, err); /* each owner updates its own parameter */
  distag_tensor *const made[] = {sum, hidden, y, loss};
  for (int i = 0; i < 4; ++i) distag_tensor_release(made[i]);
  for (int i = 0; i < 2; ++i) distag_value_release(fetched[i]);
  distag_context_release(context);
  return value;
}

static void train(distag_worker *worker, distag_error *err) {
  const int64_t x_shape[] = {32, 4}, target_shape[] = {32, 1};
  distag_rref *parameters[] = {place_parameter(worker, "worker0", 4, 8, err),
                               place_parameter(worker, "worker1", 8, 1, err)};
  distag_value *values[] = {distag_rref_as_value(parameters[0]), distag_rref_as_value(parameters[1])};
  distag_tensor *x = NULL, *target = NULL;
  distag_optimizer *optimizer = NULL;

  distag_randn(3, DISTAG_FLOAT32, x_shape, 2, &x, err);
  distag_ones(DISTAG_FLOAT32, target_shape, 2, &target, err);
  distag_optimizer_create(worker, "adam", values, 2, &optimizer, err);
  distag_optimizer_set(optimizer, "lr", 0.05, err);
  for (int step = 1; step <= kSteps && err->code == DISTAG_OK; ++step) {
    const double loss = train_step(worker, parameters, optimizer, x, target, err);
    if (step == 1 || step == kSteps) printf("step %3d   loss %.4f\n", step, loss);
  }
  distag_optimizer_release(optimizer);
  distag_tensor_release(target);
  distag_tensor_release(x);
  for (int i = 0; i < 2; ++i) distag_rref_release(parameters[i]);
}

int main(void) {
  distag_worker *worker = NULL;
  distag_error err = DISTAG_ERROR_INIT;
  distag_worker_create(NULL, &worker, &err); /* rank, size and address come from distag run */
  distag_worker_register(worker, "keep_parameter", keep_parameter, NULL, NULL, NULL, &err);
  distag_worker_start(worker, 30 * DISTAG_SECOND, &err);
  if (distag_worker_get_rank(worker) == 0) train(worker, &err);
  distag_worker_shutdown(worker, DISTAG_FOREVER, NULL, &err); /* serves until the other worker shuts down too */
  distag_worker_release(worker);
  if (err.code != DISTAG_OK) fprintf(stderr, "%s: %s\n", distag_status_get_name(err.code), err.message);
  return err.code != DISTAG_OK;
}
