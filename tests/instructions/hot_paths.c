/* Hot paths for the gate on instructions: hot_paths PATH COUNT runs one COUNT times in measured(), on one thread. */
#include <distag.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static distag_error err = DISTAG_ERROR_INIT;
static distag_worker* workers[2];
static distag_tensor* x;

/* By a future: a thread that waits in a blocking call runs the loop, and how often that looks around has no count. */
static distag_value* call(distag_context* context, const char* function, distag_value* const* args, size_t arg_count) {
  distag_future* future = NULL;
  distag_value* result = NULL;
  distag_call_async(workers[0], context, "worker1", function, args, arg_count, NULL, &future, &err);
  distag_future_wait(future, DISTAG_FOREVER, &err);
  distag_future_get_value(future, &result, &err);
  distag_value_retain(result);
  distag_future_release(future);
  return result;
}

static void call_once(void) {
  distag_value* args[] = {distag_tensor_as_value(x)};
  distag_value_release(call(NULL, "neg", args, 1));
}

/* A remote add, a local multiplication, a backward pass through both, and the gradients: the initiator's share. */
static void step_once(void) {
  distag_context* context = NULL;
  distag_tensor *sum = NULL, *product = NULL, *loss = NULL;
  distag_value* args[] = {distag_tensor_as_value(x), distag_tensor_as_value(x)};
  distag_gradients* gradients = NULL;
  distag_future* pass = NULL;
  distag_context_create(workers[0], &context, &err);
  distag_value* result = call(context, "add", args, 2);
  distag_value_get_tensor(result, &sum, &err);
  distag_mul(sum, x, &product, &err);
  distag_sum(product, NULL, 0, 0, &loss, &err);
  distag_backward_async(context, &loss, 1, NULL, &pass, &err);
  distag_future_wait(pass, DISTAG_FOREVER, &err);
  distag_future_release(pass);
  distag_get_gradients(context, &gradients, &err);
  distag_gradients_release(gradients);
  distag_tensor_release(loss);
  distag_tensor_release(product);
  distag_value_release(result);
  distag_context_release(context);
}

/* Ten ops on four floats, forward and backward. */
static void local_once(void) {
  distag_context* context = NULL;
  distag_tensor *last = x, *loss = NULL;
  distag_context_create(NULL, &context, &err);
  distag_tensor_retain(last);
  for (int i = 0; i < 5; ++i) {
    distag_tensor *product = NULL, *sum = NULL;
    distag_mul(last, x, &product, &err);
    distag_add(product, x, &sum, &err);
    distag_tensor_release(product);
    distag_tensor_release(last);
    last = sum;
  }
  distag_sum(last, NULL, 0, 0, &loss, &err);
  distag_backward(context, &loss, 1, NULL, &err);
  distag_tensor_release(loss);
  distag_tensor_release(last);
  distag_context_release(context);
}

/* The counted part: callgrind collects between its begin and its end. */
__attribute__((noinline, noipa)) void measured(void (*path)(void), int count);
void measured(void (*path)(void), int count) {
  for (int i = 0; i < count; ++i) path();
}

static void start_pair(void) {
  distag_future* starts[2];
  for (int32_t rank = 0; rank < 2; ++rank) {
    distag_worker_options options = DISTAG_WORKER_OPTIONS_INIT;
    options.rank = rank;
    options.world_size = 2;
    options.rendezvous = "inproc://instructions";
    distag_worker_create(&options, &workers[rank], &err);
    distag_worker_start_async(workers[rank], 60 * DISTAG_SECOND, &starts[rank], &err);
  }
  distag_wait_all(starts, 2, DISTAG_FOREVER, &err);
  for (int i = 0; i < 2; ++i) distag_future_release(starts[i]);
}

static void stop_pair(void) {
  distag_future* ends[2];
  for (int i = 0; i < 2; ++i) distag_worker_shutdown_async(workers[i], 60 * DISTAG_SECOND, &ends[i], &err);
  distag_wait_all(ends, 2, DISTAG_FOREVER, &err);
  for (int i = 0; i < 2; ++i) distag_future_release(ends[i]), distag_worker_release(workers[i]);
}

int main(int argc, char** argv) {
  const int64_t shape[] = {4};
  void (*path)(void) = NULL;
  if (argc != 3) return 2;
  if (strcmp(argv[1], "call") == 0) path = call_once;
  if (strcmp(argv[1], "step") == 0) path = step_once;
  if (strcmp(argv[1], "local") == 0) path = local_once;
  if (path == NULL) return 2;
  distag_rand(7, DISTAG_FLOAT32, shape, 1, &x, &err);
  distag_tensor_set_requires_grad(x, path == call_once ? 0 : 1, &err);
  if (path != local_once) start_pair();
  for (int i = 0; i < 20; ++i) path();
  measured(path, atoi(argv[2]));
  if (path != local_once) stop_pair();
  distag_tensor_release(x);
  if (err.code != DISTAG_OK) fprintf(stderr, "%s\n", err.message);
  return err.code == DISTAG_OK ? 0 : 1;
}
