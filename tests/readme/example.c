#include <distag.h>
#include <stdio.h>

int main(void) {
  distag_error err = DISTAG_ERROR_INIT; /* a chain of calls is checked once, at its end */
  distag_worker *worker[2];
  distag_future *start[2];
  for (int rank = 0; rank < 2; ++rank) {
    distag_worker_options options = {.struct_size = sizeof options, .rank = rank, .world_size = 2};
    options.rendezvous = "inproc://example"; /* or "file:///dir", "tcp://host:port", "env://" */
    distag_worker_create(&options, &worker[rank], &err);
    distag_worker_start_async(worker[rank], 5 * DISTAG_SECOND, &start[rank], &err);
  }
  distag_wait_all(start, 2, DISTAG_FOREVER, &err);

  float g[3] = {0};
  distag_tensor *x, *square, *loss;
  distag_context *context;
  distag_value *answer;
  distag_gradients *gradients;
  distag_arange(1, 4, 1, DISTAG_FLOAT32, &x, &err);
  distag_tensor_set_requires_grad(x, 1, &err);
  distag_context_create(worker[0], &context, &err);
  distag_value *args[] = {distag_tensor_as_value(x), distag_tensor_as_value(x)};
  distag_call(worker[0], context, "worker1", "mul", args, 2, NULL, &answer, &err); /* x * x, computed there */
  distag_value_get_tensor(answer, &square, &err);
  distag_sum(square, NULL, 0, 0, &loss, &err);
  distag_backward(context, &loss, 1, NULL, &err); /* through both workers */
  distag_get_gradients(context, &gradients, &err);
  distag_tensor_copy_data(distag_gradients_find(gradients, x), g, sizeof g, &err);
  printf("d/dx sum(x * x) = %g %g %g (%s%s)\n", g[0], g[1], g[2], distag_status_get_name(err.code), err.message);

  distag_gradients_release(gradients);
  distag_tensor_release(loss);
  distag_value_release(answer);
  distag_context_release(context);
  distag_tensor_release(x);
  for (int i = 0; i < 2; ++i) distag_future_release(start[i]), distag_worker_release(worker[i]);
  return err.code != DISTAG_OK;
}
