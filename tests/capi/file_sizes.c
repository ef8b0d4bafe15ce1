/* A host whose files may be no longer than some limit lives on: where processes meet by file, by tcp, or within one,
 * each limit from nothing to 1 MiB lets them work, by sockets where a lane is too long, or is an error that names
 * `ulimit -f`. The same holds where the limit falls only after the start. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "capi/check.h"
#include "capi/support/group.h"

enum { kFile, kTcp, kInproc, kWays };
enum { kServed = 0, kWrong = 1, kRefused = 2 };
enum { kLane = 80 << 10 };
static const rlim_t kLimits[] = {0, 1, 4096, 16384, 65536, kLane - 1, kLane, 262144, 1048576};
enum { kLimitCount = sizeof kLimits / sizeof *kLimits };

static distag_error err = DISTAG_ERROR_INIT;
static char folder[] = "/tmp/distag-sizes-XXXXXX";
static volatile sig_atomic_t signals;

static void count_signal(int number) { signals += number == SIGXFSZ; }

static void limit_files(rlim_t bytes) {
  const struct rlimit limit = {bytes, RLIM_INFINITY};
  CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
}

static void call_neg(distag_worker *worker, const char *peer, int64_t count) {
  distag_tensor *x = NULL, *y = NULL;
  distag_value *result = NULL;
  float *seen = calloc((size_t)count, sizeof *seen);
  CHECK_OK(distag_full(3, DISTAG_FLOAT32, &count, 1, &x, &err));
  distag_value *arg = distag_tensor_as_value(x);
  CHECK_OK(distag_call(worker, NULL, peer, "neg", &arg, 1, NULL, &result, &err));
  CHECK_OK(distag_value_get_tensor(result, &y, &err));
  CHECK_OK(distag_tensor_copy_data(y, seen, (size_t)count * sizeof *seen, &err));
  int64_t right = 0;
  while (right < count && seen[right] == -3) ++right;
  CHECK_INT(right, count);
  free(seen);
  distag_value_release(result);
  distag_tensor_release(x);
}

static void use(distag_worker *worker, const char *peer) {
  call_neg(worker, peer, 1);
  call_neg(worker, peer, 1 << 18);
}

/* The way to the peer is a lane, or the report says that the limit of file sizes forbids one. */
static void check_way(distag_worker *worker, int has_lane) {
  static char report[65536];
  size_t size = 0;
  CHECK_OK(distag_worker_copy_report(worker, report, sizeof report, &size, &err));
  if (!CHECK((strstr(report, "ulimit -f") == NULL) == has_lane)) fprintf(stderr, "%s\n", report);
}

/* Accepts only the errors that this limit causes. */
static int refused(void) {
  const int is_right =
      (err.code == DISTAG_E_INVALID_STATE || err.code == DISTAG_E_DENIED) && strstr(err.message, "ulimit -f") != NULL;
  if (!is_right) fprintf(stderr, "start: %s: %s\n", distag_status_get_name(err.code), err.message);
  return is_right ? kRefused : kWrong;
}

static int live_apart(const char *rendezvous, int32_t rank, rlim_t limit, int is_late) {
  distag_worker *worker = NULL;
  distag_worker_options options = group_options(rank, 2, rendezvous);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (!is_late) limit_files(limit);
  CHECK_OK(distag_worker_create(&options, &worker, &err));
  if (distag_worker_start(worker, 120 * DISTAG_SECOND, &err) != DISTAG_OK) {
    const int result = refused();
    distag_worker_release(worker);
    return result;
  }
  if (is_late) limit_files(limit);
  use(worker, rank == 0 ? "w1" : "w0");
  if (!is_late || limit >= kLane) check_way(worker, limit >= kLane); /* the peer may have dialled before */
  CHECK_OK(distag_worker_shutdown(worker, 120 * DISTAG_SECOND, NULL, &err));
  distag_worker_release(worker);
  CHECK_INT(signals, 0);
  return check_end() == 0 ? kServed : kWrong;
}

static int live_together(rlim_t limit, int is_late) {
  distag_worker *workers[2] = {NULL, NULL};
  if (!is_late) limit_files(limit);
  for (int32_t rank = 0; rank < 2; ++rank) {
    distag_worker_options options = group_options(rank, 2, "inproc://sizes");
    CHECK_OK(distag_worker_create(&options, &workers[rank], &err));
  }
  CHECK_INT(group_start(workers, 2), 0);
  if (is_late) limit_files(limit);
  use(workers[0], "w1");
  CHECK_INT(group_shutdown(workers, 2), 0);
  for (int rank = 0; rank < 2; ++rank) distag_worker_release(workers[rank]);
  CHECK_INT(signals, 0);
  return check_end() == 0 ? kServed : kWrong;
}

static int free_port(void) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t size = sizeof address;
  const int found = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  CHECK(bind(found, (struct sockaddr *)&address, size) == 0);
  CHECK(getsockname(found, (struct sockaddr *)&address, &size) == 0);
  close(found);
  return ntohs(address.sin_port);
}

/* The signal has its default action, or a handler of the host's, which must not be called. */
static void try_limit(int way, rlim_t limit, int is_late, int has_handler) {
  char rendezvous[96];
  pid_t members[2];
  int status[2] = {-1, -1};
  const int count = way == kInproc ? 1 : 2;
  CHECK(mkdir(folder, 0700) == 0);
  snprintf(rendezvous, sizeof rendezvous, "file://%s", folder);
  if (way == kTcp) snprintf(rendezvous, sizeof rendezvous, "tcp://127.0.0.1:%d", free_port());
  for (int32_t rank = 0; rank < count; ++rank) {
    members[rank] = fork();
    if (members[rank] != 0) continue;
    check_failures = 0; /* those of the parent */
    if (has_handler) signal(SIGXFSZ, count_signal);
    _exit(way == kInproc ? live_together(limit, is_late) : live_apart(rendezvous, rank, limit, is_late));
  }
  /* The limit may be too small for the record of the group, or for the key of the user. */
  const int is_short = !is_late && ((way == kFile && limit <= 1) || (way == kTcp && limit <= 1));
  for (int rank = 0; rank < count; ++rank) {
    CHECK(waitpid(members[rank], &status[rank], 0) == members[rank]);
    if (CHECK(WIFEXITED(status[rank]) && WEXITSTATUS(status[rank]) == (is_short ? kRefused : kServed))) continue;
    fprintf(stderr, "way %d, limit %llu, late %d, rank %d: status %d\n", way, (unsigned long long)limit, is_late, rank,
            status[rank]);
  }
  char command[96];
  snprintf(command, sizeof command, "rm -rf '%s'", folder);
  CHECK_INT(system(command), 0);
}

int main(void) {
  if (!CHECK(mkdtemp(folder) != NULL && rmdir(folder) == 0)) return check_end();
  setenv("XDG_STATE_HOME", folder, 1); /* where no key is yet */
  for (int way = 0; way < kWays; ++way) {
    for (int i = 0; i < kLimitCount; ++i) {
      try_limit(way, kLimits[i], 0, 0);
      try_limit(way, kLimits[i], 1, i % 2);
    }
  }
  return check_end();
}
