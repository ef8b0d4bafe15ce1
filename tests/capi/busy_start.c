/* Workers that all call each other at once over tcp with keys, beside loops that take the processors: no peer is lost.
 * usage: capi_busy_start [MEMBERS LOOPS [LEASE_MS [ENGINE]]]; it prints how many of the calls have failed, and the
 * time. With fewer loops than two for each processor the members lose little time. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "capi/check.h"
#include "capi/support/processes.h"

enum { kMembers = 16, kLeastLoops = 10, kMostLoops = 256, kLeaseMs = 5000 };
static const int64_t kPatience = 500 * DISTAG_SECOND; /* for calls: a member is lost only by the end of its lease */

static distag_error err = DISTAG_ERROR_INIT;
static const char *const kEngines[] = {"", "zmq", "zmtp"};

typedef struct shared {
  distag_socket_engine_type engine;
  int64_t lease_ns;
  _Atomic int64_t lost, failed, begun, ended; /* the last two: times of the first and the last */
} shared;

static void note_times(shared *all, int64_t begun, int64_t ended) {
  int64_t known = atomic_load(&all->begun);
  while ((known == 0 || begun < known) && !atomic_compare_exchange_weak(&all->begun, &known, begun)) {
  }
  known = atomic_load(&all->ended);
  while (ended > known && !atomic_compare_exchange_weak(&all->ended, &known, ended)) {
  }
}

static distag_worker *start(const char *rendezvous, int32_t rank, int32_t count, const shared *all) {
  static char name[16];
  distag_worker_options options = DISTAG_WORKER_OPTIONS_INIT;
  distag_worker *worker = NULL;
  snprintf(name, sizeof name, "w%d", (int)rank);
  options.rank = rank;
  options.world_size = count;
  options.name = name;
  options.rendezvous = rendezvous;
  options.bind = "tcp://127.0.0.1:0";
  options.no_lane = 1;
  options.socket_engine = all->engine;
  options.lease_ns = all->lease_ns;
  options.thread_count = 2;
  CHECK_OK(distag_worker_create(&options, &worker, &err));
  CHECK_OK(distag_worker_start(worker, kPatience, &err));
  return worker;
}

static void call_all(distag_worker *worker, int32_t count, shared *all) {
  distag_call_options options = DISTAG_CALL_OPTIONS_INIT;
  distag_future *calls[kMostProcesses] = {NULL};
  distag_tensor *one = NULL;
  const double value = 1;
  options.timeout_ns = kPatience;
  CHECK_OK(distag_tensor_create(&value, sizeof value, DISTAG_FLOAT64, NULL, 0, &one, &err));
  distag_value *args[] = {distag_tensor_as_value(one)};
  for (int32_t rank = 0; rank < count; ++rank) {
    char name[16];
    snprintf(name, sizeof name, "w%d", (int)rank);
    if (rank == distag_worker_get_rank(worker)) continue;
    CHECK_OK(distag_call_async(worker, NULL, name, "neg", args, 1, &options, &calls[rank], &err));
  }
  for (int32_t rank = 0; rank < count; ++rank) {
    if (calls[rank] == NULL) continue;
    err.code = DISTAG_OK;
    const distag_status status = distag_future_wait(calls[rank], DISTAG_FOREVER, &err);
    if (status == DISTAG_E_DISCONNECTED) {
      atomic_fetch_add(&all->lost, 1);
    } else if (status != DISTAG_OK) {
      atomic_fetch_add(&all->failed, 1);
    }
    if (status != DISTAG_OK) fprintf(stderr, "w%d: %s\n", (int)distag_worker_get_rank(worker), err.message);
    distag_future_release(calls[rank]);
  }
  err.code = DISTAG_OK;
  distag_tensor_release(one);
}

static int run_member(const char *rendezvous, int32_t rank, int32_t count, void *data) {
  shared *const all = data;
  alarm(550);
  distag_worker *const worker = start(rendezvous, rank, count, all);
  const int64_t begun = now_ns();
  call_all(worker, count, all);
  note_times(all, begun, now_ns());
  /* Once members are lost, a clean end is not possible. */
  const distag_status ended = distag_worker_shutdown(worker, 60 * DISTAG_SECOND, NULL, &err);
  if (atomic_load(&all->lost) == 0) CHECK_OK(ended);
  distag_worker_release(worker);
  return check_end();
}

static void take_processor(void) {
  volatile uint64_t turns = 0;
  prctl(PR_SET_PDEATHSIG, SIGKILL); /* should the test itself be killed */
  alarm(550);
  for (;;) ++turns;
}

static void start_beside_load(int32_t members, int loops, int lease_ms, distag_socket_engine_type engine) {
  processes group;
  pid_t load[kMostLoops];
  shared *const all = mmap(NULL, sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (!CHECK(all != MAP_FAILED)) return;
  all->engine = engine;
  all->lease_ns = lease_ms * (DISTAG_SECOND / 1000);
  fflush(NULL);
  for (int i = 0; i < loops; ++i) {
    load[i] = fork();
    if (load[i] == 0) take_processor();
    CHECK(load[i] > 0);
  }
  CHECK_INT(processes_start(&group, members, run_member, all), 0);
  CHECK_INT(processes_end(&group, -1), 0);
  for (int i = 0; i < loops; ++i) {
    if (load[i] > 0) CHECK(kill(load[i], SIGKILL) == 0 && waitpid(load[i], NULL, 0) == load[i]);
  }
  printf("%s: of %d calls of %d members beside %d loops %d were lost and %d failed otherwise, in %.2f s\n",
         kEngines[engine], (int)(members * (members - 1)), (int)members, loops, (int)all->lost, (int)all->failed,
         (double)(all->ended - all->begun) * 1e-9);
  CHECK_INT(all->lost, 0);
  CHECK_INT(all->failed, 0);
  munmap(all, sizeof *all);
}

static int default_loops(void) {
  const long loops = 2 * sysconf(_SC_NPROCESSORS_ONLN);
  return loops < kLeastLoops ? kLeastLoops : loops > kMostLoops ? kMostLoops : (int)loops;
}

int main(int argc, char **argv) {
  const int members = argc > 2 ? atoi(argv[1]) : kMembers;
  const int loops = argc > 2 ? atoi(argv[2]) : default_loops();
  const int lease_ms = argc > 3 ? atoi(argv[3]) : kLeaseMs;
  if (members < 2 || members > kMostProcesses || loops < 0 || loops > kMostLoops || lease_ms < 1) {
    fprintf(stderr, "usage: %s [MEMBERS LOOPS [LEASE_MS [ENGINE]]]\n", argv[0]);
    return 2;
  }
  for (distag_socket_engine_type engine = DISTAG_SOCKET_ENGINE_ZMQ; engine <= DISTAG_SOCKET_ENGINE_ZMTP; ++engine) {
    if (argc <= 4 || strcmp(argv[4], kEngines[engine]) == 0) start_beside_load(members, loops, lease_ms, engine);
  }
  return check_end();
}
