/* A side of a lane is lost. Tensors that a lost sender has lent stay readable as long as they are held; tensors lent to
 * a lost receiver are free again, and a receiver that was only stopped goes on to read what it was lent. */
#define _GNU_SOURCE
#include <poll.h>
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "capi/check.h"
#include "capi/support/group.h"
#include "capi/support/lent_bytes.h"
#include "capi/support/processes.h"
#include "capi/support/resident.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { kIsMeasured = 0 }; /* a sanitizer has memory of its own */
#else
enum { kIsMeasured = 1 };
#endif
/* Tensors of 32 MiB. */
enum { kTensors = 6, kCount = 8 << 20 };
static const int64_t kLentBytes = (int64_t)kTensors * kCount * (int64_t)sizeof(float);
static const int64_t kMostKept = 32 << 20; /* of 192 MiB */
static const int64_t kLease = 10 * DISTAG_SECOND, kShortLease = 3 * DISTAG_SECOND;

/* State of both processes. */
typedef struct shared {
  int signal;              /* that ends the receiver */
  _Atomic int has_written; /* the sender, after the loss */
} shared;

static distag_error err = DISTAG_ERROR_INIT;

/* ---- the member that is lent to ---- */

static distag_value *kept[kTensors];
static sem_t other_is_lost;

/* Keeps the tensors as they came, without a look at them. */
static distag_status keep(void *user_data, distag_invocation *invocation, distag_error *error) {
  (void)user_data;
  for (size_t i = 0; i < kTensors; ++i) {
    kept[i] = distag_invocation_get_arg(invocation, i);
    distag_value_retain(kept[i]);
  }
  (void)error;
  return DISTAG_OK;
}

static distag_status tell_process(void *user_data, distag_invocation *invocation, distag_error *error) {
  distag_value *process = NULL;
  (void)user_data;
  if (distag_value_create_int64(getpid(), &process, error) == DISTAG_OK) {
    distag_invocation_return(invocation, process, error);
  }
  distag_value_release(process);
  return error->code;
}

static void on_member(void *user_data, distag_worker *worker, const distag_member *member) {
  (void)user_data;
  (void)worker;
  if (member->state == DISTAG_MEMBER_LOST) sem_post(&other_is_lost);
}

/* ---- both ---- */

static distag_worker *start_worker(const char *rendezvous, int32_t rank, int32_t count, int64_t lease) {
  distag_worker_options options = group_options(rank, count, rendezvous);
  distag_worker *worker = NULL;
  options.lease_ns = lease;
  options.on_member = on_member;
  CHECK_INT(sem_init(&other_is_lost, 0, 0), 0);
  CHECK_OK(distag_worker_create(&options, &worker, &err));
  CHECK_OK(distag_worker_register(worker, "keep", keep, NULL, NULL, NULL, &err));
  CHECK_OK(distag_worker_register(worker, "tell_process", tell_process, NULL, NULL, NULL, &err));
  CHECK_OK(distag_worker_start(worker, 60 * DISTAG_SECOND, &err));
  return worker;
}

/* The group is not whole at its end. */
static void end_worker(distag_worker *worker) {
  distag_worker_shutdown(worker, 0, NULL, &err);
  distag_worker_release(worker);
}

static void wait_for_loss(void) {
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += 240;
  CHECK(sem_timedwait(&other_is_lost, &until) == 0);
}

/* Whether the bytes come down to `most` in time: memory goes back at intervals. */
static int comes_below(int64_t (*bytes)(void), int64_t most) {
  const int64_t end = now_ns() + 120 * DISTAG_SECOND;
  while (bytes() > most && now_ns() < end) poll(NULL, 0, 10);
  if (bytes() <= most) return 1;
  fprintf(stderr, "%lld bytes, not at most %lld\n", (long long)bytes(), (long long)most);
  return 0;
}

static void check_all(distag_tensor *x, float value) {
  const float *numbers = distag_tensor_get_data(x);
  int64_t same = 0;
  while (same < kCount && numbers[same] == value) ++same;
  CHECK_INT(same, kCount);
}

static void lend_all(distag_worker *worker, const char *to, distag_tensor **tensors) {
  const int64_t count = kCount;
  distag_value *args[kTensors];
  for (int i = 0; i < kTensors; ++i) {
    CHECK_OK(distag_full(10 + i, DISTAG_FLOAT32, &count, 1, &tensors[i], &err));
    check_all(tensors[i], (float)(10 + i));
    args[i] = distag_tensor_as_value(tensors[i]);
  }
  CHECK_OK(distag_call(worker, NULL, to, "keep", args, kTensors, NULL, NULL, &err));
}

/* The number after the name in the part "lane" of the report. */
static int64_t lane_number(distag_worker *worker, const char *name) {
  static char report[1 << 16];
  char quoted[32];
  size_t size = 0;
  CHECK_OK(distag_worker_copy_report(worker, report, sizeof report, &size, &err));
  snprintf(quoted, sizeof quoted, "\"%s\":", name);
  const char *const found = strstr(report, quoted);
  return CHECK(found != NULL) ? atoll(found + strlen(quoted)) : -1;
}

static void check_kept(void) {
  for (int i = 0; i < kTensors && CHECK(kept[i] != NULL); ++i) {
    distag_tensor *x = NULL, *y = NULL;
    CHECK_OK(distag_value_get_tensor(kept[i], &x, &err));
    check_all(x, (float)(10 + i));
    CHECK_OK(distag_neg(x, &y, &err));
    check_all(y, (float)(-10 - i));
    check_all(x, (float)(10 + i));
    distag_tensor_release(y);
  }
  CHECK(borrowed_bytes() >= kLentBytes); /* it was read where it lies */
}

