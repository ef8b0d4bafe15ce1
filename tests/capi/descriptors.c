/* A process whose descriptors are short lives on: under each limit of open files from 8 on its start or first calls
 * answer OUT_OF_MEMORY or DISCONNECTED, or its workers serve each other while strangers open 1,000 connections to them,
 * leave the host the descriptors it was promised, and accept again when the strangers are gone. With libzmq, which
 * ends the process when it accepts without a descriptor, no stranger comes. */
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "capi/check.h"
#include "capi/support/engine.h"
#include "capi/support/group.h"

enum { kFirst = 8, kLast = 96, kBurst = 1000, kPatienceMs = 120000, kChildSeconds = 240 };
enum { kFree = 4, kMoment = 4 };
enum { kAtOnce = 8 }; /* limits: a few wait for leases, and the others need not wait for those */
enum { kServed = 0, kRefused = 2 };
enum { kInproc, kIpc, kTcp, kKinds };

static const char *const kKindNames[kKinds] = {"inproc", "ipc", "tcp"};
static char directory[] = "/tmp/distag-test-XXXXXX";
static char group[128]; /* where the workers under one limit meet */
static distag_error err = DISTAG_ERROR_INIT;

/* ---- the process that is short of descriptors ---- */

static distag_status try_to_use(distag_worker *caller, const char *callee) {
  distag_tensor *zero = NULL;
  distag_value *answer = NULL;
  distag_error told = DISTAG_ERROR_INIT;
  distag_zeros(DISTAG_FLOAT32, NULL, 0, &zero, &told);
  distag_value *arg = distag_tensor_as_value(zero);
  distag_call(caller, NULL, callee, "neg", &arg, 1, NULL, &answer, &told);
  distag_value_release(answer);
  distag_tensor_release(zero);
  return told.code;
}

static void use(distag_worker *caller, const char *callee) {
  distag_tensor *zero = NULL;
  distag_value *answer = NULL;
  CHECK_OK(distag_zeros(DISTAG_FLOAT32, NULL, 0, &zero, &err));
  distag_value *arg = distag_tensor_as_value(zero);
  CHECK_OK(distag_call(caller, NULL, callee, "neg", &arg, 1, NULL, &answer, &err));
  distag_value_release(answer);
  distag_tensor_release(zero);
}

static void host_opens_files(void) {
  int opened[kFree];
  for (int i = 0; i < kFree; ++i) CHECK((opened[i] = dup(0)) >= 0);
  for (int i = 0; i < kFree; ++i)
    if (opened[i] >= 0) close(opened[i]);
}

/* "endpoint": "..." of each member, one after the other. */
static void tell_endpoints(distag_worker *worker, int to) {
  static char report[65536];
  size_t size = 0;
  CHECK_OK(distag_worker_copy_report(worker, report, sizeof report, &size, &err));
  for (char *at = report; (at = strstr(at, "\"endpoint\"")) != NULL;) {
    at = strchr(at + strlen("\"endpoint\""), '"') + 1;
    const size_t length = strcspn(at, "\"");
    CHECK(write(to, at, length) == (ssize_t)length && write(to, "\n", 1) == 1);
    at += length;
  }
  CHECK(write(to, "", 1) == 1);
}

static int is_told(int from, int timeout_ms) {
  struct pollfd waiting = {from, POLLIN, 0};
  char byte;
  return poll(&waiting, 1, timeout_ms) == 1 && read(from, &byte, 1) == 1;
}

