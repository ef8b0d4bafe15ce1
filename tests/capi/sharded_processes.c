/* Sharded training by 2, 4 and 8 processes, and the loss of one of them in forward, in backward and between steps. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "capi/check.h"
#include "capi/support/group.h"
#include "capi/support/sharded_model.h"

enum { kMostProcesses = 8 };

typedef struct process {
  distag_worker *worker;
  distag_mesh *mesh;
  int32_t rank;
  int32_t count;
} process;

static int join_group(process *me, const char *directory) {
  static const char *const names[] = {"x"};
  const int64_t shape[] = {-1};
  distag_error err = DISTAG_ERROR_INIT;
  char rendezvous[256];
  snprintf(rendezvous, sizeof rendezvous, "file://%s", directory);
  const distag_worker_options options = group_options(me->rank, me->count, rendezvous);
  CHECK_OK(distag_worker_create(&options, &me->worker, &err));
  if (!CHECK_OK(distag_worker_start(me->worker, 60000000000, &err))) return 0;
  return CHECK_OK(distag_mesh_create(me->worker, NULL, 0, shape, names, 1, NULL, &me->mesh, &err));
}

static void leave_group(process *me) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_value *report = NULL;
  distag_mesh_release(me->mesh);
  CHECK_OK(distag_worker_shutdown(me->worker, 60000000000, &report, &err));
  distag_value_release(report);
  distag_worker_release(me->worker);
}

static void train(process *me) {
  for (size_t form = 0; form < 4; ++form) {
    distag_error err = DISTAG_ERROR_INIT;
    double alone[kWeights] = {0};
    double together[kWeights] = {0};
    sharded_train(NULL, NULL, &kShardedForms[form], alone, &err);
    sharded_train(me->worker, me->mesh, &kShardedForms[form], together, &err);
    if (!check_status(err.code, DISTAG_OK, &err, __FILE__, __LINE__, kShardedForms[form].name)) return;
    for (size_t i = 0; i < kWeights; ++i) CHECK(fabs(together[i] - alone[i]) <= 1e-9);
  }
}

static double seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static distag_status die_in_hook(void *user_data, distag_tensor *gradient, distag_tensor **out_gradient,
                                 distag_error *err) {
  (void)gradient, (void)out_gradient, (void)err;
  if (*(const int *)user_data) raise(SIGKILL);
  return DISTAG_OK;
}

enum phase { kForward, kBackward, kBetween };

/* Steps until the member that is to die has gone; then all others have the same error, and a mesh of their own. */
static void lose(process *me, enum phase phase) {
  static const int64_t shape[] = {8, 5};
  distag_error err = DISTAG_ERROR_INIT;
  const int dies = me->rank == 1;
  distag_tensor *w = sharded_numbers(shape, 2, 1, &err);
  distag_tensor *x = sharded_numbers(shape, 2, 2, &err);
  CHECK_OK(distag_tensor_mark_sharding(w, me->mesh, "('x', None)", -1, &err));
  CHECK_OK(distag_tensor_mark_sharding(x, me->mesh, "('x', None)", -1, &err));
  CHECK_OK(distag_tensor_set_requires_grad(w, 1, &err));
  if (phase == kBackward) {
    uint64_t id = 0;
    CHECK_OK(distag_tensor_add_hook(w, die_in_hook, (void *)&dies, NULL, &id, &err));
  }
  const double begin = seconds();
  err.code = DISTAG_OK;
  for (int step = 0; step < 3 && err.code == DISTAG_OK; ++step) {
    distag_tensor *y = NULL;
    distag_tensor *loss = NULL;
    distag_context *context = NULL;
    if (dies && phase == kForward && step == 1) raise(SIGKILL);
    distag_context_create_joint(me->mesh, &context, &err);
    if (err.code == DISTAG_OK) distag_linear(x, w, NULL, &y, &err);
    if (err.code == DISTAG_OK) distag_mean(y, NULL, 0, 0, &loss, &err);
    if (err.code == DISTAG_OK) distag_backward(context, &loss, 1, NULL, &err);
    if (dies && phase == kBetween) raise(SIGKILL);
    distag_tensor_release(y);
    distag_tensor_release(loss);
    distag_context_release(context);
  }
  CHECK(seconds() - begin < 5);
  CHECK_INT(err.code, DISTAG_E_DISCONNECTED);
  CHECK_INT(err.origin_rank, 1);
  CHECK(strstr(err.message, "w1") != NULL);
  /* The own part can still be read; the mesh answers the same for good. */
  distag_tensor *part = NULL;
  CHECK_OK(distag_tensor_to_local(w, NULL, &part, &err));
  distag_tensor_release(part);
  part = NULL;
  CHECK_FAILS(distag_tensor_gather(w, -1, 0, &part, &err), DISTAG_E_DISCONNECTED, "w1");
  distag_tensor_release(w);
  distag_tensor_release(x);
  distag_mesh_release(me->mesh);
  me->mesh = NULL;
  const int32_t left[] = {0, 2};
  const int64_t sizes[] = {2};
  static const char *const names[] = {"x"};
  if (!CHECK_OK(distag_mesh_create(me->worker, left, 2, sizes, names, 1, NULL, &me->mesh, &err))) return;
  train(me);
}

/* The result of a process, for exit(). */
static int run(int32_t rank, int32_t count, const char *directory, int phase) {
  process me = {NULL, NULL, rank, count};
  alarm(110);
  if (join_group(&me, directory)) {
    if (phase < 0) {
      train(&me);
    } else {
      lose(&me, (enum phase)phase);
    }
  }
  leave_group(&me);
  return check_end();
}

static void run_processes(int32_t count, int phase) {
  pid_t processes[kMostProcesses];
  char directory[] = "/tmp/distag-sharded-XXXXXX";
  if (!CHECK(mkdtemp(directory) != NULL)) return;
  for (int32_t rank = 0; rank < count; ++rank) {
    processes[rank] = fork();
    if (processes[rank] == 0) _exit(run(rank, count, directory, phase));
  }
  for (int32_t rank = 0; rank < count; ++rank) {
    int status = -1;
    CHECK(waitpid(processes[rank], &status, 0) == processes[rank]);
    if (phase >= 0 && rank == 1) {
      CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    } else {
      CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
  }
  char command[64];
  snprintf(command, sizeof command, "rm -rf %s", directory);
  CHECK_INT(system(command), 0);
}

int main(void) {
  for (int32_t count = 2; count <= 8; count *= 2) run_processes(count, -1);
  run_processes(3, kForward);
  run_processes(3, kBackward);
  run_processes(3, kBetween);
  return check_end();
}
