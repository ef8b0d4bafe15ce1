/* Local training: ops, a pass, gradients, an optimizer. */
#include "shortage/run.h"

enum { kMostTries = 200 };

/* loss = sum((x w)^2) with x = [1 2], w = [[1 2] [3 4]] as float64: the gradients are known. */
static int train_once(run_result *result, distag_tensor *w) {
  distag_error err = DISTAG_ERROR_INIT;
  const double x_data[2] = {1, 2};
  const int64_t x_shape[2] = {1, 2};
  const double expected[4] = {14, 20, 28, 40}; /* 2 x^T (x w) */
  double data[4] = {0};
  distag_context *context = NULL;
  distag_tensor *x = NULL, *product = NULL, *square = NULL, *soft = NULL, *loss = NULL;
  distag_gradients *gradients = NULL;
  distag_value *list = NULL;
  int is_ok =
      RUN(result, distag_context_create(NULL, &context, &err)) &&
      RUN(result, distag_tensor_create(x_data, sizeof x_data, DISTAG_FLOAT64, x_shape, 2, &x, &err)) &&
      RUN(result, distag_matmul(x, w, &product, &err)) && RUN(result, distag_mul(product, product, &square, &err)) &&
      RUN(result, distag_softmax(square, 1, &soft, &err)) && RUN(result, distag_sum(square, NULL, 0, 0, &loss, &err)) &&
      RUN(result, distag_backward(context, &loss, 1, NULL, &err)) &&
      RUN(result, distag_get_gradients(context, &gradients, &err));
  if (is_ok) {
    distag_tensor *const gradient = distag_gradients_find(gradients, w);
    if (gradient == NULL) {
      run_note_wrong(result, "distag_gradients_find gave NULL", 0, 1);
    } else if (RUN(result, distag_tensor_copy_data(gradient, data, sizeof data, &err))) {
      for (int i = 0; i < 4; ++i) {
        if (data[i] != expected[i]) run_note_wrong(result, "gradient", data[i], expected[i]);
      }
    } else {
      is_ok = 0;
    }
  }
  distag_value *const items[1] = {distag_tensor_as_value(w)};
  if (is_ok) is_ok = RUN(result, distag_value_create_list(items, 1, &list, &err));
  distag_value_release(list);
  distag_gradients_release(gradients);
  distag_tensor_release(loss);
  distag_tensor_release(soft);
  distag_tensor_release(square);
  distag_tensor_release(product);
  distag_tensor_release(x);
  distag_context_release(context);
  return is_ok;
}

/* A struct that an import does not take is imported again: nothing else would end it. */
static int take_back(run_result *result, struct DLManagedTensorVersioned *managed, distag_tensor **out_tensor) {
  distag_error err = DISTAG_ERROR_INIT;
  for (int tries = 0; tries < kMostTries; ++tries) {
    if (RUN(result, distag_tensor_import_dlpack(managed, out_tensor, &err))) return 1;
  }
  return 0;
}

/* A snapshot and lists of numbers, there and back. */
static int share_once(run_result *result, distag_tensor *w) {
  distag_error err = DISTAG_ERROR_INIT;
  const double numbers[2] = {0.5, 1.5};
  double copied[2] = {0, 0};
  size_t count = 0;
  distag_tensor_info info = DISTAG_TENSOR_INFO_INIT;
  distag_tensor *snapshot = NULL, *back = NULL;
  struct DLManagedTensorVersioned *managed = NULL;
  distag_value *list = NULL;
  const int is_ok = RUN(result, distag_tensor_create_snapshot(w, &snapshot, &err)) &&
                    RUN(result, distag_tensor_get_info(snapshot, &info, &err)) &&
                    RUN(result, distag_tensor_export_dlpack(snapshot, 0, &managed, &err)) &&
                    take_back(result, managed, &back) &&
                    RUN(result, distag_value_create_float64_list(numbers, 2, &list, &err)) &&
                    RUN(result, distag_value_copy_float64s(list, copied, 2, &count, &err));
  if (is_ok && (info.count != 4 || copied[1] != 1.5)) run_note_wrong(result, "copied", copied[1], 1.5);
  distag_value_release(list);
  distag_tensor_release(back);
  distag_tensor_release(snapshot);
  return is_ok;
}

