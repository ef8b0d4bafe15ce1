/* A cart in MuJoCo that learns to balance its pole while physics runs in real time. The first layer of its policy is
 * here, the others are at the learner, in another process. The policy learns to do as a regulator does, which holds the
 * pole while the learner is slow or gone. No step of physics waits: each answer of the learner is a future with a
 * callback, which distag_worker_poll runs in the loop. */
#define _POSIX_C_SOURCE 200809L
#include <distag.h>
#include <math.h>
#include <mujoco/mujoco.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { kInputs = 4, kWidth = 32, kBatch = 32, kMemory = 4096, kForward = 0, kBackward, kUpdate };
enum { kFresh = 10, kPush = 100, kRetry = 250, kReport = 500 }; /* steps of physics, of 2 ms each */

typedef struct robot {
  distag_worker *worker;
  distag_tensor *weight, *bias; /* the first layer */
  distag_optimizer *optimizer;  /* steps all layers, here and there; NULL until the learner is known */
  distag_context *context;      /* the step of training under way; NULL between two */
  distag_tensor *targets, *loss;
  int is_started, is_lost, is_asking, phase;
  long frame, next_try, asked_at, answered_at, policy_steps, training_steps, falls;
  double force, last_loss;
  distag_error err;                                /* ends the program */
  float states[kMemory][kInputs], forces[kMemory]; /* the latest states, and the regulator's force in each */
} robot;
static robot self = {.next_try = kReport}; /* a global: mjcb_control has no argument for it */
static volatile sig_atomic_t is_left;
static void leave(int signal) { is_left = signal; }

/* The policy: its first layer, then a call of the rest, [N, 32] to [N, 1]. */
static distag_status ask(distag_context *context, const float *states, int64_t count, distag_future_callback next,
                         distag_error *err) {
  const int64_t shape[2] = {count, kInputs};
  distag_tensor *x = NULL, *sum = NULL, *hidden = NULL;
  distag_future *answer = NULL;
  distag_value *arg;
  distag_tensor_create(states, sizeof(float) * kInputs * (size_t)count, DISTAG_FLOAT32, shape, 2, &x, err);
  distag_linear(x, self.weight, self.bias, &sum, err);
  distag_tanh(sum, &hidden, err);
  arg = distag_tensor_as_value(hidden);
  distag_call_async(self.worker, context, "learner", "forward", &arg, 1, NULL, &answer, err);
  distag_future_on_done(answer, next, NULL, NULL, err);
  distag_future_release(answer), distag_tensor_release(hidden), distag_tensor_release(sum), distag_tensor_release(x);
  return err->code;
}

/* ---- A step of training: the learner's answer, the backward pass and the optimizer's step, a future for each. ---- */

/* Without the learner physics goes on, and says so once. The optimizer's state went with the learner. */
static void end_step(const distag_error *err) {
  distag_tensor_release(self.loss), distag_tensor_release(self.targets);
  distag_context_release(self.context);
  self.loss = self.targets = NULL, self.context = NULL, self.phase = kForward;
  if (err->code == DISTAG_OK) {
    if (self.is_lost) printf("robot: trains again\n");
    ++self.training_steps, self.is_lost = 0;
  } else if (!is_left) {
    if (!self.is_lost) printf("robot: goes on without the learner: %s\n", distag_status_get_name(err->code));
    distag_optimizer_release(self.optimizer);
    self.optimizer = NULL, self.is_lost = 1, self.next_try = self.frame + kRetry;
  }
}

/* Goes on with the step as each of its three futures is complete. */
static void go_on(void *user_data, distag_future *future) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_tensor *guesses = NULL;
  distag_future *next = NULL;
  distag_value *answer = NULL;
  (void)user_data;
  distag_future_get_value(future, &answer, &err);
  if (self.phase == kForward) {
    distag_value_get_tensor(answer, &guesses, &err);
    distag_mse_loss(guesses, self.targets, &self.loss, &err);
    distag_tensor_get_item(self.loss, &self.last_loss, &err);
    distag_backward_async(self.context, &self.loss, 1, NULL, &next, &err); /* through both processes */
  } else if (self.phase == kBackward && err.code == DISTAG_OK) {
    distag_optimizer_step_async(self.optimizer, self.context, NULL, &next, &err); /* at both */
  }
  if (self.phase++ != kUpdate) distag_future_on_done(next, go_on, NULL, NULL, &err);
  distag_future_release(next);
  if (self.phase > kUpdate || err.code != DISTAG_OK) end_step(&err);
}

static void begin_step(void) {
  const int64_t shape[2] = {kBatch, 1};
  distag_error err = DISTAG_ERROR_INIT;
  float states[kBatch][kInputs], forces[kBatch];
  if (self.optimizer == NULL) {
    distag_rref *remote = NULL; /* they stay there, and are stepped there */
    distag_remote(self.worker, NULL, "learner", "parameters", NULL, 0, NULL, &remote, &err);
    distag_value *parameters[] = {distag_tensor_as_value(self.weight), distag_tensor_as_value(self.bias),
                                  distag_rref_as_value(remote)};
    distag_optimizer_create(self.worker, "adam", parameters, 3, &self.optimizer, &err);
    distag_optimizer_set(self.optimizer, "lr", 0.005, &err);
    distag_rref_release(remote);
  }
  for (int i = 0; i < kBatch; ++i) {
    const int one = rand() % (self.frame < kMemory ? (int)self.frame : kMemory);
    memcpy(states[i], self.states[one], sizeof states[i]);
    forces[i] = self.forces[one];
  }
  distag_tensor_create(forces, sizeof forces, DISTAG_FLOAT32, shape, 2, &self.targets, &err);
  distag_context_create(self.worker, &self.context, &err);
  if (err.code != DISTAG_OK || ask(self.context, states[0], kBatch, go_on, &err) != DISTAG_OK) end_step(&err);
}

