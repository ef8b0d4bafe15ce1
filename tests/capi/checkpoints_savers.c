/* Several savers of one folder at a time, two jobs and two lines of the mesh of each: at least one save succeeds, the
 * others fail by name, and the checkpoint in the folder is always whole and from a save that succeeded. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "capi/check.h"
#include "capi/support/members.h"

enum { kJobs = 2, kMembers = 2, kLines = 2, kRows = 6 };
static int round_count = 40; /* the argument, of each of two ways */

static char folder[64];
static members jobs[kJobs];
static pthread_barrier_t rounds;
static atomic_int saved[kJobs * kLines]; /* in this round: 1, or 0 for a failure */
static atomic_int has_no_locks;

/* Replaces flock of the C library, and may act as a file system without locks. */
int flock(int descriptor, int operation);
int flock(int descriptor, int operation) {
  if (!has_no_locks) return (int)syscall(SYS_flock, descriptor, operation);
  errno = EOPNOTSUPP;
  return -1;
}

static distag_tensor *full(distag_mesh *mesh, double number) {
  const int64_t shape[] = {kRows, 2};
  distag_error err = DISTAG_ERROR_INIT;
  distag_tensor *made = NULL;
  CHECK_OK(distag_full(number, DISTAG_FLOAT64, shape, 2, &made, &err));
  if (mesh != NULL) CHECK_OK(distag_tensor_mark_sharding(made, mesh, "('x', None)", -1, &err));
  return made;
}

static distag_future *save(distag_mesh *line, distag_tensor *w, int64_t number) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_value *value = NULL, *map = NULL;
  distag_future *future = NULL;
  CHECK_OK(distag_value_create_int64(number, &value, &err));
  const char *const keys[] = {"number", "w"};
  distag_value *const items[] = {value, distag_tensor_as_value(w)};
  CHECK_OK(distag_value_create_map(keys, items, 2, &map, &err));
  CHECK_OK(distag_checkpoint_save_async(line, folder, map, 0, &future, &err));
  distag_value_release(map);
  distag_value_release(value);
  return future;
}

/* The folder has a whole checkpoint, from a save of this round that succeeded. */
static void check_folder(int round) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_value *loaded = NULL;
  distag_tensor *w = NULL;
  int64_t number = -1;
  double found[2 * kRows] = {0};
  int count = 0;
  for (int i = 0; i < kJobs * kLines; ++i) count += saved[i];
  CHECK(count >= 1);
  if (!CHECK_OK(distag_checkpoint_load(NULL, folder, NULL, 0, &loaded, &err))) return;
  CHECK_OK(distag_value_get_int64(distag_value_get_entry(loaded, "number"), &number, &err));
  CHECK_OK(distag_value_get_tensor(distag_value_get_entry(loaded, "w"), &w, &err));
  CHECK_OK(distag_tensor_copy_data(w, found, sizeof found, &err));
  for (int k = 0; k < 2 * kRows; ++k) CHECK(found[k] == (double)number);
  CHECK_INT(number / 100, round);
  CHECK(number % 100 < kJobs * kLines && saved[number % 100] == 1);
  distag_value_release(loaded);
}

