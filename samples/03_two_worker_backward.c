/* A backward pass through two processes: t3 = add(t1, t2) on the other worker, t5 = t3 * t4 here, loss = sum(t5).
 *
 *   cc 03_two_worker_backward.c $(pkg-config --cflags --libs distag) -o two_worker_backward
 *   distag run -n 2 ./two_worker_backward
 *
 * Rank 0 trains, rank 1 serves. Workers without a name are called "worker0" and "worker1". */
#include <distag.h>
#include <stdio.h>

static distag_tensor *create_leaf(float first, distag_error *err) {
  const float data[4] = {first, first + 1, first + 2, first + 3};
  const int64_t shape[2] = {2, 2};
  distag_tensor *tensor = NULL;
  distag_tensor_create(data, sizeof data, DISTAG_FLOAT32, shape, 2, &tensor, err);
  distag_tensor_set_requires_grad(tensor, 1, err);
  return tensor;
}

static void print_gradient(const char *name, distag_gradients *gradients, distag_tensor *leaf, distag_error *err) {
  float data[4] = {0};
  distag_tensor_copy_data(distag_gradients_find(gradients, leaf), data, sizeof data, err);
  if (err->code == DISTAG_OK) printf("d loss / d %s = [%g %g] [%g %g]\n", name, data[0], data[1], data[2], data[3]);
}

static void train(distag_worker *worker, distag_error *err) {
  distag_tensor *t1 = create_leaf(1, err), *t2 = create_leaf(10, err), *t4 = create_leaf(0.5f, err);
  distag_value *args[] = {distag_tensor_as_value(t1), distag_tensor_as_value(t2)}, *answer = NULL;
  distag_tensor *t3 = NULL, *t5 = NULL, *loss = NULL;
  distag_context *context = NULL;
  distag_gradients *gradients = NULL;
  double value = 0;

  /* Calls that name a context are recorded in it, on both sides. */
  distag_context_create(worker, &context, err);
  distag_call(worker, context, "worker1", "add", args, 2, NULL, &answer, err);
  distag_value_get_tensor(answer, &t3, err); /* lent: lives as long as the answer */
  distag_mul(t3, t4, &t5, err);
  distag_sum(t5, NULL, 0, 0, &loss, err);
  distag_tensor_get_item(loss, &value, err);

  /* The pass runs through the other worker and back. Gradients stay where their leaves are: all three are here. */
  distag_backward(context, &loss, 1, NULL, err);
  distag_get_gradients(context, &gradients, err);
  if (err->code == DISTAG_OK) printf("loss = %g\n", value);
  print_gradient("t1", gradients, t1, err);
  print_gradient("t2", gradients, t2, err);
  print_gradient("t4", gradients, t4, err);

  distag_gradients_release(gradients);
  distag_context_release(context); /* ends it, here and on the other worker */
  distag_tensor_release(loss);
  distag_tensor_release(t5);
  distag_value_release(answer);
  distag_tensor_release(t4);
  distag_tensor_release(t2);
  distag_tensor_release(t1);
}

int main(void) {
  distag_worker *worker = NULL;
  distag_error err = DISTAG_ERROR_INIT;

  distag_worker_create(NULL, &worker, &err); /* rank, size and address come from distag run */
  distag_worker_start(worker, 30 * DISTAG_SECOND, &err);
  if (distag_worker_get_rank(worker) == 0) train(worker, &err);
  distag_worker_shutdown(worker, DISTAG_FOREVER, NULL, &err); /* serves until the other worker shuts down too */
  distag_worker_release(worker);
  if (err.code != DISTAG_OK) fprintf(stderr, "%s: %s\n", distag_status_get_name(err.code), err.message);
  return err.code != DISTAG_OK;
}
