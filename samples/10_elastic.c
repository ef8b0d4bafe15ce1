/* Workers are killed while a model trains, and started again: training goes on and ends as if nothing had happened.
 *
 *   cc 10_elastic.c $(pkg-config --cflags --libs distag) -lm -o elastic && ./elastic
 *
 * The workers "lower" and "upper" own a layer each, behind a remote reference. The trainer has the data, and every ten
 * steps takes a checkpoint: it fetches both layers, and what the optimizer keeps. A worker that is killed takes its
 * layer with it, and whatever needed it fails with DISCONNECTED. Then the trainer
 *
 *   1. starts the process anew under the same name and rank, and waits until it is told of the new member;
 *   2. makes both layers again from the checkpoint, with new references and a new optimizer. The layer of the survivor
 *      too: it may have applied a step that the other has not;
 *   3. repeats the steps since the checkpoint, each in a new context.
 *
 * It trains twice, undisturbed and with a kill at each delicate point of a step, and compares the last losses. */
#define _POSIX_C_SOURCE 200809L
#include <dirent.h>
#include <distag.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { kRanks = 3, kOwners = 2, kSteps = 200, kStepsPerCheckpoint = 10, kPoints = 64, kHidden = 32 };
#define PATIENCE (20 * DISTAG_SECOND) /* nothing here waits longer */

static const char *const kNames[kRanks] = {"trainer", "lower", "upper"};
static char directory[] = "/tmp/distag-elastic-XXXXXX"; /* where they meet */
static char rendezvous[sizeof directory + 16];
static pid_t children[kRanks];
extern char **environ;

/* ---- what the owner of a layer offers ---- */

/* A list of weight and bias becomes a layer: called by distag_remote, it stays where it is. */
static distag_status create_layer(void *user_data, distag_invocation *invocation, distag_error *err) {
  distag_value *list = distag_invocation_get_arg(invocation, 0);
  (void)user_data;
  for (size_t i = 0; i < 2; ++i) {
    distag_tensor *parameter = NULL;
    distag_value_get_tensor(distag_value_get_item(list, i), &parameter, err);
    distag_tensor_set_requires_grad(parameter, 1, err);
  }
  distag_invocation_return(invocation, list, err);
  return err->code;
}

/* A reference to a layer, and its input. */
static distag_status run_layer(void *user_data, distag_invocation *invocation, distag_error *err) {
  distag_rref *rref = NULL;
  distag_value *layer = NULL;
  distag_tensor *weight = NULL, *bias = NULL, *x = NULL, *sum = NULL, *y = NULL;
  (void)user_data;

  distag_value_get_rref(distag_invocation_get_arg(invocation, 0), &rref, err);
  distag_rref_get_local(rref, &layer, err);
  distag_value_get_tensor(distag_value_get_item(layer, 0), &weight, err);
  distag_value_get_tensor(distag_value_get_item(layer, 1), &bias, err);
  distag_invocation_get_tensor(invocation, 1, &x, err);
  distag_linear(x, weight, bias, &sum, err);
  distag_tanh(sum, &y, err);
  distag_invocation_return(invocation, distag_tensor_as_value(y), err);
  distag_tensor_release(y);
  distag_tensor_release(sum);
  return err->code;
}

static distag_worker *create_worker(int rank, distag_member_callback on_member, void *user_data, distag_error *err) {
  distag_worker_options options = DISTAG_WORKER_OPTIONS_INIT;
  distag_worker *worker = NULL;
  options.name = kNames[rank];
  options.rank = rank;
  options.world_size = kRanks;
  options.rendezvous = rendezvous;
  options.call_timeout_ns = PATIENCE;
  options.on_member = on_member;
  options.user_data = user_data;
  distag_worker_create(&options, &worker, err);
  distag_worker_register(worker, "create_layer", create_layer, NULL, NULL, NULL, err);
  distag_worker_register(worker, "run_layer", run_layer, NULL, NULL, NULL, err);
  distag_worker_start(worker, PATIENCE, err);
  return worker;
}

