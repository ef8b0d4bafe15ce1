/* Workers are killed while a model trains, and started again: training goes on and ends as if nothing had happened.
 *
 *   cc 10_elastic.c $(pkg-config --cflags --libs distag) -lm -o elastic && distag run -n 1 ./elastic
 *
 * The workers "lower" and "upper" own a layer each, behind a remote reference. The trainer has the data, and every ten
 * steps takes a checkpoint: it fetches both layers, and what the optimizer keeps. A worker that is killed takes its
 * layer with it, and whatever needed it fails with DISCONNECTED. Then the trainer
 *
 *   1. starts the process anew under the same name and rank, and waits until on_member reports the new member;
 *   2. makes both layers again from the checkpoint, with new references and a new optimizer. The layer of the survivor
 *      too: it may have applied a step that the other has not;
 *   3. repeats the steps since the checkpoint, each in a new context.
 *
 * It trains twice, undisturbed and with a kill at each delicate point of a step, and compares the last losses. */
#define _GNU_SOURCE
#include <distag.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>

enum { kRanks = 3, kOwners = 2, kSteps = 200, kStepsPerCheckpoint = 10, kPoints = 64, kHidden = 32 };
#define PATIENCE (20 * DISTAG_SECOND) /* nothing here waits longer */
static const char *const kNames[kRanks] = {"trainer", "lower", "upper"};
static pid_t children[kRanks];
extern char **environ;

/* ---- what the owner of a layer offers ---- */

/* A tensor becomes a parameter: called by distag_remote, it stays where it is. */
static distag_status create_layer(void *user_data, distag_invocation *invocation, distag_error *err) {
  distag_tensor *weight = NULL;
  (void)user_data;
  distag_invocation_get_tensor(invocation, 0, &weight, err);
  distag_tensor_set_requires_grad(weight, 1, err);
  distag_invocation_return(invocation, distag_tensor_as_value(weight), err);
  return err->code;
}

/* A reference to a layer, and its input. */
static distag_status run_layer(void *user_data, distag_invocation *invocation, distag_error *err) {
  distag_tensor *weight = NULL, *x = NULL, *sum = NULL, *y = NULL;
  (void)user_data;
  distag_invocation_get_tensor(invocation, 0, &weight, err);
  distag_invocation_get_tensor(invocation, 1, &x, err);
  distag_linear(x, weight, NULL, &sum, err);
  distag_tanh(sum, &y, err);
  distag_invocation_return(invocation, distag_tensor_as_value(y), err);
  distag_tensor_release(y);
  distag_tensor_release(sum);
  return err->code;
}

/* ---- the model, and its checkpoint ---- */

typedef struct trainer {
  distag_worker *worker;
  int32_t states[kRanks]; /* of the members, as on_member was told */
  distag_tensor *x, *target;
  distag_rref *layers[kOwners];
  distag_optimizer *optimizer;
  distag_value *saved; /* the checkpoint: both layers, and what the optimizer keeps once it has stepped */
  int saved_step, step, kills, repeated, is_disturbed;
  double loss;
} trainer;

static void on_member(void *user_data, distag_worker *worker, const distag_member *member) {
  trainer *self = user_data;
  (void)worker;
  self->states[member->rank] = member->state;
}

/* The rank of a member that is lost; 0, which is the trainer itself, if none is. */
static int find_lost(const trainer *self) {
  int rank = kRanks - 1;
  while (rank > 0 && self->states[rank] != DISTAG_MEMBER_LOST) --rank;
  return rank;
}

static void wait_for_news(trainer *self, distag_error *err) {
  struct pollfd ready = {(int)distag_worker_get_fd(self->worker), POLLIN, 0};
  if (poll(&ready, 1, (int)(PATIENCE / DISTAG_MILLISECOND)) == 0) {
    distag_error_set(err, DISTAG_E_DEADLINE, "no member was lost or came back");
  }
  distag_worker_poll(self->worker, 0, DISTAG_FOREVER, NULL, err);
}

/* Failures that can happen at any time, here at the worst of times. */
enum moment { kInForward, kInBackward, kInUpdate, kInSave, kInRecovery, kKills };
static const struct { int step, rank; } kPlan[kKills] = {{25, 2}, {58, 1}, {93, 2}, {120, 1}, {120, 2}};

static void maybe_kill(trainer *self, enum moment moment) {
  if (!self->is_disturbed || self->kills != (int)moment || self->step != kPlan[moment].step) return;
  kill(children[kPlan[moment].rank], SIGKILL);
  ++self->kills;
}

static void release_model(trainer *self) {
  for (int i = 0; i < kOwners; ++i) distag_rref_release(self->layers[i]), self->layers[i] = NULL;
  distag_optimizer_release(self->optimizer), self->optimizer = NULL;
}

static void keep_checkpoint(trainer *self, distag_value *made, int step) {
  distag_value_release(self->saved);
  self->saved = made;
  self->saved_step = step;
}

