/* A child that is forked without exec does not keep a killed parent alive: its peers are told as soon as without the
 * child, and its name and port are free for another process at once. Over lanes, sockets, and tcp; met by a file. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "capi/check.h"
#include "capi/support/group.h"
#include "capi/support/processes.h"

enum { kLane, kSocket, kTcp, kWays };
static const char *const kNames[kWays] = {"lane", "socket", "tcp"};
static distag_error err = DISTAG_ERROR_INIT;
static char address_of_member[64];

static distag_status never(void *user_data, distag_invocation *invocation, distag_error *told) {
  (void)user_data, (void)invocation, (void)told;
  for (;;) pause();
  return DISTAG_OK;
}

static distag_worker *start(int way, int32_t rank, const char *rendezvous) {
  distag_worker *worker = NULL;
  distag_worker_options options = group_options(rank, 2, rendezvous);
  options.lease_ns = 600 * DISTAG_SECOND; /* far beyond what the test waits */
  options.no_lane = way == kSocket;
  if (way == kTcp) options.bind = rank == 1 ? address_of_member : "tcp://127.0.0.1:0";
  CHECK_OK(distag_worker_create(&options, &worker, &err));
  CHECK_OK(distag_worker_register(worker, "never", never, NULL, NULL, NULL, &err));
  CHECK_OK(distag_worker_start(worker, 120 * DISTAG_SECOND, &err));
  return worker;
}

static distag_status call(distag_worker *worker, const char *peer, const char *function) {
  distag_tensor *x = NULL;
  distag_value *result = NULL;
  CHECK_OK(distag_full(3, DISTAG_FLOAT32, NULL, 0, &x, &err));
  distag_value *arg = distag_tensor_as_value(x);
  err.code = DISTAG_OK;
  distag_call(worker, NULL, peer, function, &arg, 1, NULL, &result, &err);
  distag_value_release(result);
  distag_tensor_release(x);
  return err.code;
}

/* Says that it has forked, once it and its peer have called each other, and waits to be killed. */
static void live_and_fork(int way, const char *rendezvous, int to) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  distag_worker *worker = start(way, 1, rendezvous);
  CHECK_INT(call(worker, "w0", "neg"), DISTAG_OK);
  const pid_t child = fork();
  if (child == 0) {
    alarm(500);
    for (;;) pause();
  }
  CHECK(write(to, &child, sizeof child) == sizeof child);
  for (;;) pause();
}

static void choose_address(void) {
  struct sockaddr_in address;
  socklen_t size = sizeof address;
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  memset(&address, 0, sizeof address);
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  CHECK(bind(fd, (struct sockaddr *)&address, size) == 0);
  CHECK(getsockname(fd, (struct sockaddr *)&address, &size) == 0);
  snprintf(address_of_member, sizeof address_of_member, "tcp://127.0.0.1:%d", ntohs(address.sin_port));
  close(fd);
}

static void try_way(int way) {
  char folder[] = "/tmp/distag-fork-XXXXXX", rendezvous[64], command[64];
  int told[2], status = -1;
  pid_t child = -1;
  CHECK(mkdtemp(folder) != NULL && pipe(told) == 0);
  choose_address();
  snprintf(rendezvous, sizeof rendezvous, "file://%s", folder);
  pid_t member = fork();
  if (member == 0) live_and_fork(way, rendezvous, told[1]);
  distag_worker *worker = start(way, 0, rendezvous);
  CHECK_INT(call(worker, "w1", "neg"), DISTAG_OK);
  CHECK(read(told[0], &child, sizeof child) == sizeof child);
  kill(member, SIGKILL);
  const int64_t killed = now_ns();
  CHECK(waitpid(member, &status, 0) == member && WIFSIGNALED(status));
  CHECK_INT(call(worker, "w1", "never"), DISTAG_E_DISCONNECTED);
  const int64_t taken = now_ns() - killed;
  CHECK(taken < 60 * DISTAG_SECOND);
  printf("figure: capi_fork_losses.%s_s %.3f s\n", kNames[way], (double)taken * 1e-9);
  CHECK(kill(child, 0) == 0); /* it lives */
  /* The name is free, and over tcp the port. */
  member = fork();
  if (member == 0) {
    check_failures = 0;
    distag_worker *again = start(way, 1, rendezvous);
    CHECK_INT(call(again, "w0", "neg"), DISTAG_OK);
    _exit(check_failures != 0);
  }
  CHECK(waitpid(member, &status, 0) == member);
  CHECK_INT(status, 0);
  kill(child, SIGKILL);
  distag_worker_shutdown(worker, 0, NULL, NULL);
  distag_worker_release(worker);
  close(told[0]), close(told[1]);
  snprintf(command, sizeof command, "rm -rf '%s'", folder);
  CHECK_INT(system(command), 0);
}

int main(void) {
  for (int way = 0; way < kWays; ++way) try_way(way);
  return check_end();
}