static int live_short(int kind, size_t count, int limit, int to, int from) {
  char rendezvous[192];
  distag_worker *workers[2] = {NULL, NULL};
  struct rlimit few;
  check_failures = 0; /* those of the parent */
  alarm(kChildSeconds);
  getrlimit(RLIMIT_NOFILE, &few);
  few.rlim_cur = (rlim_t)limit;
  setrlimit(RLIMIT_NOFILE, &few);
  snprintf(rendezvous, sizeof rendezvous, kind == kInproc ? "inproc://%s" : "file://%s", group);
  for (size_t i = 0; i < count; ++i) {
    distag_worker_options options = group_options((int32_t)i, (int32_t)count, rendezvous);
    options.lease_ns = 2 * DISTAG_SECOND;
    if (kind == kTcp) options.bind = "tcp://127.0.0.1:0";
    if (distag_worker_create(&options, &workers[i], &err) != DISTAG_OK) break;
  }
  distag_future *started[2] = {NULL, NULL};
  for (size_t i = 0; i < count; ++i) distag_worker_start_async(workers[i], 120 * DISTAG_SECOND, &started[i], &err);
  distag_wait_all(started, count, DISTAG_FOREVER, &err);
  for (size_t i = 0; i < count; ++i) distag_future_release(started[i]);
  if (err.code != DISTAG_OK) {
    if (err.code != DISTAG_E_OUT_OF_MEMORY) fprintf(stderr, "limit %d: %d %s\n", limit, (int)err.code, err.message);
    const int is_right = err.code == DISTAG_E_OUT_OF_MEMORY;
    for (size_t i = 0; i < count; ++i) {
      if (workers[i] != NULL) distag_worker_shutdown(workers[i], 0, NULL, NULL);
      distag_worker_release(workers[i]);
    }
    return is_right ? kRefused : 1;
  }
  /* Streams are made when they are first used, and too few descriptors may be left for them. */
  int is_refused = 0;
  for (size_t i = 0; i < count; ++i) {
    const distag_status status = try_to_use(workers[i], count == 2 && i == 0 ? "w1" : "w0");
    is_refused |= status != DISTAG_OK;
    CHECK(status == DISTAG_OK || status == DISTAG_E_OUT_OF_MEMORY || status == DISTAG_E_DISCONNECTED);
  }
  if (is_refused) {
    for (size_t i = 0; i < count; ++i) distag_worker_shutdown(workers[i], 0, NULL, NULL);
    for (size_t i = 0; i < count; ++i) distag_worker_release(workers[i]);
    return check_failures == 0 ? kRefused : 1;
  }
  tell_endpoints(workers[0], to);
  do {
    use(workers[0], count == 2 ? "w1" : "w0");
    if (kind != kInproc && engine_keeps("descriptors run out"))
      host_opens_files(); /* with descriptors that accept no peer */
  } while (!is_told(from, 0) && check_failures == 0);
  group_shutdown(workers, count);
  for (size_t i = 0; i < count; ++i) distag_worker_release(workers[i]);
  return check_end() == 0 ? kServed : 1;
}

/* ---- the strangers ---- */

