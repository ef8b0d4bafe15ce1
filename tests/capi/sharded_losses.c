/* Three processes train a sharded model, and one of them is killed, 20 times in each phase of a step: long before a
 * lease the others have an error that names it, can still read their own part, and train on over a mesh of the
 * survivors. tests/capi/mesh_losses.c does the same within and between collectives. */
#define _GNU_SOURCE
#include <signal.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "capi/check.h"
#include "capi/support/group.h"
#include "capi/support/processes.h"
#include "capi/support/sharded_model.h"
#include "support/promised.h"

enum { kSize = 3, kVictim = 1, kRounds = 20, kStepsBefore = 2 };
static const int64_t kLease = 600 * DISTAG_SECOND, kSoon = kKillToErrorSeconds * DISTAG_SECOND;

/* kAnyMoment: of the steps from the second one on, so before, while and after a pass commits, too. */
enum phase { kForward, kBackward, kCommitted, kStep, kAnyMoment, kPhases };
static const char *const kNames[kPhases] = {"forward", "backward", "committed", "step", "any moment"};

/* State of all processes of a round. */
typedef struct shared {
  _Atomic int64_t killed_at; /* 0: not yet */
} shared;

typedef struct member {
  shared *common;
  distag_worker *worker;
  distag_mesh *mesh;
  int32_t rank;
  enum phase phase;
  int round;
  int step;
} member;

static distag_mesh *make_mesh(distag_worker *worker, const int32_t *ranks, size_t count) {
  static const char *const names[] = {"x"};
  static const int64_t shape[] = {-1};
  distag_error err = DISTAG_ERROR_INIT;
  distag_mesh *mesh = NULL;
  CHECK_OK(distag_mesh_create(worker, ranks, count, shape, names, 1, NULL, &mesh, &err));
  return mesh;
}

/* The victim ends here in its own phase of the third step. */
static void pass_phase(const member *me, enum phase phase) {
  if (me->rank != kVictim || me->phase != phase || me->step != kStepsBefore) return;
  me->common->killed_at = now_ns();
  raise(SIGKILL);
}

static distag_status pass_backward(void *user_data, distag_tensor *gradient, distag_tensor **out_gradient,
                                   distag_error *err) {
  (void)gradient, (void)out_gradient, (void)err;
  pass_phase(user_data, kBackward);
  return DISTAG_OK;
}

/* The system kills the victim after a time of its own for each round, up to 3 ms. */
static void be_killed_soon(const member *me) {
  const int64_t delay = 1 + me->round * 977 % 3000 * INT64_C(1000);
  struct sigevent event = {0};
  struct itimerspec when = {{0, 0}, {0, delay}};
  timer_t timer;
  event.sigev_notify = SIGEV_SIGNAL;
  event.sigev_signo = SIGKILL;
  CHECK_INT(timer_create(CLOCK_MONOTONIC, &event, &timer), 0);
  me->common->killed_at = now_ns() + delay;
  CHECK_INT(timer_settime(timer, 0, &when, NULL), 0);
}

static void make_step(member *me, distag_tensor *x, distag_tensor *w, distag_optimizer *sgd, distag_error *err) {
  distag_tensor *y = NULL, *loss = NULL;
  distag_context *context = NULL;
  distag_context_create_joint(me->mesh, &context, err);
  if (err->code == DISTAG_OK) distag_linear(x, w, NULL, &y, err);
  pass_phase(me, kForward);
  if (err->code == DISTAG_OK) distag_mean(y, NULL, 0, 0, &loss, err);
  if (err->code == DISTAG_OK) distag_backward(context, &loss, 1, NULL, err);
  pass_phase(me, kCommitted);
  if (err->code == DISTAG_OK) distag_optimizer_clip(sgd, context, 1, NULL, NULL, err);
  pass_phase(me, kStep);
  if (err->code == DISTAG_OK) distag_optimizer_step(sgd, context, NULL, err);
  distag_tensor_release(y);
  distag_tensor_release(loss);
  distag_context_release(context);
}