static int step_once(run_result *result, distag_tensor *w) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_context *context = NULL;
  distag_tensor *loss = NULL, *square = NULL;
  distag_optimizer *optimizer = NULL;
  distag_value *const parameters[1] = {distag_tensor_as_value(w)};
  const int is_ok = RUN(result, distag_optimizer_create(NULL, "adam", parameters, 1, &optimizer, &err)) &&
                    RUN(result, distag_context_create(NULL, &context, &err)) &&
                    RUN(result, distag_mul(w, w, &square, &err)) &&
                    RUN(result, distag_sum(square, NULL, 0, 0, &loss, &err)) &&
                    RUN(result, distag_backward(context, &loss, 1, NULL, &err)) &&
                    RUN(result, distag_optimizer_step(optimizer, context, NULL, &err));
  distag_optimizer_release(optimizer);
  distag_tensor_release(loss);
  distag_tensor_release(square);
  distag_context_release(context);
  return is_ok;
}

/* The gradient of sum(w^3) and, through it, that of sum(3 w^2). */
static int differentiate_twice(run_result *result, distag_tensor *w) {
  distag_error err = DISTAG_ERROR_INIT;
  double data[4] = {0};
  distag_backward_options options = DISTAG_BACKWARD_OPTIONS_INIT;
  distag_context *first = NULL, *second = NULL;
  distag_tensor *square = NULL, *cube = NULL, *loss = NULL, *sum = NULL;
  distag_gradients *slopes = NULL, *curvatures = NULL;
  options.create_graph = 1;
  const int is_ok = RUN(result, distag_context_create(NULL, &first, &err)) &&
                    RUN(result, distag_context_create(NULL, &second, &err)) &&
                    RUN(result, distag_mul(w, w, &square, &err)) && RUN(result, distag_mul(square, w, &cube, &err)) &&
                    RUN(result, distag_sum(cube, NULL, 0, 0, &loss, &err)) &&
                    RUN(result, distag_backward(first, &loss, 1, &options, &err)) &&
                    RUN(result, distag_get_gradients(first, &slopes, &err)) &&
                    RUN(result, distag_sum(distag_gradients_find(slopes, w), NULL, 0, 0, &sum, &err)) &&
                    RUN(result, distag_backward(second, &sum, 1, NULL, &err)) &&
                    RUN(result, distag_get_gradients(second, &curvatures, &err)) &&
                    RUN(result, distag_tensor_copy_data(distag_gradients_find(curvatures, w), data, sizeof data, &err));
  for (int i = 0; is_ok && i < 4; ++i) {
    if (data[i] != 6.0 * (i + 1)) run_note_wrong(result, "curvature", data[i], 6.0 * (i + 1));
  }
  distag_gradients_release(curvatures);
  distag_gradients_release(slopes);
  distag_tensor_release(sum);
  distag_tensor_release(loss);
  distag_tensor_release(cube);
  distag_tensor_release(square);
  distag_context_release(second);
  distag_context_release(first);
  return is_ok;
}

void run_local(const run_plan *plan, run_result *result) {
  distag_error err = DISTAG_ERROR_INIT;
  const double w_data[4] = {1, 2, 3, 4};
  const int64_t w_shape[2] = {2, 2};
  distag_tensor *w = NULL;
  int tries = 0;
  allocations_count_from_here(&plan->missing);
  while (tries++ < kMostTries &&
         !RUN(result, distag_tensor_create(w_data, sizeof w_data, DISTAG_FLOAT64, w_shape, 2, &w, &err))) {
  }
  while (tries++ < kMostTries && !RUN(result, distag_tensor_set_requires_grad(w, 1, &err))) {
  }
  while (tries++ < kMostTries && !train_once(result, w)) {
  }
  while (tries++ < kMostTries && !differentiate_twice(result, w)) {
  }
  while (tries++ < kMostTries && !share_once(result, w)) {
  }
  while (tries++ < kMostTries && !step_once(result, w)) {
  }
  if (tries > kMostTries) run_note_wrong(result, "tries", tries, 0);
  distag_tensor_release(w);
  result->allocations = allocations_stop();
  result->handles = (long long)distag_get_handle_count();
}
