/* One backward pass through two workers for each line of the input, until it ends: a program that an upgrade of the
 * library finds running. It is built against the packages of the last release, so it uses what that had. */
#include <distag.h>
#include <stdio.h>

static int step(distag_worker *worker, distag_tensor *x, distag_error *err) {
  float g[3] = {0};
  distag_tensor *square = NULL, *loss = NULL;
  distag_context *context = NULL;
  distag_value *args[2], *answer = NULL;
  distag_gradients *gradients = NULL;
  args[0] = args[1] = distag_tensor_as_value(x);
  distag_context_create(worker, &context, err);
  distag_call(worker, context, "worker1", "mul", args, 2, NULL, &answer, err);
  distag_value_get_tensor(answer, &square, err);
  distag_sum(square, NULL, 0, 0, &loss, err);
  distag_backward(context, &loss, 1, NULL, err);
  distag_get_gradients(context, &gradients, err);
  distag_tensor_copy_data(distag_gradients_find(gradients, x), g, sizeof g, err);
  printf("%s: %g %g %g %s%s\n", distag_get_version(), g[0], g[1], g[2], distag_status_get_name(err->code), err->message);
  distag_gradients_release(gradients);
  distag_tensor_release(loss);
  distag_value_release(answer);
  distag_context_release(context);
  return err->code;
}

int main(void) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_worker *worker[2];
  distag_future *start[2];
  distag_tensor *x = NULL;
  char line[64];
  for (int rank = 0; rank < 2; ++rank) {
    distag_worker_options options = DISTAG_WORKER_OPTIONS_INIT;
    options.rank = rank;
    options.world_size = 2;
    options.rendezvous = "inproc://steps";
    distag_worker_create(&options, &worker[rank], &err);
    distag_worker_start_async(worker[rank], 5 * DISTAG_SECOND, &start[rank], &err);
  }
  distag_wait_all(start, 2, DISTAG_FOREVER, &err);
  distag_arange(1, 4, 1, DISTAG_FLOAT32, &x, &err);
  distag_tensor_set_requires_grad(x, 1, &err);
  setvbuf(stdout, NULL, _IOLBF, 0);
  while (fgets(line, sizeof line, stdin) != NULL && step(worker[0], x, &err) == DISTAG_OK) continue;
  distag_tensor_release(x);
  for (int i = 0; i < 2; ++i) distag_future_release(start[i]), distag_worker_release(worker[i]);
  return err.code != DISTAG_OK;
}