/* Makes the model of the checkpoint again, on the workers of this moment. */
static void restore(trainer *self, distag_error *err) {
  distag_value *parameters[kOwners], *state = distag_value_get_item(self->saved, kOwners);
  release_model(self);
  for (size_t i = 0; i < kOwners; ++i) {
    distag_value *weight = distag_value_get_item(self->saved, i);
    distag_remote(self->worker, NULL, kNames[1 + i], "create_layer", &weight, 1, NULL, &self->layers[i], err);
    parameters[i] = distag_rref_as_value(self->layers[i]);
  }
  distag_optimizer_create(self->worker, "adam", parameters, kOwners, &self->optimizer, err);
  distag_optimizer_set(self->optimizer, "lr", 0.02, err);
  if (state != NULL) distag_optimizer_load(self->optimizer, state, NULL, err);
  self->step = self->saved_step;
}

/* A new checkpoint takes the place of the old one once it is whole. */
static void save(trainer *self, distag_error *err) {
  distag_value *items[kOwners + 1] = {NULL}, *made = NULL;
  maybe_kill(self, kInSave);
  for (int i = 0; i < kOwners; ++i) distag_rref_fetch(self->layers[i], NULL, NULL, &items[i], err);
  distag_optimizer_save(self->optimizer, NULL, &items[kOwners], err);
  distag_value_create_list(items, kOwners + 1, &made, err);
  if (err->code == DISTAG_OK) keep_checkpoint(self, made, self->step);
  for (int i = 0; i <= kOwners; ++i) distag_value_release(items[i]);
}

static void train_step(trainer *self, distag_error *err) {
  distag_context *context = NULL;
  distag_value *answers[kOwners] = {NULL};
  distag_tensor *activation = self->x, *loss = NULL; /* activations are lent by the answers */
  distag_future *passed = NULL, *stepped = NULL;

  distag_context_create(self->worker, &context, err);
  for (int i = 0; i < kOwners; ++i) {
    distag_value *args[2] = {distag_rref_as_value(self->layers[i]), distag_tensor_as_value(activation)};
    if (i == 1) maybe_kill(self, kInForward);
    distag_call(self->worker, context, kNames[1 + i], "run_layer", args, 2, NULL, &answers[i], err);
    distag_value_get_tensor(answers[i], &activation, err);
  }
  distag_mse_loss(activation, self->target, &loss, err);
  distag_tensor_get_item(loss, &self->loss, err);
  distag_backward_async(context, &loss, 1, NULL, &passed, err);
  maybe_kill(self, kInBackward);
  distag_future_wait(passed, DISTAG_FOREVER, err);
  distag_optimizer_step_async(self->optimizer, context, NULL, &stepped, err);
  maybe_kill(self, kInUpdate);
  distag_future_wait(stepped, DISTAG_FOREVER, err);
  distag_future_release(stepped);
  distag_future_release(passed);
  distag_tensor_release(loss);
  for (int i = 0; i < kOwners; ++i) distag_value_release(answers[i]);
  distag_context_release(context);
}

/* ---- the loss of a worker ---- */

/* Starts this program again, as the owner of a layer. */
static void start_owner(int rank, distag_error *err) {
  char name[] = "elastic", rank_text[16];
  char *const argv[] = {name, rank_text, NULL};
  snprintf(rank_text, sizeof rank_text, "%d", rank);
  if (posix_spawn(&children[rank], "/proc/self/exe", NULL, NULL, argv, environ) == 0) return;
  children[rank] = 0;
  distag_error_set(err, DISTAG_E_OUT_OF_MEMORY, "a worker cannot be started");
}

static void recover(trainer *self, distag_error *err) {
  const char *why = distag_status_get_name(err->code);
  const int step = self->step;
  distag_error old = DISTAG_ERROR_INIT;
  distag_value *gone = NULL;
  int lost;
  err->code = DISTAG_OK;
  while (find_lost(self) == 0 && err->code == DISTAG_OK) wait_for_news(self, err);
  lost = find_lost(self);
  if (err->code != DISTAG_OK) return;
  kill(children[lost], SIGKILL); /* lost is also one that was silent for too long */
  waitpid(children[lost], NULL, 0);
  start_owner(lost, err);
  while (self->states[lost] != DISTAG_MEMBER_ALIVE && err->code == DISTAG_OK) wait_for_news(self, err);
  if (err->code != DISTAG_OK) return; /* it died while it started, say: a supervisor would try again */
  maybe_kill(self, kInRecovery);
  distag_rref_fetch(self->layers[lost - 1], NULL, NULL, &gone, &old);
  distag_value_release(gone);
  restore(self, err);
  self->repeated += step - self->step;
  printf("lost %s in step %d: %s; its old reference: %s; back to step %d\n", kNames[lost], step, why,
         distag_status_get_name(old.code), self->step);
}

/* ---- training ---- */