static int dial(const char *endpoint) {
  struct sockaddr_un local;
  struct sockaddr_in inet;
  memset(&local, 0, sizeof local);
  memset(&inet, 0, sizeof inet);
  local.sun_family = AF_UNIX;
  inet.sin_family = AF_INET;
  inet.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int is_ipc = strncmp(endpoint, "ipc://", 6) == 0;
  if (is_ipc) {
    snprintf(local.sun_path, sizeof local.sun_path, "%s", endpoint + 6);
  } else {
    inet.sin_port = htons((uint16_t)atoi(strrchr(endpoint, ':') + 1));
  }
  const int fd = socket(is_ipc ? AF_UNIX : AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  const int result = is_ipc ? connect(fd, (const struct sockaddr *)&local, sizeof local)
                            : connect(fd, (const struct sockaddr *)&inet, sizeof inet);
  if (result == 0 || errno == EINPROGRESS) return fd;
  close(fd);
  return -1;
}

/* Some are greeted; then all hang up. */
static void burst(const char *endpoint) {
  static int fds[kBurst];
  size_t count = 0;
  for (int i = 0; i < kBurst; ++i) {
    fds[count] = dial(endpoint);
    if (fds[count] >= 0) ++count;
  }
  CHECK(count >= 100);
  for (size_t i = 0; i < count; ++i) close(fds[i]);
}

static int is_greeted(const char *endpoint) {
  unsigned char first = 0;
  int fd = -1;
  for (int tries = 0; fd < 0 && tries < kPatienceMs; ++tries) {
    fd = dial(endpoint); /* refused while the queue is full of closed connections */
    if (fd < 0) poll(NULL, 0, 1);
  }
  struct pollfd waiting = {fd, POLLIN, 0};
  const int got = poll(&waiting, 1, kPatienceMs) == 1 && read(fd, &first, 1) == 1 && first == 0xff;
  close(fd);
  return got;
}

static int run_one(int kind, size_t count, int limit) {
  int up[2], down[2], status = 0;
  char endpoints[1024] = {0};
  size_t size = 0;
  if (pipe(up) != 0 || pipe(down) != 0) abort();
  const pid_t child = fork();
  if (child == 0) {
    close(up[0]);
    close(down[1]);
    signal(SIGPIPE, SIG_DFL);
    _exit(live_short(kind, count, limit, up[1], down[0]));
  }
  close(up[1]);
  close(down[0]);
  for (ssize_t got = 1; got > 0 && (size == 0 || endpoints[size - 1] != '\0'); size += (size_t)got) {
    got = read(up[0], endpoints + size, sizeof endpoints - 1 - size);
  }
  for (char *end, *at = endpoints;
       kind != kInproc && engine_keeps("descriptors run out") && (end = strchr(at, '\n')) != NULL; at = end + 1) {
    *end = '\0';
    burst(at);
    if (!CHECK(is_greeted(at))) {
      fprintf(stderr, "%s under a limit of %d\n", at, limit);
    }
  }
  if (write(down[1], "x", 1) != 1 && errno != EPIPE) abort(); /* it may have refused to start */
  waitpid(child, &status, 0);
  close(up[0]);
  close(down[1]);
  const int lives = WIFEXITED(status) && (WEXITSTATUS(status) == kServed || WEXITSTATUS(status) == kRefused);
  if (!CHECK(lives)) {
    fprintf(stderr, "%zu workers over %s under a limit of %d: status %#x\n", count, kKindNames[kind], limit, status);
    return -1;
  }
  return WEXITSTATUS(status);
}

/* Runs each limit in a process of its own, whose result goes to `results`. */
static void run_each(int kind, size_t count, int *results) {
  int status = 0, running = 0;
  for (int limit = kFirst; limit <= kLast; ++limit) {
    if (running++ >= kAtOnce) CHECK(wait(&status) > 0 && status == 0);
    const pid_t child = fork();
    if (!CHECK(child >= 0) || child != 0) continue;
    snprintf(group, sizeof group, "%s/%s-%zu-%d", directory, kKindNames[kind], count, limit);
    results[limit] = run_one(kind, count, limit);
    rmdir(group);
    _exit(check_end());
  }
  while (wait(&status) > 0) CHECK_INT(status, 0);
}

static int sweep(int kind, size_t count) {
  int first = 0, least = 0; /* the first that serves, and that from which on all do */
  int *const results = mmap(NULL, sizeof(int) * (kLast + 1), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (results == MAP_FAILED) abort();
  run_each(kind, count, results);
  for (int limit = kFirst; limit <= kLast; ++limit) {
    if (results[limit] != kServed) {
      least = 0;
      continue;
    }
    if (first == 0) first = limit;
    if (least == 0) least = limit;
  }
  printf("%zu workers over %-6s serve with a limit of %d or more\n", count, kKindNames[kind], least);
  fflush(stdout);
  CHECK(least > 0);
  /* Just below `least`, calls are served or not: both lanes may be made at the same moment, and then each has
   * descriptors that it closes again. */
  CHECK(least - first <= kMoment);
  return check_end();
}

int main(void) {
  if (mkdtemp(directory) == NULL) return 1;
  signal(SIGPIPE, SIG_IGN);
  setenv("XDG_RUNTIME_DIR", directory, 1);
  for (int kind = 0; kind < kKinds; ++kind) {
    for (size_t count = 1; count <= 2; ++count) {
      if (fork() == 0) {
        _exit(sweep(kind, count));
      }
    }
  }
  for (int status = 0; wait(&status) > 0;) CHECK_INT(status, 0);
  CHECK(rmdir(directory) == 0); /* nothing is left in it */
  return check_end();
}