static int report(int rank, const distag_error *err) {
  if (err->code == DISTAG_OK) return 0;
  fprintf(stderr, "%s: %s: %s\n", kNames[rank], distag_status_get_name(err->code), err->message);
  return 1;
}

/* Serves until the trainer shuts down too, or is lost. */
static int run_owner(int rank) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_worker *worker = create_worker(rank, NULL, NULL, &err);
  distag_worker_shutdown(worker, DISTAG_FOREVER, NULL, &err);
  distag_worker_release(worker);
  return report(rank, &err);
}

/* ---- the trainer: who is there ---- */

typedef struct members {
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  int32_t states[kRanks];
} members;

static void on_member(void *user_data, distag_worker *worker, const distag_member *member) {
  members *self = user_data;
  (void)worker;
  pthread_mutex_lock(&self->mutex);
  self->states[member->rank] = member->state;
  pthread_cond_broadcast(&self->changed);
  pthread_mutex_unlock(&self->mutex);
}

enum { kAnyRank = -1 };

/* Waits until a member is in a state; gives its rank. */
static int wait_for_member(members *self, int rank, int32_t state, distag_error *err) {
  struct timespec deadline;
  int found = 0, failed = 0;

  clock_gettime(CLOCK_REALTIME, &deadline);
  deadline.tv_sec += PATIENCE / DISTAG_SECOND;
  pthread_mutex_lock(&self->mutex);
  for (;;) {
    for (found = 0; found < kRanks; ++found) {
      if ((rank == kAnyRank || rank == found) && self->states[found] == state) break;
    }
    if (found < kRanks || failed) break;
    failed = pthread_cond_timedwait(&self->changed, &self->mutex, &deadline);
  }
  pthread_mutex_unlock(&self->mutex);
  if (found == kRanks) distag_error_set(err, DISTAG_E_DEADLINE, "waiting for a member to be lost, or to be back");
  return found;
}

/* ---- the model, and its checkpoint ---- */

typedef struct checkpoint {
  int step;                      /* that comes next */
  distag_value *layers[kOwners]; /* lists of weight and bias */
  distag_value *optimizer;       /* NULL before the first step */
} checkpoint;

typedef struct trainer {
  members members;
  distag_worker *worker;
  distag_tensor *x, *target;
  distag_rref *layers[kOwners];
  distag_optimizer *optimizer;
  checkpoint saved;

  int step, kills, repeated, is_disturbed;
  double loss;
} trainer;

/* What can happen at any time, at the worst of times. */
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

static void release_checkpoint(checkpoint *self) {
  for (int i = 0; i < kOwners; ++i) distag_value_release(self->layers[i]);
  distag_value_release(self->optimizer);
}

/* The model as the checkpoint has it, on the workers of this moment. */
static void restore(trainer *self, distag_error *err) {
  distag_value *parameters[kOwners];
  release_model(self);
  for (int i = 0; i < kOwners; ++i) {
    distag_remote(self->worker, NULL, kNames[1 + i], "create_layer", &self->saved.layers[i], 1, NULL, &self->layers[i],
                  err);
    parameters[i] = distag_rref_as_value(self->layers[i]);
  }
  distag_optimizer_create(self->worker, "adam", parameters, kOwners, &self->optimizer, err);
  distag_optimizer_set(self->optimizer, "lr", 0.02, err);
  if (self->saved.optimizer != NULL) distag_optimizer_load(self->optimizer, self->saved.optimizer, NULL, err);
  self->step = self->saved.step;
}

/* A new checkpoint takes the place of the old one once it is whole. */
static void save(trainer *self, distag_error *err) {
  checkpoint made = {self->step, {NULL}, NULL};
  maybe_kill(self, kInSave);
  for (int i = 0; i < kOwners; ++i) distag_rref_fetch(self->layers[i], NULL, NULL, &made.layers[i], err);
  distag_optimizer_save(self->optimizer, NULL, &made.optimizer, err);
  if (err->code != DISTAG_OK) {
    release_checkpoint(&made);
  } else {
    release_checkpoint(&self->saved);
    self->saved = made;
  }
}

