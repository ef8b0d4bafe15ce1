/* Groups over sockets against the limit of open files: a start that it cannot carry says so with both numbers, an open
 * world tells once when few descriptors are left, and libzmq ends the process where SECURITY.md says that it does. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "capi/check.h"
#include "capi/support/descriptor_limit.h"
#include "capi/support/engine.h"
#include "capi/support/group.h"
#include "capi/support/processes.h"

enum { kFew = 30 /* free ones, of which an open world tells */, kLeftForHost = 64, kMembers = 4, kPlenty = 1000 };

static distag_error err = DISTAG_ERROR_INIT;

static int is_zmtp(void) { return engine_keeps("descriptors run out"); }

/* ---- the start ---- */

static distag_status start_alone(int32_t size, int64_t timeout) {
  distag_worker_options options = group_options(0, size, "tcp://127.0.0.1:0");
  distag_worker *worker = NULL;
  char folder[] = "/tmp/distag-test-XXXXXX", rendezvous[64];
  CHECK(mkdtemp(folder) != NULL);
  snprintf(rendezvous, sizeof rendezvous, "file://%s", folder);
  options.rendezvous = rendezvous;
  options.bind = "tcp://127.0.0.1:0";
  CHECK_OK(distag_worker_create(&options, &worker, &err));
  const distag_status status = distag_worker_start(worker, timeout, &err);
  distag_worker_shutdown(worker, 0, NULL, NULL);
  distag_worker_release(worker);
  char command[64];
  snprintf(command, sizeof command, "rm -rf '%s'", folder);
  CHECK_INT(system(command), 0);
  return status;
}

/* A limit with one descriptor less than a group needs is refused, before anything is waited for. */
static void a_start_above_the_limit(void) {
  const int32_t size = 100;
  const int needs = (is_zmtp() ? 2 * (size - 1) : 5 * (size - 1) + 11) + kLeftForHost;
  char numbers[2][32];
  snprintf(numbers[0], sizeof numbers[0], "takes %d descriptors", needs);
  snprintf(numbers[1], sizeof numbers[1], "may have %d", needs - 1);
  CHECK(set_descriptor_limit(needs - 1));
  CHECK_INT(start_alone(size, 120 * DISTAG_SECOND), DISTAG_E_OUT_OF_MEMORY);
  for (int i = 0; i < 2; ++i) {
    if (!CHECK(strstr(err.message, numbers[i]) != NULL)) fprintf(stderr, "%s: %s\n", numbers[i], err.message);
  }
  CHECK(strstr(err.message, "ulimit -n") != NULL);
  CHECK((strstr(err.message, "DISTAG_SOCKET_ENGINE=zmtp") != NULL) == !is_zmtp());
  CHECK(set_descriptor_limit(needs));
  CHECK_INT(start_alone(size, DISTAG_SECOND), DISTAG_E_DEADLINE); /* no other member comes */
}

/* ---- an open world ---- */

static atomic_int told;
static void note(void *user_data, distag_log_level_type level, const char *message) {
  (void)user_data, (void)level;
  if (strstr(message, "descriptors are free") != NULL) atomic_fetch_add(&told, 1);
}

typedef struct turns {
  sem_t may_join[kMembers], has_joined, may_leave;
} turns;

static distag_worker *join(const char *rendezvous, int32_t rank) {
  distag_worker_options options = group_options(rank, -1, rendezvous);
  distag_worker *worker = NULL;
  options.no_lane = 1;
  options.on_log = note;
  options.lease_ns = 600 * DISTAG_SECOND;
  CHECK_OK(distag_worker_create(&options, &worker, &err));
  CHECK_OK(distag_worker_start(worker, 120 * DISTAG_SECOND, &err));
  return worker;
}

/* The first worker that joins finds plenty; the others find few, and the first of these is reported. */
static void let_join(distag_worker *worker, turns *shared) {
  for (int next = 1; next < kMembers; ++next) {
    if (next > 1) CHECK(leave_descriptors_free(kFew));
    sem_post(&shared->may_join[next]);
    sem_wait(&shared->has_joined);
    while (distag_worker_get_world_size(worker) <= next) poll(NULL, 0, 1);
    for (int look = 0; look < 100000 && next == 2 && atomic_load(&told) == 0; ++look) poll(NULL, 0, 1);
    CHECK(set_descriptor_limit(kPlenty));
    CHECK_INT(atomic_load(&told), next > 1);
  }
  for (int i = 1; i < kMembers; ++i) sem_post(&shared->may_leave);
}