static void release_kept(void) {
  for (int i = 0; i < kTensors; ++i) distag_value_release(kept[i]);
  CHECK(comes_below(borrowed_bytes, 0));
}

/* ---- a lost sender ---- */

static int lend_and_die(const char *rendezvous, int32_t rank, int32_t count) {
  distag_worker *worker = start_worker(rendezvous, rank, count, kLease);
  distag_tensor *tensors[kTensors] = {NULL};
  lend_all(worker, "w0", tensors);
  CHECK_INT(lane_number(worker, "bytes_out"), kLentBytes);
  if (check_failures == 0) raise(SIGKILL);
  return 1;
}

static int outlive_sender(const char *rendezvous, int32_t rank, int32_t count) {
  distag_worker *worker = start_worker(rendezvous, rank, count, kLease);
  const int64_t before = resident_bytes();
  wait_for_loss();
  check_kept();
  release_kept();
  CHECK(comes_below(lendable_bytes, 0));
  if (kIsMeasured) CHECK(comes_below(resident_bytes, before + kMostKept));
  end_worker(worker);
  return check_end();
}

static int lost_sender(const char *rendezvous, int32_t rank, int32_t count, void *data) {
  (void)data;
  return (rank == 0 ? outlive_sender : lend_and_die)(rendezvous, rank, count);
}

/* ---- a lost receiver ---- */

static pid_t process_of(distag_worker *worker, const char *peer) {
  distag_value *process = NULL;
  int64_t number = 0;
  CHECK_OK(distag_call(worker, NULL, peer, "tell_process", NULL, 0, NULL, &process, &err));
  CHECK_OK(distag_value_get_int64(process, &number, &err));
  distag_value_release(process);
  return (pid_t)number;
}

static void check_holds_are_dropped(distag_worker *worker) {
  const int64_t end = now_ns() + 120 * DISTAG_SECOND;
  while (lane_number(worker, "loans_out") != 0 && now_ns() < end) poll(NULL, 0, 1);
  CHECK_INT(lane_number(worker, "loans_out"), 0);
  CHECK_INT(lane_number(worker, "bytes_out"), 0);
}

static void write_all(distag_tensor *x, float value) {
  float *numbers = malloc(kCount * sizeof *numbers);
  for (int64_t i = 0; i < kCount; ++i) numbers[i] = value;
  CHECK_OK(distag_tensor_write(x, numbers, kCount * sizeof *numbers, &err));
  free(numbers);
}

static int outlive_receiver(const char *rendezvous, shared *both) {
  distag_worker *worker = start_worker(rendezvous, 0, 2, both->signal == SIGKILL ? kLease : kShortLease);
  const int64_t before = resident_bytes();
  distag_tensor *tensors[kTensors] = {NULL};
  const pid_t receiver = process_of(worker, "w1");
  lend_all(worker, "w1", tensors);
  CHECK(lane_number(worker, "loans_out") >= kTensors);
  CHECK_INT(lane_number(worker, "bytes_out"), kLentBytes);
  if (!CHECK(receiver > 0)) return 1;
  CHECK_INT(kill(receiver, both->signal), 0);
  check_holds_are_dropped(worker);
  wait_for_loss();
  for (int i = 0; i < kTensors; ++i) {
    check_all(tensors[i], (float)(10 + i));
    write_all(tensors[i], (float)(20 + i));
    check_all(tensors[i], (float)(20 + i));
  }
  both->has_written = 1;
  CHECK_INT(kill(receiver, SIGCONT), 0); /* no effect if it is dead: it has not been waited for yet */
  for (int i = 0; i < kTensors; ++i) distag_tensor_release(tensors[i]);
  CHECK(comes_below(lendable_bytes, 0));
  if (kIsMeasured) CHECK(comes_below(resident_bytes, before + kMostKept));
  end_worker(worker);
  return check_end();
}

/* Runs until it is killed, or goes on after others have lost it. */
static int be_lost(const char *rendezvous, shared *both) {
  distag_worker *worker = start_worker(rendezvous, 1, 2, both->signal == SIGKILL ? kLease : kShortLease);
  const int64_t end = now_ns() + 240 * DISTAG_SECOND;
  while (!both->has_written && now_ns() < end) poll(NULL, 0, 1);
  CHECK_INT(both->has_written, 1);
  check_kept();
  release_kept();
  end_worker(worker);
  return check_end();
}

static int lost_receiver(const char *rendezvous, int32_t rank, int32_t count, void *data) {
  (void)count;
  return (rank == 0 ? outlive_receiver : be_lost)(rendezvous, data);
}

static void run(int (*member)(const char *rendezvous, int32_t rank, int32_t count, void *data), shared *both,
                int is_killed) {
  processes group;
  CHECK_INT(processes_start(&group, 2, member, both), 0);
  CHECK_INT(processes_end(&group, is_killed ? 1 : -1), 0);
}

int main(void) {
  shared *both = mmap(NULL, sizeof *both, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (!CHECK(both != MAP_FAILED)) return check_end();
  CHECK(unsetenv("DISTAG_LANE") == 0);
  run(lost_sender, NULL, 1);
  both->signal = SIGKILL;
  run(lost_receiver, both, 1);
  both->signal = SIGSTOP;
  both->has_written = 0;
  run(lost_receiver, both, 0);
  return check_end();
}