static distag_value *create_weight(uint64_t seed, double deviation, int64_t rows, int64_t columns, distag_error *err) {
  const int64_t shape[2] = {rows, columns};
  distag_tensor *normal = NULL, *weight = NULL;
  distag_randn(seed, DISTAG_FLOAT32, shape, 2, &normal, err);
  distag_mul_scalar(normal, deviation, &weight, err);
  distag_tensor_release(normal);
  return distag_tensor_as_value(weight);
}

/* Trains from the beginning; returns the loss of the last step. */
static double train(trainer *self, int is_disturbed, distag_error *err) {
  distag_value *begin[] = {create_weight(1, 2.0, kHidden, 2, err), create_weight(3, 0.2, 1, kHidden, err)},
               *list = NULL;
  distag_value_create_list(begin, kOwners, &list, err);
  for (int i = 0; i < kOwners; ++i) distag_value_release(begin[i]);
  keep_checkpoint(self, list, 0);
  self->is_disturbed = is_disturbed;
  restore(self, err);
  while (self->step < kSteps && err->code == DISTAG_OK) {
    train_step(self, err);
    if (err->code == DISTAG_OK) ++self->step;
    if (err->code == DISTAG_OK && self->step % kStepsPerCheckpoint == 0) save(self, err);
    while (err->code == DISTAG_E_DISCONNECTED || err->code == DISTAG_E_PEER_RESTARTED) recover(self, err);
  }
  return self->loss;
}

/* A sine; each x has a 1 beside it, so the first layer has a bias. */
static void create_data(trainer *self, distag_error *err) {
  const int64_t x_shape[2] = {kPoints, 2}, target_shape[2] = {kPoints, 1};
  float x[kPoints][2], target[kPoints];
  for (int i = 0; i < kPoints; ++i) {
    x[i][0] = 2.0f * (float)i / (kPoints - 1) - 1, x[i][1] = 1;
    target[i] = 0.8f * sinf(4 * x[i][0]);
  }
  distag_tensor_create(x, sizeof x, DISTAG_FLOAT32, x_shape, 2, &self->x, err);
  distag_tensor_create(target, sizeof target, DISTAG_FLOAT32, target_shape, 2, &self->target, err);
}

/* distag run knows of the trainer only; rank and size of all three are given here, and its "env://" is where they
 * meet. With the host executor on_member runs on the thread that polls, or waits in a call: no lock is needed. */
static distag_worker *start_worker(int rank, trainer *self, distag_error *err) {
  distag_worker_options options = DISTAG_WORKER_OPTIONS_INIT;
  distag_worker *worker = NULL;
  options.name = kNames[rank];
  options.rank = rank;
  options.world_size = kRanks;
  options.call_timeout_ns = PATIENCE;
  if (self != NULL) options.executor = DISTAG_EXECUTOR_HOST, options.on_member = on_member, options.user_data = self;
  distag_worker_create(&options, &worker, err);
  distag_worker_register(worker, "create_layer", create_layer, NULL, NULL, NULL, err);
  distag_worker_register(worker, "run_layer", run_layer, NULL, NULL, NULL, err);
  distag_worker_start(worker, PATIENCE, err);
  return worker;
}

static int run_trainer(distag_error *err) {
  trainer self = {0};
  double undisturbed, disturbed;
  int status = 0, failed = 0;
  for (int rank = 1; rank < kRanks; ++rank) start_owner(rank, err);
  self.worker = start_worker(0, &self, err);
  create_data(&self, err);
  undisturbed = train(&self, 0, err);
  disturbed = train(&self, 1, err);
  release_model(&self);
  distag_value_release(self.saved);
  distag_tensor_release(self.target);
  distag_tensor_release(self.x);
  distag_worker_shutdown(self.worker, PATIENCE, NULL, err);
  distag_worker_release(self.worker);
  while (err->code == DISTAG_OK && wait(&status) > 0) failed |= status;
  if (err->code != DISTAG_OK) return 1;
  printf("undisturbed  loss %.6f after %d steps\n", undisturbed, kSteps);
  printf("disturbed    loss %.6f after %d steps, %d kills, %d steps repeated\n", disturbed, kSteps, self.kills,
         self.repeated);
  printf("the losses %s; handles left: %d\n", disturbed == undisturbed ? "are equal" : "DIFFER",
         (int)distag_get_handle_count());
  return disturbed != undisturbed || self.kills != kKills || failed != 0;
}

int main(int argc, char **argv) {
  const int rank = argc > 1 ? atoi(argv[1]) : 0;
  distag_error err = DISTAG_ERROR_INIT;
  int failed = 0;

  prctl(PR_SET_PDEATHSIG, SIGKILL); /* however distag run or the trainer ends, what it started ends with it */
  if (rank == 0) failed = run_trainer(&err);
  if (rank > 0) {
    distag_worker *owner = start_worker(rank, NULL, &err);
    distag_worker_shutdown(owner, DISTAG_FOREVER, NULL, &err); /* serves until the trainer shuts down too, or is lost */
    distag_worker_release(owner);
  }
  if (err.code != DISTAG_OK) fprintf(stderr, "%s: %s\n", kNames[rank], err.message);
  return failed || err.code != DISTAG_OK;
}
