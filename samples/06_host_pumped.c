/* distag inside a loop at 60 frames per second, as in a game or a robot.
 *
 *   cc 06_host_pumped.c $(pkg-config --cflags --libs distag) -lm -o host_pumped
 *
 * The worker "game" has the host executor: its functions and callbacks run only inside distag_worker_poll, within a
 * budget per frame, so the game needs no locks and never stutters. Everything it starts is asynchronous. The worker
 * "brain", here in the same process, has threads of its own and a model that learns while the game goes on. */
#define _POSIX_C_SOURCE 200809L
#include <distag.h>
#include <stdio.h>
#include <time.h>

enum { kFrames = 180, kRate = 60, kBatch = 16 };
#define FRAME_NS (DISTAG_SECOND / kRate)
#define BUDGET_NS (4 * DISTAG_MILLISECOND)

typedef struct game {
  distag_worker *worker;
  distag_tensor *inputs, *targets;
  int64_t frame;

  /* The learning step that is under way; context is NULL between two. */
  distag_context *context;
  distag_tensor *loss;

  int64_t steps, served;
  double first_loss, last_loss;
  distag_error err;
} game;

/* ---- brain: a linear model, and a step of gradient descent on it ---- */

typedef struct brain {
  distag_tensor *weight;
} brain;

static distag_status predict(void *user_data, distag_invocation *invocation, distag_error *err) {
  brain *self = user_data;
  distag_value *frame = NULL;
  distag_tensor *x = NULL, *y = NULL;
  distag_call_options options = DISTAG_CALL_OPTIONS_INIT;

  /* A call back into the game: it runs there at the next poll, while this thread waits. */
  options.within = invocation;
  distag_call(distag_invocation_get_worker(invocation), NULL, "game", "current_frame", NULL, 0, &options, &frame, err);
  distag_value_release(frame);

  distag_invocation_get_tensor(invocation, 0, &x, err);
  distag_linear(x, self->weight, NULL, &y, err);
  distag_invocation_return(invocation, distag_tensor_as_value(y), err);
  distag_tensor_release(y);
  return err->code;
}

static distag_status learn(void *user_data, distag_invocation *invocation, distag_error *err) {
  brain *self = user_data;
  distag_gradients *gradients = NULL;

  distag_get_gradients(distag_invocation_get_context(invocation), &gradients, err);
  distag_tensor_add_scaled(self->weight, distag_gradients_find(gradients, self->weight), -0.2, err);
  distag_gradients_release(gradients);
  return err->code;
}

/* ---- game: each callback starts what comes next ---- */

static distag_status current_frame(void *user_data, distag_invocation *invocation, distag_error *err) {
  game *self = user_data;
  distag_value *answer = NULL;

  ++self->served;
  distag_value_create_int64(self->frame, &answer, err);
  distag_invocation_return(invocation, answer, err);
  distag_value_release(answer);
  return err->code;
}

static void end_step(game *self) {
  distag_tensor_release(self->loss);
  distag_context_release(self->context);
  self->loss = NULL;
  self->context = NULL;
}

/* Goes on with `next` once the future is complete; the game's err stops it all if something fails. */
static void then(game *self, distag_future *future, distag_future_callback next) {
  distag_future_on_done(future, next, self, NULL, &self->err);
  distag_future_release(future);
  if (self->err.code != DISTAG_OK) end_step(self);
}

static void on_learned(void *user_data, distag_future *future) {
  game *self = user_data;
  distag_value *nothing = NULL;

  distag_future_get_value(future, &nothing, &self->err);
  if (self->err.code == DISTAG_OK) ++self->steps;
  end_step(self);
}

static void on_gradients(void *user_data, distag_future *future) {
  game *self = user_data;
  distag_value *nothing = NULL;
  distag_future *next = NULL;

  distag_future_get_value(future, &nothing, &self->err);
  if (self->err.code == DISTAG_OK) {
    distag_call_async(self->worker, self->context, "brain", "learn", NULL, 0, NULL, &next, &self->err);
  }
  then(self, next, on_learned);
}

static void on_prediction(void *user_data, distag_future *future) {
  game *self = user_data;
  distag_value *answer = NULL;
  distag_tensor *prediction = NULL;
  distag_future *next = NULL;

  distag_future_get_value(future, &answer, &self->err);
  distag_value_get_tensor(answer, &prediction, &self->err);
  distag_mse_loss(prediction, self->targets, &self->loss, &self->err);
  distag_tensor_get_item(self->loss, &self->last_loss, &self->err);
  if (self->steps == 0) self->first_loss = self->last_loss;
  distag_backward_async(self->context, &self->loss, 1, NULL, &next, &self->err);
  then(self, next, on_gradients);
}

static void begin_step(game *self) {
  distag_value *arg = distag_tensor_as_value(self->inputs);
  distag_future *next = NULL;

  distag_context_create(self->worker, &self->context, &self->err);
  distag_call_async(self->worker, self->context, "brain", "predict", &arg, 1, NULL, &next, &self->err);
  then(self, next, on_prediction);
}

