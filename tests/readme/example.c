#include <distag.h>
#include <stdio.h>

int main(void) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_worker *worker[2];
  distag_future *started[2];
  for (int32_t rank = 0; rank < 2; ++rank) {
    distag_worker_options options = DISTAG_WORKER_OPTIONS_INIT;
    options.rank = rank;
    options.world_size = 2;
    options.name = rank == 0 ? "a" : "b";
    options.rendezvous = "inproc://example";
    distag_worker_create(&options, &worker[rank], &err);
    distag_worker_start_async(worker[rank], 5 * DISTAG_SECOND, &started[rank], &err);
  }
  distag_wait_all(started, 2, DISTAG_FOREVER, &err);

  const float data[] = {1, 2, 3};
  const int64_t shape[] = {3};
  distag_tensor *x, *sum, *loss;
  distag_tensor_create(data, sizeof data, DISTAG_FLOAT32, shape, 1, &x, &err);
  distag_tensor_set_requires_grad(x, 1, &err);

  distag_context *context; /* one forward and its backward pass */
  distag_context_create(worker[0], &context, &err);
  distag_value *args[] = {distag_tensor_as_value(x), distag_tensor_as_value(x)}, *answer;
  distag_call(worker[0], context, "b", "mul", args, 2, NULL, &answer, &err); /* x * x, computed by b */
  distag_value_get_tensor(answer, &sum, &err);
  distag_sum(sum, NULL, 0, 0, &loss, &err);
  distag_backward(context, &loss, 1, NULL, &err); /* through both workers */

  distag_gradients *gradients;
  float g[3] = {0};
  distag_get_gradients(context, &gradients, &err);
  distag_tensor_copy_data(distag_gradients_find(gradients, x), g, sizeof g, &err);
  if (err.code == DISTAG_OK)
    printf("d/dx sum(x * x) = %g %g %g\n", g[0], g[1], g[2]);
  else
    printf("failed: %s\n", err.message); /* the first failure of the chain */

  distag_gradients_release(gradients);
  distag_tensor_release(loss);
  distag_value_release(answer);
  distag_context_release(context);
  distag_tensor_release(x);
  for (int rank = 0; rank < 2; ++rank) {
    distag_future_release(started[rank]);
    distag_worker_release(worker[rank]); /* shuts it down */
  }
  return err.code != DISTAG_OK;
}