static int run_member(const char *rendezvous, int32_t rank, int32_t count, void *data) {
  turns *const shared = data;
  (void)count;
  alarm(500);
  if (rank > 0) sem_wait(&shared->may_join[rank]);
  distag_worker *const worker = join(rendezvous, rank);
  if (rank == 0) {
    let_join(worker, shared);
  } else {
    sem_post(&shared->has_joined);
    sem_wait(&shared->may_leave);
  }
  CHECK_OK(distag_worker_shutdown(worker, 120 * DISTAG_SECOND, NULL, &err));
  distag_worker_release(worker);
  return check_end();
}

static void an_open_world_that_grows(void) {
  processes group;
  turns *const shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(shared != MAP_FAILED);
  for (int i = 0; i < kMembers; ++i) sem_init(&shared->may_join[i], 1, 0);
  sem_init(&shared->has_joined, 1, 0);
  sem_init(&shared->may_leave, 1, 0);
  CHECK_INT(processes_start(&group, kMembers, run_member, shared), 0);
  CHECK_INT(processes_end(&group, -1), 0);
}

/* ---- accepting without a descriptor ---- */

static int dial(const char *path) {
  struct sockaddr_un address;
  memset(&address, 0, sizeof address);
  address.sun_family = AF_UNIX;
  snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  CHECK_INT(connect(fd, (const struct sockaddr *)&address, sizeof address), 0);
  return fd;
}

static void await(int from) {
  char byte;
  CHECK(read(from, &byte, 1) == 1);
}

/* Runs a worker that listens at the path; when it is told, it gives up its descriptors, and says so. */
static void listen_without_descriptors(const char *folder, const char *path, int from, int to) {
  char rendezvous[64], bind[96];
  const struct rlimit no_core = {0, 0};
  distag_worker *worker = NULL;
  snprintf(rendezvous, sizeof rendezvous, "file://%s", folder);
  snprintf(bind, sizeof bind, "ipc://%s", path);
  distag_worker_options options = group_options(0, 1, rendezvous);
  options.no_lane = 1;
  options.bind = bind;
  setrlimit(RLIMIT_CORE, &no_core);
  CHECK_OK(distag_worker_create(&options, &worker, &err));
  CHECK_OK(distag_worker_start(worker, 120 * DISTAG_SECOND, &err));
  CHECK(write(to, "x", 1) == 1);
  await(from);
  if (freopen("/dev/null", "w", stderr) == NULL) _exit(1); /* libzmq says why it ends */
  while (dup(0) >= 0) {
  }
  CHECK(write(to, "x", 1) == 1);
  await(from); /* for ever */
}

/* SECURITY.md says this of libzmq alone: accepting on ipc:// without a descriptor ends the process. */
static void who_accepts_without_a_descriptor_ends(void) {
  char folder[] = "/tmp/distag-test-XXXXXX", path[64], command[64];
  int up[2], down[2], status = 0;
  CHECK(mkdtemp(folder) != NULL && pipe(up) == 0 && pipe(down) == 0);
  snprintf(path, sizeof path, "%s/socket", folder);
  const pid_t child = fork();
  if (child == 0) {
    listen_without_descriptors(folder, path, down[0], up[1]);
    _exit(1);
  }
  await(up[0]);
  const int first = dial(path);
  await(first); /* it is greeted */
  CHECK(write(down[1], "x", 1) == 1);
  await(up[0]);
  const int second = dial(path);
  CHECK(waitpid(child, &status, 0) == child);
  if (!CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT)) fprintf(stderr, "status %#x\n", (unsigned)status);
  close(first), close(second);
  for (int i = 0; i < 2; ++i) close(up[i]), close(down[i]);
  snprintf(command, sizeof command, "rm -rf '%s'", folder);
  CHECK_INT(system(command), 0);
}

int main(void) {
  alarm(500);
  a_start_above_the_limit();
  CHECK(set_descriptor_limit(kPlenty));
  an_open_world_that_grows();
  if (!engine_keeps("descriptors run out")) who_accepts_without_a_descriptor_ends();
  return check_end();
}