/* ---- The controller: MuJoCo calls it in each step of physics. ---- */

static void on_force(void *user_data, distag_future *future) {
  distag_tensor *force = NULL;
  distag_value *answer = NULL;
  (void)user_data;
  distag_future_get_value(future, &answer, NULL);
  distag_value_get_tensor(answer, &force, NULL);
  if (distag_tensor_get_item(force, &self.force, NULL) == DISTAG_OK) self.answered_at = self.asked_at;
  self.is_asking = 0;
}

static void control(const mjModel *model, mjData *data) {
  const double x = data->qpos[0], angle = data->qpos[1], speed = data->qvel[0], turn = data->qvel[1];
  const float state[kInputs] = {(float)(2 * x), (float)(5 * angle), (float)speed, (float)(2 * turn)};
  const double force = tanh(0.5 * x + 6 * angle + 0.8 * speed + 1.5 * turn); /* the regulator's */
  const int is_fresh = self.answered_at > 0 && self.frame - self.answered_at <= kFresh;
  (void)model;
  memcpy(self.states[(self.frame - 1) % kMemory], state, sizeof state);
  self.forces[(self.frame - 1) % kMemory] = (float)force;
  if (self.is_started && !self.is_lost && !self.is_asking) {
    self.is_asking = ask(NULL, state, 1, on_force, &(distag_error)DISTAG_ERROR_INIT) == DISTAG_OK;
    self.asked_at = self.frame;
  }
  data->ctrl[0] = is_fresh ? self.force : force;
  self.policy_steps += is_fresh;
}

/* A push now and then; a pole that fell is stood up. */
static void disturb(const mjModel *model, mjData *data) {
  if (self.frame % kPush == 1) data->qvel[1] += mju_standardNormal(NULL);
  if (fabs(data->qpos[0]) < 2 && fabs(data->qpos[1]) < 0.6) return;
  mj_resetData(model, data);
  data->qpos[1] = 0.1 * mju_standardNormal(NULL), ++self.falls;
}

static void on_started(void *user_data, distag_future *future) {
  distag_value *nothing;
  (void)user_data;
  self.is_started = distag_future_get_value(future, &nothing, is_left ? NULL : &self.err) == DISTAG_OK;
  if (!self.is_started) is_left = 1;
}

static void run(const mjModel *model, mjData *data) {
  struct timespec due = {0, 0}, now;
  while (!is_left) {
    ++self.frame;
    disturb(model, data);
    mj_step(model, data);
    if (self.is_started && self.context == NULL && self.frame >= self.next_try) begin_step();
    distag_worker_poll(self.worker, 0, DISTAG_MILLISECOND, NULL, NULL); /* half of a step at most; never waits */
    if (self.frame % kReport == 0 && self.training_steps > 0) {
      printf("robot: frame %ld, step %ld, loss %.4f, %ld %% by the policy, %ld falls\n", self.frame,
             self.training_steps, self.last_loss, 100 * self.policy_steps / self.frame, self.falls);
    }
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (now.tv_sec > due.tv_sec + 1) due = now; /* steps that were missed by a second are not made up for */
    due.tv_nsec += 2 * DISTAG_MILLISECOND;
    if (due.tv_nsec >= DISTAG_SECOND) due.tv_nsec -= DISTAG_SECOND, ++due.tv_sec;
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, NULL);
  }
}

int main(int argc, char **argv) {
  const int64_t shape[2] = {kWidth, kInputs};
  char problem[300] = "usage: robot cart_and_pole.xml";
  distag_worker_options options = DISTAG_WORKER_OPTIONS_INIT;
  distag_future *started = NULL;
  distag_error *err = &self.err;
  mjModel *model = argc == 2 ? mj_loadXML(argv[1], NULL, problem, sizeof problem) : NULL;
  if (model == NULL) return fprintf(stderr, "robot: %s\n", problem), 2;
  mjData *data = mj_makeData(model);
  setvbuf(stdout, NULL, _IOLBF, 0), signal(SIGINT, leave), signal(SIGTERM, leave);
  options.name = "robot", options.executor = DISTAG_EXECUTOR_HOST;
  distag_randn(100, DISTAG_FLOAT32, shape, 2, &self.weight, err);
  distag_zeros(DISTAG_FLOAT32, shape, 1, &self.bias, err);
  distag_tensor_set_requires_grad(self.weight, 1, err), distag_tensor_set_requires_grad(self.bias, 1, err);
  distag_worker_create(&options, &self.worker, err); /* rank, size and address: from distag run */
  distag_worker_start_async(self.worker, 30 * DISTAG_SECOND, &started, err);
  distag_future_on_done(started, on_started, NULL, NULL, err);
  distag_future_release(started);
  mjcb_control = control;
  if (err->code == DISTAG_OK) run(model, data);
  distag_worker_shutdown(self.worker, DISTAG_SECOND, NULL, err); /* in whatever step: its futures complete */
  if (err->code != DISTAG_OK) fprintf(stderr, "robot: %s\n", err->message);
  distag_tensor_release(self.bias), distag_tensor_release(self.weight), distag_optimizer_release(self.optimizer);
  distag_worker_release(self.worker), mj_deleteData(data), mj_deleteModel(model);
  return err->code != DISTAG_OK;
}
