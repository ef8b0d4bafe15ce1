/* Workers over sockets leave nothing behind: after 200 starts, and after the shutdown of one whose peer is stopped,
 * this process has the threads and descriptors of before the first start. */
#define _GNU_SOURCE
#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/types.h>
#include <unistd.h>

#include "capi/check.h"
#include "capi/support/group.h"
#include "capi/support/processes.h"

enum { kStarts = 200, kCalls = 100, kValues = 1 << 17 };

static distag_error err = DISTAG_ERROR_INIT;

typedef struct held {
  int threads, descriptors;
} held;

static int count(const char *path) {
  int entries = 0;
  DIR *const folder = opendir(path);
  while (folder != NULL && readdir(folder) != NULL) ++entries;
  if (folder != NULL) closedir(folder);
  return entries;
}

static held count_held(void) {
  held now;
  now.threads = count("/proc/self/task");
  now.descriptors = count("/proc/self/fd");
  return now;
}

/* A thread that was joined is listed until the system is done with it. */
static void check_held(held before, const char *when) {
  held now = count_held();
  for (const int64_t until = now_ns() + 60 * DISTAG_SECOND; now.threads > before.threads && now_ns() < until;) {
    poll(NULL, 0, 1);
    now = count_held();
  }
  if (!CHECK(now.threads == before.threads && now.descriptors == before.descriptors)) {
    fprintf(stderr, "%s: %d threads and %d descriptors, of %d and %d\n", when, now.threads, now.descriptors,
            before.threads, before.descriptors);
  }
}

static distag_worker_options options_of(int32_t rank, const char *rendezvous, const distag_security_options *security) {
  distag_worker_options options = group_options(rank, 2, rendezvous);
  options.no_lane = 1;
  options.thread_count = 1;
  options.lease_ns = 600 * DISTAG_SECOND; /* no peer is lost meanwhile */
  if (security != NULL) {
    options.security = security;
    options.bind = "tcp://127.0.0.1:0";
  }
  return options;
}

static void use(distag_worker *caller, const char *callee) {
  distag_tensor *x = NULL;
  CHECK_OK(distag_zeros(DISTAG_FLOAT32, NULL, 0, &x, &err));
  CHECK_OK(
      distag_call(caller, NULL, callee, "neg", (distag_value *[]){distag_tensor_as_value(x)}, 1, NULL, NULL, &err));
  distag_tensor_release(x);
}

static void start_and_end(const distag_security_options *security) {
  char rendezvous[64], folder[] = "/tmp/distag-test-XXXXXX";
  distag_worker *workers[2] = {NULL, NULL};
  CHECK(mkdtemp(folder) != NULL);
  snprintf(rendezvous, sizeof rendezvous, "file://%s", folder);
  for (int32_t rank = 0; rank < 2; ++rank) {
    const distag_worker_options options = options_of(rank, rendezvous, security);
    CHECK_OK(distag_worker_create(&options, &workers[rank], &err));
  }
  CHECK_INT(group_start(workers, 2), 0);
  use(workers[0], "w1");
  use(workers[1], "w0");
  CHECK_INT(group_shutdown(workers, 2), 0);
  for (int i = 0; i < 2; ++i) distag_worker_release(workers[i]);
  CHECK_INT(rmdir(folder), 0);
}

static void after_many_starts(void) {
  distag_security_options security = DISTAG_SECURITY_OPTIONS_INIT;
  security.group_key = "a key of 32 or more characters, of a group";
  start_and_end(NULL); /* the first one binds symbols, and opens what the C library keeps */
  const held before = count_held();
  for (int i = 0; i < kStarts && check_failures == 0; ++i) start_and_end(i % 2 == 0 ? NULL : &security);
  check_held(before, "after many starts");
}

/* ---- a peer that is stopped ---- */

static distag_status who(void *user_data, distag_invocation *invocation, distag_error *error) {
  distag_value *id = NULL;
  (void)user_data;
  distag_value_create_int64(getpid(), &id, error);
  distag_invocation_return(invocation, id, error);
  distag_value_release(id);
  return error->code;
}

/* More is on its way to the peer than sockets hold, and the peer reads nothing. */
static void leave_one_that_is_stopped(const char *rendezvous) {
  const held before = count_held();
  const distag_worker_options options = options_of(0, rendezvous, NULL);
  distag_worker *worker = NULL;
  distag_value *answer = NULL;
  distag_tensor *large = NULL;
  distag_future *calls[kCalls] = {NULL};
  int64_t peer = 0;
  CHECK_OK(distag_worker_create(&options, &worker, &err));
  CHECK_OK(distag_worker_start(worker, 120 * DISTAG_SECOND, &err));
  CHECK_OK(distag_call(worker, NULL, "w1", "who", NULL, 0, NULL, &answer, &err));
  CHECK_OK(distag_value_get_int64(answer, &peer, &err));
  CHECK_OK(distag_full(1, DISTAG_FLOAT64, (const int64_t[]){kValues}, 1, &large, &err));
  if (check_failures != 0) return;
  kill((pid_t)peer, SIGSTOP);
  for (int i = 0; i < kCalls; ++i) {
    CHECK_OK(distag_call_async(worker, NULL, "w1", "neg", (distag_value *[]){distag_tensor_as_value(large)}, 1, NULL,
                               &calls[i], &err));
  }
  const int64_t begun = now_ns();
  const distag_status status = distag_worker_shutdown(worker, DISTAG_SECOND, NULL, &err);
  CHECK(status == DISTAG_OK || status == DISTAG_E_DEADLINE);
  CHECK(now_ns() - begun < 60 * DISTAG_SECOND);
  for (int i = 0; i < kCalls; ++i) distag_future_release(calls[i]);
  distag_tensor_release(large);
  distag_value_release(answer);
  distag_worker_release(worker);
  check_held(before, "after the shutdown beside a stopped peer");
  kill((pid_t)peer, SIGKILL);
}

static int run_member(const char *rendezvous, int32_t rank, int32_t size, void *data) {
  (void)size, (void)data;
  alarm(500);
  if (rank == 0) {
    leave_one_that_is_stopped(rendezvous);
    return check_end();
  }
  const distag_worker_options options = options_of(rank, rendezvous, NULL);
  distag_worker *worker = NULL;
  CHECK_OK(distag_worker_create(&options, &worker, &err));
  CHECK_OK(distag_worker_register(worker, "who", who, NULL, NULL, NULL, &err));
  CHECK_OK(distag_worker_start(worker, 120 * DISTAG_SECOND, &err));
  for (;;) pause();
}

int main(void) {
  processes group;
  CHECK_INT(processes_start(&group, 2, run_member, NULL), 0);
  CHECK_INT(processes_end(&group, 1), 0);
  after_many_starts();
  return check_end();
}