/* ---- the loop ---- */

static int64_t now_ns(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (int64_t)time.tv_sec * DISTAG_SECOND + time.tv_nsec;
}

static void wait_until(int64_t when) {
  struct timespec time;
  time.tv_sec = (time_t)(when / DISTAG_SECOND);
  time.tv_nsec = (long)(when % DISTAG_SECOND);
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL) != 0) {
  }
}

/* Returns the longest time that a frame worked. */
static int64_t run_frames(game *self) {
  int64_t next = now_ns(), worst = 0;

  while ((self->frame < kFrames || self->context != NULL) && self->err.code == DISTAG_OK) {
    const int64_t begin = now_ns();
    int64_t took;

    /* The game itself would move and draw here. */
    if (self->context == NULL) begin_step(self);
    distag_worker_poll(self->worker, 0, BUDGET_NS, NULL, &self->err);

    took = now_ns() - begin;
    if (took > worst) worst = took;
    ++self->frame;
    next += FRAME_NS;
    wait_until(next);
  }
  return worst;
}

static distag_worker *create_worker(const char *name, int32_t rank, uint32_t executor, distag_error *err) {
  distag_worker_options options = DISTAG_WORKER_OPTIONS_INIT;
  distag_worker *worker = NULL;
  options.name = name;
  options.rank = rank;
  options.world_size = 2;
  options.executor = executor;
  options.rendezvous = "inproc://host_pumped";
  distag_worker_create(&options, &worker, err);
  return worker;
}

/* A single thread starts, and later shuts down, both workers. It uses the _async twins, since each waits for the
 * other. */
static void start_both(distag_worker *a, distag_worker *b, distag_error *err) {
  distag_future *started[2] = {NULL, NULL};
  distag_worker_start_async(a, 10 * DISTAG_SECOND, &started[0], err);
  distag_worker_start_async(b, 10 * DISTAG_SECOND, &started[1], err);
  distag_wait_all(started, 2, DISTAG_FOREVER, err);
  distag_future_release(started[1]);
  distag_future_release(started[0]);
}

static void shut_down_both(distag_worker *a, distag_worker *b, distag_error *err) {
  distag_future *down = NULL;
  distag_worker_shutdown_async(b, 10 * DISTAG_SECOND, &down, err);
  distag_worker_shutdown(a, 10 * DISTAG_SECOND, NULL, err);
  distag_future_wait(down, DISTAG_FOREVER, err);
  distag_future_release(down);
}

/* Random inputs, and the targets that a hidden weight gives for them. */
static void create_data(game *self, brain *model, distag_error *err) {
  const int64_t inputs_shape[2] = {kBatch, 2}, weight_shape[2] = {1, 2};
  const float data[2] = {1.5f, -0.5f};
  distag_tensor *hidden = NULL;

  distag_randn(7, DISTAG_FLOAT32, inputs_shape, 2, &self->inputs, err);
  distag_tensor_create(data, sizeof data, DISTAG_FLOAT32, weight_shape, 2, &hidden, err);
  distag_linear(self->inputs, hidden, NULL, &self->targets, err);
  distag_tensor_release(hidden);
  distag_zeros(DISTAG_FLOAT32, weight_shape, 2, &model->weight, err);
  distag_tensor_set_requires_grad(model->weight, 1, err);
}

int main(void) {
  game self = {0};
  brain model = {0};
  distag_error *err = &self.err;
  distag_worker *other;
  int64_t worst;

  self.worker = create_worker("game", 0, DISTAG_EXECUTOR_HOST, err);
  other = create_worker("brain", 1, DISTAG_EXECUTOR_POOL, err);
  distag_worker_register(self.worker, "current_frame", current_frame, &self, NULL, NULL, err);
  distag_worker_register(other, "predict", predict, &model, NULL, NULL, err);
  distag_worker_register(other, "learn", learn, &model, NULL, NULL, err);
  create_data(&self, &model, err);
  start_both(self.worker, other, err);

  worst = run_frames(&self);

  shut_down_both(self.worker, other, err);
  end_step(&self);
  distag_tensor_release(self.inputs);
  distag_tensor_release(self.targets);
  distag_tensor_release(model.weight);
  distag_worker_release(other);
  distag_worker_release(self.worker);

  if (err->code != DISTAG_OK) {
    fprintf(stderr, "%s: %s\n", distag_status_get_name(err->code), err->message);
    return 1;
  }
  printf("frames     %d at %d per second\n", (int)self.frame, kRate);
  printf("learned    %d steps, loss %.4f -> %.4f\n", (int)self.steps, self.first_loss, self.last_loss);
  printf("served     %d calls of the brain\n", (int)self.served);
  printf("worst      %.2f ms of %.2f in a frame\n", (double)worst / 1e6, (double)FRAME_NS / 1e6);
  printf("handles    %d left\n", (int)distag_get_handle_count());
  return 0;
}
