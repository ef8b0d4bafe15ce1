/* Forks at any moment beside matrix products that threads of the BLAS take part in: the products of the parent go on
 * and are right, and so are those of each child. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "capi/check.h"
#include "capi/support/group.h"

enum { kSize = 192, kForkers = 2, kMultipliers = 2, kForks = 60, kSeconds = 240 };
static distag_error err = DISTAG_ERROR_INIT;
static atomic_int is_over, products;

/* [i][j] = i, times [i][j] = 1: rows of i * kSize. */
static void multiply(distag_worker *worker, distag_error *told) {
  static const int64_t shape[] = {kSize, kSize}, column[] = {kSize, 1};
  float *seen = malloc(sizeof(float) * kSize * kSize);
  distag_tensor *count = NULL, *rows = NULL, *ones = NULL, *wide = NULL, *product = NULL;
  distag_value *result = NULL;
  distag_arange(0, kSize, 1, DISTAG_FLOAT32, &count, told);
  distag_reshape(count, column, 2, &rows, told);
  distag_full(1, DISTAG_FLOAT32, shape, 2, &ones, told);
  distag_mul(rows, ones, &wide, told);
  distag_value *args[] = {distag_tensor_as_value(wide), distag_tensor_as_value(ones)};
  if (worker == NULL) {
    distag_matmul(wide, ones, &product, told);
  } else {
    distag_call(worker, NULL, "w0", "matmul", args, 2, NULL, &result, told);
    distag_value_get_tensor(result, &product, told);
  }
  distag_tensor_copy_data(product, seen, sizeof(float) * kSize * kSize, told);
  int wrong = 0;
  for (int i = 0; i < kSize * kSize && told->code == DISTAG_OK; ++i) wrong += seen[i] != (float)(i / kSize * kSize);
  CHECK_INT(told->code, DISTAG_OK);
  CHECK_INT(wrong, 0);
  if (result == NULL) distag_tensor_release(product);
  distag_value_release(result);
  distag_tensor_release(wide);
  distag_tensor_release(ones);
  distag_tensor_release(rows);
  distag_tensor_release(count);
  free(seen);
}

static void *multiply_on(void *worker) {
  distag_error told = DISTAG_ERROR_INIT;
  while (!atomic_load(&is_over)) {
    multiply(worker, &told);
    atomic_fetch_add(&products, 1);
  }
  return NULL;
}

static void *fork_often(void *unused) {
  (void)unused;
  for (int i = 0; i < kForks; ++i) {
    int status = -1;
    const pid_t child = fork();
    if (child == 0) {
      distag_error told = DISTAG_ERROR_INIT;
      check_failures = 0;
      alarm(kSeconds);
      if (i % 8 == 0) multiply(NULL, &told);
      _exit(check_failures != 0);
    }
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    CHECK_INT(status, 0);
  }
  return NULL;
}

int main(int argc, char **argv) {
  if (argc == 1) { /* the BLAS reads it when it is loaded */
    setenv("OPENBLAS_NUM_THREADS", "2", 1);
    execl("/proc/self/exe", argv[0], "again", (char *)NULL);
    return 1;
  }
  alarm(kSeconds); /* a hang is a failure */
  distag_worker *workers[2] = {NULL, NULL};
  for (int32_t rank = 0; rank < 2; ++rank) {
    distag_worker_options options = group_options(rank, 2, "inproc://fork-products");
    CHECK_OK(distag_worker_create(&options, &workers[rank], &err));
  }
  CHECK_INT(group_start(workers, 2), 0);
  pthread_t multipliers[kMultipliers], forkers[kForkers];
  for (int i = 0; i < kMultipliers; ++i) pthread_create(&multipliers[i], NULL, multiply_on, i == 0 ? NULL : workers[1]);
  while (atomic_load(&products) == 0 && check_failures == 0) continue;
  for (int i = 0; i < kForkers; ++i) pthread_create(&forkers[i], NULL, fork_often, NULL);
  for (int i = 0; i < kForkers; ++i) pthread_join(forkers[i], NULL);
  const int until_now = atomic_load(&products);
  while (atomic_load(&products) < until_now + 4) continue; /* the parent goes on as before */
  atomic_store(&is_over, 1);
  for (int i = 0; i < kMultipliers; ++i) pthread_join(multipliers[i], NULL);
  CHECK_INT(group_shutdown(workers, 2), 0);
  for (int i = 0; i < 2; ++i) distag_worker_release(workers[i]);
  return check_end();
}
