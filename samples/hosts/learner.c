/* The learner of the games and robots in this folder: it has the upper layers of their model and serves until they
 * leave.
 *
 *   forward(h)    [N, 32] to [N, 1], recorded in the context of the call
 *   parameters()  the tensors to train; called by remote they stay here, and the optimizer of the host steps them
 *
 * distag run starts it beside the host, and again where it failed or was killed. */
#include <distag.h>
#include <stdio.h>
#include <unistd.h>

enum { kWidth = 32, kParameters = 4 };
static distag_tensor *parameters[kParameters]; /* weight and bias of two layers */

static distag_status forward(void *user_data, distag_invocation *invocation, distag_error *err) {
  distag_tensor *h = NULL, *sum = NULL, *hidden = NULL, *y = NULL;
  (void)user_data;
  distag_invocation_get_tensor(invocation, 0, &h, err);
  distag_linear(h, parameters[0], parameters[1], &sum, err);
  distag_tanh(sum, &hidden, err);
  distag_linear(hidden, parameters[2], parameters[3], &y, err);
  distag_invocation_return(invocation, distag_tensor_as_value(y), err);
  distag_tensor_release(y);
  distag_tensor_release(hidden);
  distag_tensor_release(sum);
  return err->code;
}

static distag_status give_parameters(void *user_data, distag_invocation *invocation, distag_error *err) {
  distag_value *items[kParameters], *list = NULL;
  (void)user_data;
  for (int i = 0; i < kParameters; ++i) items[i] = distag_tensor_as_value(parameters[i]);
  distag_value_create_list(items, kParameters, &list, err);
  distag_invocation_return(invocation, list, err);
  distag_value_release(list);
  return err->code;
}

/* Normal numbers scaled by the inputs of the layer; biases are 0. */
static void create_layer(int index, int64_t outputs, double scale, distag_error *err) {
  const int64_t shape[2] = {outputs, kWidth};
  distag_tensor *random = NULL;
  distag_randn((uint64_t)(200 + index), DISTAG_FLOAT32, shape, 2, &random, err);
  distag_mul_scalar(random, scale, &parameters[index], err);
  distag_zeros(DISTAG_FLOAT32, &outputs, 1, &parameters[index + 1], err);
  distag_tensor_set_requires_grad(parameters[index], 1, err);
  distag_tensor_set_requires_grad(parameters[index + 1], 1, err);
  distag_tensor_release(random);
}

int main(void) {
  distag_worker_options options = DISTAG_WORKER_OPTIONS_INIT;
  distag_error err = DISTAG_ERROR_INIT;
  distag_worker *worker = NULL;

  options.name = "learner";
  create_layer(0, kWidth, 0.25, &err);
  create_layer(2, 1, 0.25, &err);
  distag_worker_create(&options, &worker, &err); /* rank, size and address: from distag run */
  distag_worker_register(worker, "forward", forward, NULL, NULL, NULL, &err);
  distag_worker_register(worker, "parameters", give_parameters, NULL, NULL, NULL, &err);
  distag_worker_start(worker, 30 * DISTAG_SECOND, &err);
  if (err.code == DISTAG_OK) printf("learner %d\n", (int)getpid());
  fflush(stdout);
  distag_worker_shutdown(worker, DISTAG_FOREVER, NULL, &err);
  if (err.code != DISTAG_OK) fprintf(stderr, "learner: %s\n", err.message);
  for (int i = 0; i < kParameters; ++i) distag_tensor_release(parameters[i]);
  distag_worker_release(worker);
  return err.code != DISTAG_OK;
}