/* Trains until there is an error, which is in `failure`; returns the parameter. */
static distag_tensor *train_until_loss(member *me, distag_error *failure) {
  static const int64_t shape[] = {8, 5};
  distag_error err = DISTAG_ERROR_INIT;
  distag_optimizer *sgd = NULL;
  uint64_t id = 0;
  distag_tensor *w = sharded_numbers(shape, 2, 1, &err);
  distag_tensor *x = sharded_numbers(shape, 2, 2, &err);
  CHECK_OK(distag_tensor_mark_sharding(w, me->mesh, "('x', None)", -1, &err));
  CHECK_OK(distag_tensor_mark_sharding(x, me->mesh, "('x', None)", -1, &err));
  CHECK_OK(distag_tensor_set_requires_grad(w, 1, &err));
  CHECK_OK(distag_tensor_add_hook(w, pass_backward, me, NULL, &id, &err));
  distag_value *parameters[] = {distag_tensor_as_value(w)};
  CHECK_OK(distag_optimizer_create(me->worker, "sgd", parameters, 1, &sgd, &err));
  for (me->step = 0; failure->code == DISTAG_OK; ++me->step) {
    if (me->phase == kAnyMoment && me->rank == kVictim && me->step == 1) be_killed_soon(me);
    make_step(me, x, w, sgd, failure);
  }
  distag_optimizer_release(sgd);
  distag_tensor_release(x);
  return w;
}

static void survive(member *me) {
  static const int32_t left[] = {0, 2};
  distag_error err = DISTAG_ERROR_INIT;
  distag_tensor *w = train_until_loss(me, &err);
  const int64_t took = now_ns() - me->common->killed_at;
  CHECK(me->common->killed_at != 0);
  if (!CHECK(took < kSoon)) fprintf(stderr, "  %d ms\n", (int)(took / DISTAG_MILLISECOND));
  CHECK_INT(err.code, DISTAG_E_DISCONNECTED);
  CHECK_INT(err.origin_rank, kVictim);
  if (!CHECK(strstr(err.message, "worker \"w1\" (rank 1)") != NULL)) fprintf(stderr, "  %s\n", err.message);
  distag_tensor *part = NULL;
  CHECK_OK(distag_tensor_to_local(w, NULL, &part, &err));
  distag_tensor_release(part);
  part = NULL;
  CHECK_FAILS(distag_tensor_gather(w, -1, 0, &part, &err), DISTAG_E_DISCONNECTED, "w1");
  distag_tensor_release(w);
  distag_mesh_release(me->mesh);
  me->mesh = make_mesh(me->worker, left, 2);
  if (me->mesh != NULL) CHECK(sharded_train_is_right(me->worker, me->mesh, &kShardedForms[me->round % 4]));
  distag_mesh_release(me->mesh);
  CHECK_OK(distag_worker_shutdown(me->worker, 120 * DISTAG_SECOND, NULL, &err));
}

/* Returns the exit code of a process. */
static int run_member(const char *rendezvous, int32_t rank, int32_t count, void *data) {
  distag_error err = DISTAG_ERROR_INIT;
  member me = *(const member *)data;
  distag_worker_options options = group_options(rank, count, rendezvous);
  options.lease_ns = kLease;
  me.rank = rank;
  alarm(300);
  CHECK_OK(distag_worker_create(&options, &me.worker, &err));
  CHECK_OK(distag_worker_start(me.worker, 120 * DISTAG_SECOND, &err));
  me.mesh = make_mesh(me.worker, NULL, 0);
  if (me.mesh == NULL) return 2;
  survive(&me); /* which the victim does not */
  distag_worker_release(me.worker);
  return check_end();
}

static void run_round(shared *common, enum phase phase, int round) {
  member all = {common, NULL, NULL, -1, phase, round, 0};
  processes group;
  common->killed_at = 0;
  const int has_started = CHECK_INT(processes_start(&group, kSize, run_member, &all), 0);
  const int has_ended = CHECK_INT(processes_end(&group, kVictim), 0);
  if (!has_started || !has_ended) fprintf(stderr, "  %s, round %d\n", kNames[phase], round);
}

int main(void) {
  shared *common = mmap(NULL, sizeof *common, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (!CHECK(common != MAP_FAILED)) return check_end();
  for (int round = 0; round < kRounds; ++round) {
    for (int phase = 0; phase < kPhases; ++phase) run_round(common, (enum phase)phase, round);
  }
  return check_end();
}
