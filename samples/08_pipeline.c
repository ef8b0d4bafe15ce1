/* A pipeline: a model whose three stages live in three processes, and a batch that goes through them in pieces.
 *
 *   cc 08_pipeline.c $(pkg-config --cflags --libs distag) -o pipeline
 *   OPENBLAS_NUM_THREADS=1 distag run -n 4 ./pipeline      (a stage is one core here: it is the stages that overlap)
 *
 * While the second stage works on the first micro-batch, the first stage works on the second one. Nothing but
 * asynchronous calls is needed for that: distag_remote leaves what a stage computes with that stage and names it by an
 * rref, which goes to the next stage, which fetches it there itself. The driver sees the outputs of the last stage only
 * and begins a backward pass as soon as one arrives; the passes overlap too, and their gradients add up in the context.
 * The same step is then done without overlap, one micro-batch after the other: slower, with the same gradients. */
#define _POSIX_C_SOURCE 200809L
#include <distag.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { kStages = 3, kWidth = 768, kMicroBatches = 8, kRows = 128, kRounds = 6 };
static const char *const kNames[kStages + 1] = {"driver", "stage1", "stage2", "stage3"};

static int report(const char *who, const distag_error *err) {
  if (err->code == DISTAG_OK) return 0;
  fprintf(stderr, "%s: %s: %s\n", who, distag_status_get_name(err->code), err->message);
  return 1;
}

static distag_worker *create_worker(int rank, distag_error *err) {
  distag_worker_options options = DISTAG_WORKER_OPTIONS_INIT; /* size and address come from distag run */
  distag_worker *worker = NULL;
  options.name = kNames[rank];
  distag_worker_create(&options, &worker, err);
  return worker;
}

/* ---- a stage: tanh(linear(x)) ---- */

static distag_tensor *create_weight(int rank, distag_error *err) {
  const int64_t shape[2] = {kWidth, kWidth};
  distag_tensor *random = NULL, *weight = NULL;
  distag_randn((uint64_t)rank, DISTAG_FLOAT32, shape, 2, &random, err);
  distag_mul_scalar(random, 1 / sqrt(kWidth), &weight, err);
  distag_tensor_set_requires_grad(weight, 1, err);
  distag_tensor_release(random);
  return weight;
}

/* The activations come with the call, or stay with the stage before until they are fetched. */
static distag_status forward(void *weight, distag_invocation *invocation, distag_error *err) {
  distag_call_options options = DISTAG_CALL_OPTIONS_INIT;
  distag_value *input = distag_invocation_get_arg(invocation, 0), *fetched = NULL;
  distag_rref *before = NULL;
  distag_tensor *x = NULL, *sum = NULL, *y = NULL;

  if (distag_value_get_kind(input) == DISTAG_VALUE_RREF) {
    options.within = invocation;
    distag_value_get_rref(input, &before, err);
    distag_rref_fetch(before, distag_invocation_get_context(invocation), &options, &fetched, err);
    input = fetched;
  }
  distag_value_get_tensor(input, &x, err);
  distag_linear(x, weight, NULL, &sum, err);
  distag_tanh(sum, &y, err);
  distag_invocation_return(invocation, distag_tensor_as_value(y), err);
  distag_tensor_release(y);
  distag_tensor_release(sum);
  distag_value_release(fetched);
  return err->code;
}

/* The context's gradient of this stage's weight. */
static distag_status gradient(void *weight, distag_invocation *invocation, distag_error *err) {
  distag_gradients *gradients = NULL;
  distag_get_gradients(distag_invocation_get_context(invocation), &gradients, err);
  distag_invocation_return(invocation, distag_tensor_as_value(distag_gradients_find(gradients, weight)), err);
  distag_gradients_release(gradients);
  return err->code;
}

static int run_stage(int rank) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_worker *worker = create_worker(rank, &err);
  distag_tensor *weight = create_weight(rank, &err);

  distag_worker_register(worker, "forward", forward, weight, NULL, NULL, &err);
  distag_worker_register(worker, "gradient", gradient, weight, NULL, NULL, &err);
  distag_worker_start(worker, 30 * DISTAG_SECOND, &err);
  distag_worker_shutdown(worker, DISTAG_FOREVER, NULL, &err);
  distag_worker_release(worker);
  distag_tensor_release(weight);
  return report(kNames[rank], &err);
}

/* ---- the driver ---- */

typedef struct driver {
  distag_worker *worker;
  distag_tensor *inputs[kMicroBatches], *targets[kMicroBatches];
} driver;

/* A way of doing the step, and its results. */
typedef struct schedule {
  int overlap;
  int most_open;  /* micro-batches on their way at the same time */
  double seconds; /* the shortest of its rounds */
  distag_value *gradients[kStages];
} schedule;

/* Sends one micro-batch on its way; returns at once. An rref may be released as soon as it has been passed on. */
static distag_future *start_forward(driver *self, distag_context *context, int index, distag_error *err) {
  distag_value *arg = distag_tensor_as_value(self->inputs[index]);
  distag_rref *first = NULL, *second = NULL;
  distag_future *output = NULL;

  distag_remote(self->worker, context, "stage1", "forward", &arg, 1, NULL, &first, err);
  arg = distag_rref_as_value(first);
  distag_remote(self->worker, context, "stage2", "forward", &arg, 1, NULL, &second, err);
  arg = distag_rref_as_value(second);
  distag_call_async(self->worker, context, "stage3", "forward", &arg, 1, NULL, &output, err);
  distag_rref_release(second);
  distag_rref_release(first);
  return output;
}