/* The layer at rank applied to x; lent by *out_answer. */
static distag_tensor *call_layer(trainer *self, distag_context *context, int rank, distag_tensor *x,
                                 distag_value **out_answer, distag_error *err) {
  distag_value *args[2] = {distag_rref_as_value(self->layers[rank - 1]), distag_tensor_as_value(x)};
  distag_tensor *y = NULL;
  distag_call(self->worker, context, kNames[rank], "run_layer", args, 2, NULL, out_answer, err);
  distag_value_get_tensor(*out_answer, &y, err);
  return y;
}

static void train_step(trainer *self, distag_error *err) {
  distag_backward_options options = DISTAG_BACKWARD_OPTIONS_INIT;
  distag_context *context = NULL;
  distag_value *answers[kOwners] = {NULL};
  distag_tensor *hidden, *y, *loss = NULL;
  distag_future *passed = NULL, *stepped = NULL;

  distag_context_create(self->worker, &context, err);
  hidden = call_layer(self, context, 1, self->x, &answers[0], err);
  maybe_kill(self, kInForward);
  y = call_layer(self, context, 2, hidden, &answers[1], err);
  distag_mse_loss(y, self->target, &loss, err);
  distag_tensor_get_item(loss, &self->loss, err);

  options.timeout_ns = PATIENCE;
  distag_backward_async(context, &loss, 1, &options, &passed, err);
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

static int is_loss(const distag_error *err) {
  return err->code == DISTAG_E_DISCONNECTED || err->code == DISTAG_E_PEER_RESTARTED;
}

/* Starts this program again, as the owner of a layer. */
static void start_owner(int rank, distag_error *err) {
  char name[] = "elastic", rank_text[16];
  char *const argv[] = {name, rank_text, rendezvous, NULL};
  snprintf(rank_text, sizeof rank_text, "%d", rank);
  if (posix_spawn(&children[rank], "/proc/self/exe", NULL, NULL, argv, environ) == 0) return;
  children[rank] = 0;
  distag_error_set(err, DISTAG_E_OUT_OF_MEMORY, "a worker cannot be started");
}

static void stop_owner(int rank) {
  if (children[rank] > 0 && kill(children[rank], SIGKILL) == 0) waitpid(children[rank], NULL, 0);
  children[rank] = 0;
}

static void recover(trainer *self, distag_error *err) {
  const char *why = distag_status_get_name(err->code);
  const int step = self->step;
  distag_error old = DISTAG_ERROR_INIT;
  distag_value *gone = NULL;
  int lost;

  err->code = DISTAG_OK;
  lost = wait_for_member(&self->members, kAnyRank, DISTAG_MEMBER_LOST, err);
  if (err->code != DISTAG_OK) return;
  stop_owner(lost); /* lost is also one that was silent for too long */
  start_owner(lost, err);
  if (err->code == DISTAG_OK) wait_for_member(&self->members, lost, DISTAG_MEMBER_ALIVE, err);
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

/* A list of weight [rows, columns] and bias [rows]. */
static distag_value *create_parameters(uint64_t seed, double deviation, int64_t rows, int64_t columns,
                                       distag_error *err) {
  const int64_t shape[2] = {rows, columns};
  distag_tensor *normal = NULL, *weight = NULL, *bias = NULL;
  distag_value *items[2], *list = NULL;
  distag_randn(seed, DISTAG_FLOAT32, shape, 2, &normal, err);
  distag_mul_scalar(normal, deviation, &weight, err);
  distag_randn(seed + 1, DISTAG_FLOAT32, shape, 1, &bias, err);
  items[0] = distag_tensor_as_value(weight);
  items[1] = distag_tensor_as_value(bias);
  distag_value_create_list(items, 2, &list, err);
  distag_tensor_release(bias);
  distag_tensor_release(weight);
  distag_tensor_release(normal);
  return list;
}

/* From the beginning; gives the loss of the last step. */
static double train(trainer *self, int is_disturbed, distag_error *err) {
  const checkpoint begin = {
      0, {create_parameters(1, 2.0, kHidden, 1, err), create_parameters(3, 0.2, 1, kHidden, err)}, NULL};
  release_checkpoint(&self->saved);
  self->saved = begin;
  self->is_disturbed = is_disturbed;
  restore(self, err);
  while (self->step < kSteps && err->code == DISTAG_OK) {
    train_step(self, err);
    if (err->code == DISTAG_OK) ++self->step;
    if (err->code == DISTAG_OK && self->step % kStepsPerCheckpoint == 0) save(self, err);
    while (is_loss(err)) recover(self, err);
  }
  return self->loss;
}

/* A sine, in 64 points. */
static void create_data(trainer *self, distag_error *err) {
  const int64_t shape[2] = {kPoints, 1};
  float x[kPoints], target[kPoints];
  for (int i = 0; i < kPoints; ++i) {
    x[i] = 2.0f * (float)i / (kPoints - 1) - 1;
    target[i] = 0.8f * sinf(4 * x[i]);
  }
  distag_tensor_create(x, sizeof x, DISTAG_FLOAT32, shape, 2, &self->x, err);
  distag_tensor_create(target, sizeof target, DISTAG_FLOAT32, shape, 2, &self->target, err);
}

static int run_trainer(void) {
  trainer self = {.members = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, {0}}};
  distag_error err = DISTAG_ERROR_INIT;
  double undisturbed, disturbed;

  for (int rank = 1; rank < kRanks; ++rank) start_owner(rank, &err);
  self.worker = create_worker(0, on_member, &self.members, &err);
  create_data(&self, &err);
  undisturbed = train(&self, 0, &err);
  disturbed = train(&self, 1, &err);

  release_model(&self);
  release_checkpoint(&self.saved);
  distag_tensor_release(self.target);
  distag_tensor_release(self.x);
  distag_worker_shutdown(self.worker, PATIENCE, NULL, &err);
  distag_worker_release(self.worker);
  if (report(0, &err)) return 1;

  printf("undisturbed  loss %.6f after %d steps\n", undisturbed, kSteps);
  printf("disturbed    loss %.6f after %d steps, %d kills, %d steps repeated\n", disturbed, kSteps, self.kills,
         self.repeated);
  printf("the losses %s; handles left: %d\n", disturbed == undisturbed ? "are equal" : "DIFFER",
         (int)distag_get_handle_count());
  return disturbed != undisturbed || self.kills != kKills;
}

/* ---- the processes ---- */

/* Whatever way the trainer ends: no process and no file stays behind. */
static void clean_up(void) {
  DIR *entries = opendir(directory);
  struct dirent *entry;
  char path[sizeof directory + sizeof entry->d_name + 1];

  for (int rank = 1; rank < kRanks; ++rank) stop_owner(rank);
  while (entries != NULL && (entry = readdir(entries)) != NULL) {
    snprintf(path, sizeof path, "%s/%s", directory, entry->d_name);
    unlink(path);
  }
  if (entries != NULL) closedir(entries);
  rmdir(directory);
}

int main(int argc, char **argv) {
  int failed;

  alarm(100); /* whatever happens, no process outlives this */
  if (argc == 3) return snprintf(rendezvous, sizeof rendezvous, "%s", argv[2]), run_owner(atoi(argv[1]));
  setvbuf(stdout, NULL, _IOLBF, 0);
  if (mkdtemp(directory) == NULL) return perror("mkdtemp"), 1;
  atexit(clean_up);
  snprintf(rendezvous, sizeof rendezvous, "file://%s", directory);
  failed = run_trainer();
  for (int rank = 1; rank < kRanks && !failed; ++rank) {
    int status = 1;
    waitpid(children[rank], &status, 0);
    children[rank] = 0;
    failed = status != 0;
  }
  return failed;
}
