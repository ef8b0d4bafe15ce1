/* Learns y = 2 a - 3 b + 0.5 from samples of it: tensors, ops and gradients in one process, without a worker.
 *
 *   cc 01_local_training.c $(pkg-config --cflags --libs distag) -o local_training */
#include <distag.h>
#include <stdio.h>

enum { kSamples = 64, kSteps = 100 };

/* A step of gradient descent. Every call takes the same err and the chain is checked once, by the caller: after a
 * failure the calls that depend on it pass it on, and there is nothing to clean up but what is released anyway. */
static double train_step(distag_tensor *x, distag_tensor *y, distag_tensor *weight, distag_tensor *bias, double rate,
                         distag_error *err) {
  distag_context *context = NULL; /* gradients add up in a context, so each step has one of its own */
  distag_tensor *prediction = NULL, *loss = NULL;
  distag_gradients *gradients = NULL;
  double value = 0;

  distag_context_create(NULL, &context, err);
  distag_linear(x, weight, bias, &prediction, err);
  distag_mse_loss(prediction, y, &loss, err);
  distag_tensor_get_item(loss, &value, err);
  distag_backward(context, &loss, 1, NULL, err);
  distag_get_gradients(context, &gradients, err);
  distag_tensor_add_scaled(weight, distag_gradients_find(gradients, weight), -rate, err);
  distag_tensor_add_scaled(bias, distag_gradients_find(gradients, bias), -rate, err);

  distag_gradients_release(gradients);
  distag_tensor_release(loss);
  distag_tensor_release(prediction);
  distag_context_release(context);
  return value;
}

int main(void) {
  const int64_t x_shape[] = {kSamples, 2}, weight_shape[] = {1, 2}, bias_shape[] = {1};
  const float true_weight[] = {2, -3}, true_bias[] = {0.5f};
  distag_tensor *x = NULL, *y = NULL, *weight = NULL, *bias = NULL, *hidden_weight = NULL, *hidden_bias = NULL;
  distag_error err = DISTAG_ERROR_INIT;
  float learned_weight[2] = {0, 0}, learned_bias[1] = {0};
  int step;

  /* The hidden line, and samples of it. */
  distag_tensor_create(true_weight, sizeof true_weight, DISTAG_FLOAT32, weight_shape, 2, &hidden_weight, &err);
  distag_tensor_create(true_bias, sizeof true_bias, DISTAG_FLOAT32, bias_shape, 1, &hidden_bias, &err);
  distag_randn(1, DISTAG_FLOAT32, x_shape, 2, &x, &err);
  distag_linear(x, hidden_weight, hidden_bias, &y, &err);

  /* The parameters to learn. */
  distag_zeros(DISTAG_FLOAT32, weight_shape, 2, &weight, &err);
  distag_zeros(DISTAG_FLOAT32, bias_shape, 1, &bias, &err);
  distag_tensor_set_requires_grad(weight, 1, &err);
  distag_tensor_set_requires_grad(bias, 1, &err);

  for (step = 0; step < kSteps && err.code == DISTAG_OK; ++step) {
    const double loss = train_step(x, y, weight, bias, 0.05, &err);
    if (step % 20 == 0) printf("step %3d   loss %.6f\n", step, loss);
  }
  distag_tensor_copy_data(weight, learned_weight, sizeof learned_weight, &err);
  distag_tensor_copy_data(bias, learned_bias, sizeof learned_bias, &err);

  distag_tensor_release(bias);
  distag_tensor_release(weight);
  distag_tensor_release(y);
  distag_tensor_release(x);
  distag_tensor_release(hidden_bias);
  distag_tensor_release(hidden_weight);

  if (err.code != DISTAG_OK) {
    fprintf(stderr, "%s: %s\n", distag_status_get_name(err.code), err.message);
    return 1;
  }
  printf("learned    y = %.3f a %+.3f b %+.3f\n", learned_weight[0], learned_weight[1], learned_bias[0]);
  printf("handles    %d left\n", (int)distag_get_handle_count());
  return 0;
}
