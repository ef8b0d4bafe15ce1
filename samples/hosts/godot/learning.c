/* Training for a game in Godot: the first layer of the model is here, in the game, the others are the learner's, in
 * another process. Procedures for GDNative.call_native("standard_varcall", name, args), none of which waits:
 *
 *   learning_start()         begins to meet the learner
 *   learning_train(numbers)  begins a step; three numbers for each of at most 256 balls: height, slope, where it lands
 *   learning_poll()          carries on what was begun: null until it ends, then the loss (0.0 after a start), or the
 *                            name of the error, after which either may be begun again
 *
 * Begin one thing at a time. All of it runs on the thread of the frames. */
#include <distag.h>
#include <stdio.h>

#include "gdnative.h"

enum { kWidth = 32, kInputs = 2, kNumbers = kInputs + 1, kMostBalls = 256 };
typedef enum phase { kNothing, kStart, kForward, kBackward, kUpdate, kDone } phase;

static const godot_api *api;
static const godot_variant kNull; /* all zero */
static distag_worker *worker;
static distag_tensor *weight, *bias;
static distag_optimizer *optimizer; /* NULL before the first step, and after one that has failed */
static distag_error err;

/* The phase that is under way, and the future that it waits for. */
static phase current;
static distag_future *future;
static distag_context *context;
static distag_tensor *landings, *loss;

static void create_worker(void) {
  const int64_t shape[] = {kWidth, kInputs};
  distag_worker_options options = DISTAG_WORKER_OPTIONS_INIT;
  options.name = "game";
  options.executor = DISTAG_EXECUTOR_HOST;
  if (distag_worker_create(&options, &worker, &err) != DISTAG_OK) return; /* rank, size, address: from distag run */
  distag_randn(100, DISTAG_FLOAT32, shape, 2, &weight, &err);
  distag_zeros(DISTAG_FLOAT32, shape, 1, &bias, &err);
  distag_tensor_set_requires_grad(weight, 1, &err);
  distag_tensor_set_requires_grad(bias, 1, &err);
}

/* The state of the parameters at the learner goes with the learner, so each one that comes needs a new optimizer. */
static void create_optimizer(void) {
  distag_rref *remote = NULL; /* they stay there, and are stepped there */
  distag_remote(worker, NULL, "learner", "parameters", NULL, 0, NULL, &remote, &err);
  distag_value *parameters[] = {distag_tensor_as_value(weight), distag_tensor_as_value(bias),
                                distag_rref_as_value(remote)};
  distag_optimizer_create(worker, "adam", parameters, 3, &optimizer, &err);
  distag_optimizer_set(optimizer, "lr", 0.005, &err);
  distag_rref_release(remote);
}

static void begin_forward(distag_tensor *balls) {
  distag_tensor *sum = NULL, *hidden = NULL;
  distag_linear(balls, weight, bias, &sum, &err);
  distag_tanh(sum, &hidden, &err);
  distag_value *arg = distag_tensor_as_value(hidden);
  distag_context_create(worker, &context, &err);
  distag_call_async(worker, context, "learner", "forward", &arg, 1, NULL, &future, &err);
  distag_tensor_release(hidden);
  distag_tensor_release(sum);
}

static void begin_backward(distag_value *guesses) {
  distag_tensor *guessed = NULL;
  distag_value_get_tensor(guesses, &guessed, &err);
  distag_mse_loss(guessed, landings, &loss, &err);
  distag_backward_async(context, &loss, 1, NULL, &future, &err); /* through both processes */
}

/* The answer is there: begins the next phase. */
static void advance(void) {
  distag_future *done = future;
  distag_value *answer = NULL;
  future = NULL;
  if (distag_future_get_value(done, &answer, &err) == DISTAG_OK) {
    if (current == kForward) begin_backward(answer);
    if (current == kBackward) distag_optimizer_step_async(optimizer, context, NULL, &future, &err); /* at both */
    current = future == NULL ? kDone : current + 1;
  }
  distag_future_release(done);
}

static void end_step(void) {
  distag_future_release(future);
  distag_tensor_release(loss);
  distag_tensor_release(landings);
  distag_context_release(context);
  future = NULL;
  loss = landings = NULL;
  context = NULL;
  current = kNothing;
}

/* ---- procedures ---- */

GODOT_EXPORT godot_variant learning_start(const godot_array *args) {
  (void)args;
  if (worker == NULL) create_worker();
  distag_worker_start_async(worker, 30 * DISTAG_SECOND, &future, &err);
  current = kStart;
  return kNull;
}

GODOT_EXPORT godot_variant learning_train(const godot_array *args) {
  float balls[kMostBalls][kInputs], lands[kMostBalls];
  const int count = api->array_size(args) / kNumbers, rows = count < kMostBalls ? count : kMostBalls;
  const int64_t shape[] = {rows, kInputs}, shape_of_landings[] = {rows, 1};
  for (int i = 0; i < rows * kNumbers; ++i) {
    const godot_variant number = api->array_get(args, i);
    const int row = i / kNumbers, column = i % kNumbers;
    *(column < kInputs ? &balls[row][column] : &lands[row]) = (float)api->variant_as_real(&number);
  }
  distag_tensor *x = NULL;
  if (optimizer == NULL) create_optimizer();
  distag_tensor_create(balls, (size_t)rows * sizeof balls[0], DISTAG_FLOAT32, shape, 2, &x, &err);
  distag_tensor_create(lands, (size_t)rows * sizeof lands[0], DISTAG_FLOAT32, shape_of_landings, 2, &landings, &err);
  begin_forward(x);
  distag_tensor_release(x);
  current = kForward;
  return kNull;
}

GODOT_EXPORT godot_variant learning_poll(const godot_array *args) {
  (void)args;
  if (current == kNothing) return kNull;
  distag_worker_poll(worker, 0, DISTAG_MILLISECOND, NULL, &err);
  while (future != NULL && distag_future_poll(future)) advance();
  if (err.code == DISTAG_OK && current != kDone) return kNull;
  godot_variant end;
  double item = 0;
  if (loss != NULL) distag_tensor_get_item(loss, &item, &err);
  end_step();
  if (err.code == DISTAG_OK) {
    api->variant_new_real(&end, item);
    return end;
  }
  godot_string name = api->string_from_utf8(distag_status_get_name(err.code));
  api->variant_new_string(&end, &name);
  api->string_destroy(&name);
  distag_optimizer_release(optimizer);
  optimizer = NULL;
  err.code = DISTAG_OK;
  return end;
}

/* ---- life ---- */

GODOT_EXPORT void godot_gdnative_init(const godot_init_options *options) { api = options->api; }

/* Leaves the group, in the middle of a step too. Godot unloads the library after this, and distag with it. */
GODOT_EXPORT void godot_gdnative_terminate(const void *options) {
  (void)options;
  distag_worker_shutdown(worker, 0, NULL, &err); /* what is open ends with CANCELLED */
  end_step();
  distag_optimizer_release(optimizer);
  distag_tensor_release(weight);
  distag_tensor_release(bias);
  distag_worker_release(worker);
  if (distag_get_handle_count() != 0) fprintf(stderr, "game: %d handles left\n", (int)distag_get_handle_count());
}
