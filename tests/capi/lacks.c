/* A lack of this process says nothing of its peers, however long it lasts: with no descriptor left, or no local port,
 * calls to a member fail soon with OUT_OF_MEMORY and the cure, a deadline that comes first names it too, the member is
 * not given up, and calls work again once there is room. Over lanes, sockets and tcp. The same holds where the member
 * can accept the caller and cannot dial it. An address for which this machine has no family any more (IPv6 is switched
 * off) is no lack that ends: there the member is given up. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "capi/check.h"
#include "capi/support/descriptor_limit.h"
#include "capi/support/engine.h"
#include "capi/support/group.h"
#include "capi/support/processes.h"

enum { kLane, kSocket, kTcp, kPorts, kCallee, kFamily, kWays };
enum { kFirstPort = 40000, kPortCount = 16, kLeases = 5 };
enum { kPlenty = 1024, kToAccept = 12 }; /* free descriptors: enough to accept one, too few to dial */

static const char *const kNames[kWays] = {"lanes",           "sockets", "tcp", "tcp without ports", "tcp of the other",
                                          "tcp without IPv6"};
static const int64_t kLease = 2 * DISTAG_SECOND;
static distag_error err = DISTAG_ERROR_INIT;

static distag_status call(distag_worker *worker, int64_t timeout) {
  distag_tensor *x = NULL;
  distag_value *result = NULL;
  distag_call_options options = DISTAG_CALL_OPTIONS_INIT;
  CHECK_OK(distag_full(3, DISTAG_FLOAT32, NULL, 0, &x, &err));
  distag_value *arg = distag_tensor_as_value(x);
  options.timeout_ns = timeout;
  err.code = DISTAG_OK;
  distag_call(worker, NULL, "w1", "neg", &arg, 1, &options, &result, &err);
  distag_value_release(result);
  distag_tensor_release(x);
  return err.code;
}

/* ---- the lacks ---- */

static int ports[kPortCount];