static void run_member(members *group, int32_t rank) {
  static const char *const kX[] = {"x"};
  static const int64_t kCount = kMembers;
  const int job = (int)(group - jobs);
  distag_error err = DISTAG_ERROR_INIT;
  distag_mesh *lines[kLines] = {NULL, NULL};
  CHECK_OK(distag_mesh_create(group->workers[rank], NULL, 0, &kCount, kX, 1, NULL, &lines[0], &err));
  CHECK_OK(distag_mesh_open_line(lines[0], "beside", &lines[1], &err));
  for (int round = 0; round < round_count; ++round) {
    distag_tensor *tensors[kLines];
    distag_future *futures[kLines];
    const int first = job * kLines;
    for (int i = 0; i < kLines; ++i) tensors[i] = full(lines[0], 100 * round + first + i);
    pthread_barrier_wait(&rounds);
    for (int i = 0; i < kLines; ++i) futures[i] = save(lines[i], tensors[i], 100 * round + first + i);
    for (int i = 0; i < kLines; ++i) {
      const distag_status status = distag_future_wait(futures[i], 240 * DISTAG_SECOND, &err);
      if (status != DISTAG_OK) {
        CHECK_INT(status, DISTAG_E_INVALID_STATE);
        CHECK(strstr(err.message, "another save ") != NULL && strstr(err.message, folder) != NULL);
        CHECK_INT(err.origin_rank, 0);
      }
      if (rank == 0) saved[first + i] = status == DISTAG_OK;
    }
    for (int i = 0; i < kLines; ++i) distag_future_release(futures[i]), distag_tensor_release(tensors[i]);
    if (pthread_barrier_wait(&rounds) == PTHREAD_BARRIER_SERIAL_THREAD) check_folder(round);
    pthread_barrier_wait(&rounds);
  }
  distag_mesh_release(lines[1]);
  distag_mesh_release(lines[0]);
}

static void *run_job(void *job) {
  members_run(job, kMembers, run_member);
  return NULL;
}

static void run_jobs(void) {
  pthread_t threads[kJobs];
  for (int i = 0; i < kJobs; ++i) CHECK(pthread_create(&threads[i], NULL, run_job, &jobs[i]) == 0);
  for (int i = 0; i < kJobs; ++i) pthread_join(threads[i], NULL);
}

/* Another save has the folder: this one fails and says so, and the folder stays as it was. */
static void under_way(members *group, int32_t rank) {
  static const char *const kX[] = {"x"};
  static const int64_t kCount = 1;
  const int32_t alone[] = {0};
  distag_error err = DISTAG_ERROR_INIT;
  distag_mesh *mesh = NULL;
  CHECK_OK(distag_mesh_create(group->workers[rank], alone, 1, &kCount, kX, 1, NULL, &mesh, &err));
  distag_tensor *w = full(mesh, 7);
  distag_future *future = save(mesh, w, 7);
  CHECK_FAILS(distag_future_wait(future, DISTAG_FOREVER, &err), DISTAG_E_INVALID_STATE, "another save is under way in");
  distag_future_release(future);
  distag_tensor_release(w);
  distag_mesh_release(mesh);
}

static int count_files(void) {
  char command[128];
  snprintf(command, sizeof command, "exit $(ls %s | wc -l)", folder);
  return system(command) >> 8;
}

int main(int argc, char **argv) {
  if (argc > 1) round_count = (int)strtol(argv[1], NULL, 10);
  snprintf(folder, sizeof folder, "/tmp/distag-savers-XXXXXX");
  if (!CHECK(mkdtemp(folder) != NULL)) return 1;
  if (!CHECK(members_start(&jobs[0], kMembers, "savers_0") == 0)) return 1;
  if (!CHECK(members_start(&jobs[1], kMembers, "savers_1") == 0)) return 1;
  pthread_barrier_init(&rounds, NULL, kJobs * kMembers);
  run_jobs();
  CHECK_INT(count_files(), 3); /* the parts of two members, and the index */
  const int lock = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  CHECK(lock >= 0 && flock(lock, LOCK_EX | LOCK_NB) == 0);
  members_run(&jobs[0], 1, under_way);
  check_folder(round_count - 1);
  CHECK_INT(count_files(), 3);
  close(lock);
  has_no_locks = 1;
  run_jobs();
  CHECK(members_end(&jobs[0]) == 0);
  CHECK(members_end(&jobs[1]) == 0);
  pthread_barrier_destroy(&rounds);
  char command[128];
  snprintf(command, sizeof command, "rm -r %s", folder);
  CHECK(system(command) == 0);
  return check_end();
}
