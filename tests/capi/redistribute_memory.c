/* A tensor of 256 MiB that is gathered from 3 processes, and cut along another dim, goes in pieces: beside its old and
 * its new shard no process ever has more than 64 MiB, over sockets, where what comes is this process's own memory.
 */
#define _GNU_SOURCE
#include <malloc.h>
#include <unistd.h>

#include "capi/check.h"
#include "capi/support/group.h"
#include "capi/support/processes.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { kIsMeasured = 0 }; /* a sanitizer has memory of its own */
#else
enum { kIsMeasured = 1 };
#endif
enum { kProcesses = 3, kRows = 8 * 1024, kColumns = 4 * 1024 };

static const int64_t kShape[] = {kRows, kColumns};
static const int64_t kWhole = (int64_t)kRows * kColumns * (int64_t)sizeof(double);
static const int64_t kExtra = INT64_C(64) << 20;

/* A line about this process, in bytes. */
static int64_t memory_of(const char *name) {
  char line[256];
  long long kib = -1;
  FILE *file = fopen("/proc/self/status", "r");
  if (!CHECK(file != NULL)) return 0;
  while (kib < 0 && fgets(line, sizeof line, file) != NULL) {
    if (strncmp(line, name, strlen(name)) == 0) sscanf(line + strlen(name), ": %lld", &kib);
  }
  fclose(file);
  return (int64_t)kib << 10;
}

static void forget_peak(void) {
  FILE *file = fopen("/proc/self/clear_refs", "w");
  if (!CHECK(file != NULL)) return;
  CHECK(fputs("5", file) >= 0);
  CHECK(fclose(file) == 0);
}

/* The shard has the numbers of its box, counted over the whole. */
static void check_shard(distag_tensor *sharded, int64_t first_row, int64_t rows, int64_t first_column,
                        int64_t columns) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_tensor *part = NULL;
  int64_t wrong = 0;
  CHECK_OK(distag_tensor_to_local(sharded, NULL, &part, &err));
  CHECK_INT(distag_tensor_get_count(part), rows * columns);
  const double *found = distag_tensor_get_data(part);
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < columns; ++column) {
      wrong += found[row * columns + column] != (double)((first_row + row) * kColumns + first_column + column);
    }
  }
  CHECK_INT(wrong, 0);
  distag_tensor_release(part);
}

static distag_status write_numbers(void *user_data, const int64_t *offset, const int64_t *extent, size_t ndim,
                                   void *buffer, size_t size, distag_error *err) {
  (void)user_data, (void)ndim, (void)size, (void)err;
  double *next = buffer;
  for (int64_t row = 0; row < extent[0]; ++row) {
    for (int64_t column = 0; column < extent[1]; ++column) {
      *next++ = (double)((offset[0] + row) * kColumns + offset[1] + column);
    }
  }
  return DISTAG_OK;
}

static distag_tensor *move(distag_tensor *x, const char *spec, int64_t target, int32_t rank) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_tensor *moved = NULL;
  forget_peak();
  const int64_t before = memory_of("VmRSS");
  CHECK_OK(distag_redistribute(x, spec, 0, &moved, &err));
  const int64_t beside = memory_of("VmHWM") - before - target;
  printf("rank %d, to %s: %lld KiB beside the target\n", (int)rank, spec, (long long)beside >> 10);
  fflush(stdout);
  CHECK(!kIsMeasured || beside <= kExtra);
  return moved;
}

static int run(const char *rendezvous, int32_t rank, int32_t count, void *data) {
  (void)data;
  static const char *const kNames[] = {"x"};
  const int64_t shape[] = {-1};
  distag_error err = DISTAG_ERROR_INIT;
  distag_worker *worker = NULL;
  distag_mesh *mesh = NULL;
  distag_tensor *x = NULL;
  alarm(500);
  CHECK(!kIsMeasured || mallopt(M_MMAP_THRESHOLD, 1 << 17) == 1); /* large blocks go back when they are freed */
  distag_worker_options options = group_options(rank, count, rendezvous);
  options.no_lane = 1;
  CHECK_OK(distag_worker_create(&options, &worker, &err));
  if (!CHECK_OK(distag_worker_start(worker, 60 * DISTAG_SECOND, &err))) return 1;
  if (!CHECK_OK(distag_mesh_create(worker, NULL, 0, shape, kNames, 1, NULL, &mesh, &err))) return 1;
  distag_deferred_options numbers = DISTAG_DEFERRED_OPTIONS_INIT;
  numbers.init = DISTAG_INIT_SOURCE;
  numbers.source = write_numbers;
  CHECK_OK(distag_tensor_create_deferred(DISTAG_FLOAT64, kShape, 2, &numbers, &x, &err));
  CHECK_OK(distag_tensor_mark_sharding(x, mesh, "('x', None)", -1, &err));
  distag_tensor *whole = move(x, "(None, None)", kWhole, rank);
  check_shard(whole, 0, kRows, 0, kColumns);
  distag_tensor_release(whole);
  distag_tensor *columns = move(x, "(None, 'x')", kWhole / kProcesses, rank);
  const int64_t block = (kColumns + kProcesses - 1) / kProcesses, first = rank * block;
  check_shard(columns, 0, kRows, first, first + block > kColumns ? kColumns - first : block);
  distag_tensor_release(columns);
  distag_tensor_release(x);
  distag_mesh_release(mesh);
  CHECK_OK(distag_worker_shutdown(worker, 60 * DISTAG_SECOND, NULL, &err));
  distag_worker_release(worker);
  return check_end();
}

int main(void) {
  processes group;
  CHECK_INT(processes_start(&group, kProcesses, run, NULL), 0);
  CHECK_INT(processes_end(&group, -1), 0);
  return check_end();
}
