/* After a burst of large payload a process keeps little of its memory: a producer sends faster than the consumer works
 * for a while, and with everything done and nothing open the consumer is about as small as before. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "capi/check.h"
#include "capi/support/group.h"
#include "capi/support/processes.h"
#include "capi/support/resident.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { kSeconds = 1, kIsMeasured = 0, kOpen = 100 }; /* a sanitizer is slow, and has memory of its own */
#else
enum { kSeconds = 3, kIsMeasured = 1, kOpen = 1500 };
#endif
enum { kLarge = 1 << 18, kSmall = 25600 };
static const int64_t kMostKept = 48 << 20;

/* Works on a tensor for longer than it takes to send one. */
static distag_status consume(void *user_data, distag_invocation *invocation, distag_error *err) {
  distag_tensor *x = NULL;
  (void)user_data;
  distag_invocation_get_tensor(invocation, 0, &x, err);
  for (int i = 0; i < 16; ++i) {
    distag_tensor *y = NULL;
    distag_exp(x, &y, err);
    distag_tensor_release(y);
  }
  return err->code;
}

static distag_worker *start_worker(int rank, const char *rendezvous) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_worker_options options = DISTAG_WORKER_OPTIONS_INIT;
  distag_worker *worker = NULL;
  options.rank = rank;
  options.world_size = 2;
  options.rendezvous = rendezvous;
  options.max_in_flight_bytes = (uint64_t)1 << 40; /* the burst is not to be held up */
  CHECK_OK(distag_worker_create(&options, &worker, &err));
  CHECK_OK(distag_worker_register(worker, "consume", consume, NULL, NULL, NULL, &err));
  CHECK_OK(distag_worker_start(worker, 120 * DISTAG_SECOND, &err));
  return worker;
}

static int produce(const char *rendezvous) {
  static distag_future *open[kOpen];
  distag_error err = DISTAG_ERROR_INIT;
  const int64_t large = kLarge, small = kSmall;
  distag_worker *worker = start_worker(1, rendezvous);
  distag_tensor *x = NULL, *y = NULL;
  int64_t sent = 0;
  CHECK_OK(distag_rand(1, DISTAG_FLOAT32, &large, 1, &x, &err));
  CHECK_OK(distag_rand(1, DISTAG_FLOAT32, &small, 1, &y, &err));
  distag_value *const args[] = {distag_tensor_as_value(x), distag_tensor_as_value(y)};
  for (const int64_t end = now_ns() + kSeconds * DISTAG_SECOND; now_ns() < end; ++sent) {
    distag_future **slot = &open[sent % kOpen];
    if (*slot != NULL) CHECK_OK(distag_future_wait(*slot, DISTAG_FOREVER, &err));
    distag_future_release(*slot);
    *slot = NULL;
    CHECK_OK(distag_call_async(worker, NULL, "worker0", "consume", args + sent % 2, 1, NULL, slot, &err));
  }
  for (int i = 0; i < kOpen; ++i) {
    if (open[i] != NULL) CHECK_OK(distag_future_wait(open[i], DISTAG_FOREVER, &err));
    distag_future_release(open[i]);
  }
  printf("%lld tensors of 1 MiB and 100 KiB\n", (long long)sent);
  distag_tensor_release(x);
  distag_tensor_release(y);
  CHECK_OK(distag_worker_shutdown(worker, 120 * DISTAG_SECOND, NULL, &err));
  distag_worker_release(worker);
  fflush(stdout);
  return check_failures;
}

int main(void) {
  distag_error err = DISTAG_ERROR_INIT;
  char directory[] = "/tmp/distag-burst-XXXXXX", rendezvous[64], command[64];
  int status = -1;
  CHECK(mkdtemp(directory) != NULL);
  snprintf(rendezvous, sizeof rendezvous, "file://%s", directory);
  const pid_t producer = fork();
  if (producer == 0) _exit(produce(rendezvous) != 0);
  distag_worker *worker = start_worker(0, rendezvous);
  const int64_t before = resident_bytes();
  CHECK_OK(distag_worker_shutdown(worker, 120 * DISTAG_SECOND, NULL, &err)); /* graceful: once all is done */
  distag_worker_release(worker);
  CHECK(waitpid(producer, &status, 0) == producer && status == 0);
  const int64_t after = resident_bytes();
  printf("%lld MiB before, %lld MiB after\n", (long long)before >> 20, (long long)after >> 20);
  if (kIsMeasured) CHECK(after - before < kMostKept);
  snprintf(command, sizeof command, "rm -rf %s", directory);
  CHECK(system(command) == 0);
  return check_end();
}
