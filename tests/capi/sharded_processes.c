/* Sharded training by 2, 4 and 8 processes. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/wait.h>
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

/* The result of a process, for exit(). */
static int run(int32_t rank, int32_t count, const char *directory) {
  process me = {NULL, NULL, rank, count};
  alarm(110);
  if (join_group(&me, directory)) train(&me);
  leave_group(&me);
  return check_end();
}

static void run_processes(int32_t count) {
  pid_t processes[kMostProcesses];
  char directory[] = "/tmp/distag-sharded-XXXXXX";
  if (!CHECK(mkdtemp(directory) != NULL)) return;
  for (int32_t rank = 0; rank < count; ++rank) {
    processes[rank] = fork();
    if (processes[rank] == 0) _exit(run(rank, count, directory));
  }
  for (int32_t rank = 0; rank < count; ++rank) {
    int status = -1;
    CHECK(waitpid(processes[rank], &status, 0) == processes[rank]);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  char command[64];
  snprintf(command, sizeof command, "rm -rf %s", directory);
  CHECK_INT(system(command), 0);
}

int main(void) {
  for (int32_t count = 2; count <= 8; count *= 2) run_processes(count);
  return check_end();
}