/* Waits for the output of one micro-batch and begins its backward pass; returns the pass. */
static distag_future *start_backward(driver *self, distag_context *context, int index, distag_future *output,
                                     distag_error *err) {
  distag_value *answer = NULL; /* lent by the future */
  distag_tensor *y = NULL, *loss = NULL;
  distag_future *pass = NULL;

  distag_future_wait(output, DISTAG_FOREVER, err);
  distag_future_get_value(output, &answer, err);
  distag_value_get_tensor(answer, &y, err);
  distag_mse_loss(y, self->targets[index], &loss, err);
  distag_backward_async(context, &loss, 1, NULL, &pass, err);
  distag_tensor_release(loss);
  return pass;
}

/* How many of the micro-batches that have been started are still on their way. */
static int count_open(distag_future *const *outputs, int started) {
  int open = 0, i;
  for (i = 0; i < started; ++i) open += !distag_future_poll(outputs[i]);
  return open;
}

static void run_step(driver *self, distag_context *context, schedule *how, distag_error *err) {
  distag_future *outputs[kMicroBatches] = {NULL}, *passes[kMicroBatches] = {NULL};
  int i, open;

  for (i = 0; i < kMicroBatches && err->code == DISTAG_OK; ++i) {
    outputs[i] = start_forward(self, context, i, err);
    open = count_open(outputs, i + 1);
    if (open > how->most_open) how->most_open = open;
    if (how->overlap) continue;
    passes[i] = start_backward(self, context, i, outputs[i], err);
    distag_future_wait(passes[i], DISTAG_FOREVER, err);
  }
  for (i = 0; i < kMicroBatches && how->overlap && err->code == DISTAG_OK; ++i) {
    passes[i] = start_backward(self, context, i, outputs[i], err);
  }
  distag_wait_all(passes, kMicroBatches, DISTAG_FOREVER, err);
  for (i = 0; i < kMicroBatches; ++i) {
    distag_future_release(passes[i]);
    distag_future_release(outputs[i]);
  }
}

static double now_seconds(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

/* A step in a context of its own; keeps its time and its gradients. */
static void measure(driver *self, schedule *how, distag_error *err) {
  distag_context *context = NULL;
  const double begin = now_seconds();
  double took;
  int i;

  distag_context_create(self->worker, &context, err);
  run_step(self, context, how, err);
  took = now_seconds() - begin;
  if (how->seconds == 0 || took < how->seconds) how->seconds = took;
  for (i = 0; i < kStages && err->code == DISTAG_OK; ++i) {
    distag_value_release(how->gradients[i]);
    distag_call(self->worker, context, kNames[i + 1], "gradient", NULL, 0, NULL, &how->gradients[i], err);
  }
  distag_context_release(context);
}

/* To the last bit: a context adds up its passes in the order in which they began, whichever ended first. */
static int are_equal(distag_value *a, distag_value *b, distag_error *err) {
  distag_tensor *x = NULL, *y = NULL;
  distag_value_get_tensor(a, &x, err);
  distag_value_get_tensor(b, &y, err);
  return err->code == DISTAG_OK &&
         memcmp(distag_tensor_get_data(x), distag_tensor_get_data(y), distag_tensor_get_size(y)) == 0;
}

static int print_results(const schedule *piped, const schedule *plain, distag_error *err) {
  int equal = 1, i;
  for (i = 0; i < kStages; ++i) equal &= are_equal(piped->gradients[i], plain->gradients[i], err);
  if (err->code != DISTAG_OK) return 0;
  printf("one after the other  %6.1f ms a step, at most %d on the way\n", plain->seconds * 1e3, plain->most_open);
  printf("overlapping          %6.1f ms a step, at most %d on the way\n", piped->seconds * 1e3, piped->most_open);
  printf("ratio                %6.2f\n", piped->seconds / plain->seconds);
  printf("gradients            %s\n", equal ? "equal" : "DIFFER");
  return equal;
}

static int run_driver(void) {
  const int64_t shape[2] = {kRows, kWidth};
  distag_error err = DISTAG_ERROR_INIT;
  driver self = {create_worker(0, &err), {NULL}, {NULL}};
  schedule piped = {1, 0, 0, {NULL}}, plain = {0, 0, 0, {NULL}};
  int i, equal;

  for (i = 0; i < kMicroBatches; ++i) {
    distag_randn((uint64_t)(100 + i), DISTAG_FLOAT32, shape, 2, &self.inputs[i], &err);
    distag_randn((uint64_t)(200 + i), DISTAG_FLOAT32, shape, 2, &self.targets[i], &err);
  }
  distag_worker_start(self.worker, 30 * DISTAG_SECOND, &err);
  for (i = 0; i < kRounds && err.code == DISTAG_OK; ++i) {
    measure(&self, &plain, &err);
    measure(&self, &piped, &err);
  }
  equal = print_results(&piped, &plain, &err);
  for (i = 0; i < kStages; ++i) {
    distag_value_release(piped.gradients[i]);
    distag_value_release(plain.gradients[i]);
  }
  for (i = 0; i < kMicroBatches; ++i) {
    distag_tensor_release(self.inputs[i]);
    distag_tensor_release(self.targets[i]);
  }
  distag_worker_shutdown(self.worker, 30 * DISTAG_SECOND, NULL, &err);
  distag_worker_release(self.worker);
  return report(kNames[0], &err) || !equal;
}

int main(int argc, char **argv) {
  distag_environment place = DISTAG_ENVIRONMENT_INIT; /* of distag run, torchrun, srun ... */
  distag_error err = DISTAG_ERROR_INIT;
  if (argc > 1 || distag_get_environment(&place, &err) || place.rank < 0 || place.rank > kStages) {
    return fprintf(stderr, "usage: distag run -n 4 %s\n%s\n", argv[0], err.message), 2;
  }
  return place.rank == 0 ? run_driver() : run_stage(place.rank);
}
