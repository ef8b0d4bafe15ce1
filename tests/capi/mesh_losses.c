/* A member in a process of its own is killed, 20 times in a collective and 20 times between two: long before a lease
 * all others have an error that names it, and make a new mesh without it. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "capi/check.h"
#include "capi/support/group.h"
#include "capi/support/processes.h"
#include "support/promised.h"

enum { kSize = 4, kVictim = 2, kRounds = 20, kBefore = 5 };
static const int64_t kLease = 600 * DISTAG_SECOND, kSoon = kKillToErrorSeconds * DISTAG_SECOND;

/* State of all processes of a round. */
typedef struct shared {
  _Atomic int64_t killed_at; /* 0: not yet */
} shared;

typedef struct scene {
  shared *common;
  int report;     /* the victim writes a byte for each call it has made */
  int is_between; /* and stops after kBefore */
} scene;

/* Sums up ranks, which add up to `total`. */
static distag_status sum(distag_mesh *mesh, int32_t rank, double total, distag_error *err) {
  static const int64_t shape[] = {20000};
  static double items[20000];
  distag_tensor *x = NULL, *y = NULL;
  CHECK_INT(distag_full(rank, DISTAG_FLOAT64, shape, 1, &x, err), DISTAG_OK);
  const distag_status status = distag_collective(mesh, DISTAG_ALL_REDUCE, NULL, x, NULL, &y, err);
  if (status == DISTAG_OK) {
    CHECK_INT(distag_tensor_copy_data(y, items, sizeof items, err), DISTAG_OK);
    CHECK(items[0] == total && items[19999] == total);
  }
  distag_tensor_release(x);
  distag_tensor_release(y);
  return status;
}

static distag_mesh *make_mesh(distag_worker *worker, const int32_t *ranks, size_t count) {
  static const int64_t shape[] = {-1};
  distag_error err = DISTAG_ERROR_INIT;
  distag_mesh_options options = DISTAG_MESH_OPTIONS_INIT;
  distag_mesh *mesh = NULL;
  options.timeout_ns = 120 * DISTAG_SECOND;
  CHECK_OK(distag_mesh_create(worker, ranks, count, shape, NULL, 1, &options, &mesh, &err));
  return mesh;
}

static void be_killed(const scene *in, distag_mesh *mesh) {
  distag_error err = DISTAG_ERROR_INIT;
  for (int made = 1;; ++made) {
    CHECK_INT(sum(mesh, kVictim, 6, &err), DISTAG_OK);
    if (write(in->report, "", 1) != 1) exit(3);
    while (in->is_between && made == kBefore) pause();
  }
}

static void survive(const scene *in, distag_worker *worker, distag_mesh *mesh, int32_t rank) {
  static const int32_t left[] = {0, 1, 3};
  distag_error err = DISTAG_ERROR_INIT;
  while (sum(mesh, rank, 6, &err) == DISTAG_OK) continue;
  const int64_t took = now_ns() - in->common->killed_at;
  CHECK_INT(err.code, DISTAG_E_DISCONNECTED);
  CHECK_INT(err.origin_rank, kVictim);
  if (!CHECK(strstr(err.message, "worker \"w2\" (rank 2)") != NULL)) fprintf(stderr, "  %s\n", err.message);
  CHECK(in->common->killed_at != 0);
  if (!CHECK(took < kSoon)) fprintf(stderr, "  %d ms\n", (int)(took / DISTAG_MILLISECOND));
  CHECK_FAILS(sum(mesh, rank, 6, &err), DISTAG_E_DISCONNECTED, "worker \"w2\" (rank 2)");
  distag_mesh *next = make_mesh(worker, left, 3);
  for (int i = 0; i < 3; ++i) CHECK_OK(sum(next, rank, 4, &err));
  distag_mesh_release(next);
  distag_mesh_release(mesh);
  CHECK_OK(distag_worker_shutdown(worker, 120 * DISTAG_SECOND, NULL, &err));
}

static int run_member(const char *rendezvous, int32_t rank, int32_t count, void *data) {
  const scene *in = data;
  distag_error err = DISTAG_ERROR_INIT;
  distag_worker *worker = NULL;
  distag_worker_options options = group_options(rank, count, rendezvous);
  options.lease_ns = kLease;
  alarm(300);
  CHECK_OK(distag_worker_create(&options, &worker, &err));
  CHECK_OK(distag_worker_start(worker, 120 * DISTAG_SECOND, &err));
  distag_mesh *mesh = make_mesh(worker, NULL, 0);
  if (mesh == NULL) return 2;
  if (rank == kVictim) be_killed(in, mesh);
  survive(in, worker, mesh, rank);
  distag_worker_release(worker);
  return check_end();
}

static void run_round(shared *common, int round, int is_between) {
  int reports[2];
  char byte;
  processes group;
  CHECK_INT(pipe(reports), 0);
  common->killed_at = 0;
  scene all = {common, reports[1], is_between};
  int is_right = CHECK_INT(processes_start(&group, kSize, run_member, &all), 0);
  close(reports[1]);
  const int calls = is_between ? kBefore : 1 + round * 7 % 40;
  int read_all = 1;
  for (int i = 0; i < calls; ++i) read_all = read_all && read(reports[0], &byte, 1) == 1;
  is_right = CHECK(read_all) && is_right;
  common->killed_at = now_ns();
  if (is_right) kill(group.members[kVictim], SIGKILL);
  is_right = CHECK_INT(processes_end(&group, kVictim), 0) && is_right;
  if (!is_right) fprintf(stderr, "  round %d, %s\n", round, is_between ? "between" : "within");
  close(reports[0]);
}

int main(void) {
  shared *common = mmap(NULL, sizeof *common, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(common != MAP_FAILED);
  for (int round = 0; round < kRounds; ++round) {
    run_round(common, round, 0);
    run_round(common, round, 1);
  }
  return check_end();
}