/* A port that is bound is chosen for no connection. */
static void take_ports(void) {
  for (int i = 0; i < kPortCount; ++i) {
    struct sockaddr_in address;
    memset(&address, 0, sizeof address);
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons((uint16_t)(kFirstPort + i));
    ports[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(ports[i] >= 0);
    if (bind(ports[i], (const struct sockaddr *)&address, sizeof address) != 0) CHECK_INT(errno, EADDRINUSE);
  }
}

static void give_ports(void) {
  for (int i = 0; i < kPortCount; ++i) close(ports[i]);
}

/* Makes a network of its own with few ports. 0 if this process may not make one. */
static int enter_small_network(void) {
  char range[32];
  const int size = snprintf(range, sizeof range, "%d %d", kFirstPort, kFirstPort + kPortCount - 1);
  if (unshare(CLONE_NEWNET) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) return 0;
  struct ifreq up;
  memset(&up, 0, sizeof up);
  strcpy(up.ifr_name, "lo");
  up.ifr_flags = IFF_UP;
  const int any = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const int is_up = any >= 0 && ioctl(any, SIOCSIFFLAGS, &up) == 0;
  if (any >= 0) close(any);
  const int file = open("/proc/sys/net/ipv4/ip_local_port_range", O_WRONLY | O_CLOEXEC);
  const int is_set = file >= 0 && write(file, range, (size_t)size) == size;
  if (file >= 0) close(file);
  return is_up && is_set;
}

/* Whether the network of its own has IPv6. */
static int has_ipv6(void) {
  const struct sockaddr_in6 address = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
  const int any = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int is_bound = any >= 0 && bind(any, (const struct sockaddr *)&address, sizeof address) == 0;
  if (any >= 0) close(any);
  return is_bound;
}

static void switch_ipv6_off(void) {
  const int file = open("/proc/sys/net/ipv6/conf/all/disable_ipv6", O_WRONLY | O_CLOEXEC);
  CHECK(file >= 0 && write(file, "1", 1) == 1);
  if (file >= 0) close(file);
}

/* ---- the process that calls, before its first word to the other ---- */

static void expect_cure(int way) {
  const char *const cure = way == kPorts ? "ip_local_port_range" : "ulimit -n";
  if (!CHECK(strstr(err.message, cure) != NULL)) fprintf(stderr, "%s: %s\n", kNames[way], err.message);
  if (way == kCallee) CHECK(strstr(err.message, "cannot answer, as it says") != NULL);
}

struct plan {
  int way;
  int short_of[2]; /* pipes: rank 1 says that it lacks descriptors, */
  int room[2];     /* is told to have them again, */
  int done[2];     /* and that rank 0 is done */
};

static void tell(const int *way) {
  const char byte = 0;
  CHECK(write(way[1], &byte, 1) == 1);
}

/* Fails if the other process has ended. */
static void await(const int *way) {
  char byte = 0;
  CHECK(read(way[0], &byte, 1) == 1);
}

static void lose(distag_worker *worker) {
  switch_ipv6_off();
  if (CHECK_INT(call(worker, DISTAG_FOREVER), DISTAG_E_DISCONNECTED)) return;
  fprintf(stderr, "%s: %s\n", kNames[kFamily], err.message);
}

static void lack(distag_worker *worker, const struct plan *plan) {
  const int way = plan->way;
  if (way == kPorts) take_ports();
  if (way < kPorts) CHECK(leave_descriptors_free(0));
  if (way == kCallee) await(plan->short_of);
  for (const int64_t until = now_ns() + kLeases * kLease; now_ns() < until && check_failures == 0;) {
    CHECK_INT(call(worker, DISTAG_FOREVER), DISTAG_E_OUT_OF_MEMORY);
    expect_cure(way);
    const distag_status status = call(worker, DISTAG_SECOND / 20);
    CHECK(status == DISTAG_E_DEADLINE || status == DISTAG_E_OUT_OF_MEMORY);
    expect_cure(way);
  }
  if (way == kPorts) give_ports();
  if (way < kPorts) CHECK(set_descriptor_limit(kPlenty));
  if (way == kCallee) tell(plan->room);
  while (call(worker, 0) != DISTAG_OK && check_failures == 0) {
    if (!CHECK_INT(err.code, DISTAG_E_OUT_OF_MEMORY)) fprintf(stderr, "%s: %s\n", kNames[way], err.message);
  }
}

/* Closes the pipe ends of the other process: a read then ends when that process ends. */
static void close_ends(const struct plan *plan, int32_t rank) {
  close(plan->short_of[rank == 0]);
  close(plan->room[rank != 0]);
  close(plan->done[rank != 0]);
}

static int live(const char *rendezvous, int32_t rank, int32_t count, void *data) {
  const struct plan *const plan = data;
  const int way = plan->way;
  distag_worker *worker = NULL;
  distag_worker_options options = group_options(rank, count, rendezvous);
  check_failures = 0;
  alarm(500);
  close_ends(plan, rank);
  /* By its own lease, rank 1 would give up a peer that it cannot hear. */
  options.lease_ns = rank == 0 ? kLease : 600 * DISTAG_SECOND;
  options.no_lane = way == kSocket;
  if (way >= kTcp) options.bind = way == kFamily ? "tcp://[::1]:0" : "tcp://127.0.0.1:0";
  CHECK_OK(distag_worker_create(&options, &worker, &err));
  CHECK_OK(distag_worker_start(worker, 120 * DISTAG_SECOND, &err));
  /* A shutdown would greet rank 0: rank 1 waits with it, so that there is no stream yet. */
  if (rank == 0) {
    if (way == kFamily) {
      lose(worker);
    } else {
      lack(worker, plan);
    }
    tell(plan->done);
  } else {
    if (way == kCallee) {
      CHECK(leave_descriptors_free(kToAccept));
      tell(plan->short_of);
      await(plan->room);
      CHECK(set_descriptor_limit(kPlenty));
    }
    await(plan->done);
  }
  err.code = DISTAG_OK;
  if (way == kFamily) {
    distag_worker_shutdown(worker, 0, NULL, NULL); /* of a group that has no way between its members */
  } else {
    CHECK_OK(distag_worker_shutdown(worker, 120 * DISTAG_SECOND, NULL, &err));
  }
  distag_worker_release(worker);
  return check_failures != 0;
}

static int try_way(int way) {
  processes group;
  struct plan plan = {way, {-1, -1}, {-1, -1}, {-1, -1}};
  if ((way == kPorts || way == kFamily) && !enter_small_network()) {
    printf("skipped: %s, as this process may not make a network of its own\n", kNames[way]);
    return 0;
  }
  if (way == kFamily && !has_ipv6()) {
    printf("skipped: %s, as this machine has no IPv6\n", kNames[way]);
    return 0;
  }
  if (way == kCallee && !engine_keeps("descriptors run out")) {
    printf("skipped: %s, as the first dialler of libzmq takes what is left\n", kNames[way]);
    return 0;
  }
  CHECK(pipe(plan.short_of) == 0 && pipe(plan.room) == 0 && pipe(plan.done) == 0);
  CHECK_INT(processes_start(&group, 2, live, &plan), 0);
  close_ends(&plan, 0);
  close_ends(&plan, 1);
  CHECK_INT(processes_end(&group, -1), 0);
  if (check_failures != 0) fprintf(stderr, "%s\n", kNames[way]);
  return check_failures != 0;
}

int main(void) {
  for (int way = 0; way < kWays; ++way) {
    if (fork() == 0) {
      const int failed = try_way(way);
      fflush(stdout); /* what it has skipped */
      _exit(failed);
    }
  }
  for (int status = 0; wait(&status) > 0;) CHECK_INT(status, 0);
  return check_end();
}
