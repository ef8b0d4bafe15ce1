/* A slow worker and senders that are too fast for it, each a process: it takes no more memory than their budgets, under
 * a bound of its memory where the machine lets it have one; two others go on as if nothing was; nothing is lost.
 * usage: capi_overload [SENDERS]   2 unless told; more of them give a point each of the curve. */
#define _GNU_SOURCE
#include <poll.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "capi/check.h"
#include "capi/support/engine.h"
#include "capi/support/group.h"
#include "capi/support/memory_limit.h"
#include "capi/support/processes.h"
#include "capi/support/resident.h"

enum { kSlow, kAsker, kAnswerer, kFirstSender, kMostSenders = 16 };
enum { kBudget = 24 << 20, kElements = 32 << 10, kBytes = 8 * kElements, kMost = 4 * kBudget / kBytes };
enum { kReadAhead = 64 * kBytes };
enum { kServeMs = 5, kCalls = 50, kTimes = 30, kRounds = 2 };
_Static_assert(kFirstSender + (int)kMostSenders <= (int)kMostProcesses, "all of them find room in a group");
static int senders = 2;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { kIsMeasured = 0 }; /* a sanitizer has memory and times of its own */
#else
enum { kIsMeasured = 1 };
#endif

enum { kQuiet, kFlood, kDone };
typedef struct shared {
  _Atomic int phase;
  _Atomic int states[kMostSenders]; /* the phase that each sender has reached */
  _Atomic int64_t served, done, refused;
  memory_limit limit;
} shared;

static distag_error err = DISTAG_ERROR_INIT;
static shared *common;

static void wait_ms(int ms) { poll(NULL, 0, ms); }

/* Room of the slow worker: the bytes that its senders may have on their way to it, and a tenth more. libzmq also keeps
 * what it has read, up to 64 messages of each connection. */
static int64_t room(void) {
  const int is_all =
      engine_keeps("a slow worker keeps no more than the budgets of its senders (`max_in_flight_bytes`)");
  return (int64_t)senders * (kBudget * 11 / 10 + (is_all ? 0 : kReadAhead));
}

/* ---- the slow one ---- */

/* Takes a number, and a tensor with that number in each element; returns three times the number. */
static distag_status serve(void *user_data, distag_invocation *invocation, distag_error *told) {
  (void)user_data;
  int64_t number = 0;
  distag_tensor *data = NULL;
  distag_value_get_int64(distag_invocation_get_arg(invocation, 0), &number, told);
  if (distag_value_get_tensor(distag_invocation_get_arg(invocation, 1), &data, told) != DISTAG_OK) return told->code;
  const double *const elements = distag_tensor_get_data(data);
  const int is_right = elements[0] == (double)number && elements[kElements - 1] == (double)number;
  wait_ms(kServeMs);
  ++common->served;
  distag_value *answer = NULL;
  distag_value_create_int64(is_right ? 3 * number : -1, &answer, told);
  distag_invocation_return(invocation, answer, told);
  distag_value_release(answer);
  return told->code;
}

static int64_t peak_bytes(void) {
  char line[128];
  long long kib = 0;
  FILE *file = fopen("/proc/self/status", "r");
  while (file != NULL && fgets(line, sizeof line, file) != NULL) {
    if (sscanf(line, "VmHWM: %lld kB", &kib) == 1) break;
  }
  if (file != NULL) fclose(file);
  return (int64_t)kib << 10;
}

static void limit_memory(void) {
  if (!kIsMeasured || common->limit.folder[0] == 0) return;
  CHECK(memory_limit_set(&common->limit, room()));
}

/* ---- the fast ones ---- */

typedef struct sender {
  distag_worker *worker;
  distag_future *futures[kMost]; /* those that are open, from `first` on */
  int64_t numbers[kMost];
  int first, count;
  int64_t last;
  _Atomic int *state;
} sender;

static void make_call(sender *me) {
  const int64_t number = ++me->last, size = kElements;
  const int place = (me->first + me->count++) % kMost;
  distag_tensor *data = NULL;
  distag_value *value = NULL;
  CHECK_OK(distag_full((double)number, DISTAG_FLOAT64, &size, 1, &data, &err));
  CHECK_OK(distag_value_create_int64(number, &value, &err));
  distag_value *args[] = {value, distag_tensor_as_value(data)};
  me->numbers[place] = number;
  CHECK_OK(distag_call_async(me->worker, NULL, "w0", "serve", args, 2, NULL, &me->futures[place], &err));
  distag_value_release(value);
  distag_tensor_release(data);
}

static void take_oldest(sender *me) {
  distag_future *const future = me->futures[me->first];
  const int64_t number = me->numbers[me->first];
  const distag_status status = distag_future_wait(future, DISTAG_FOREVER, &err);
  if (status == DISTAG_E_OVERLOADED) {
    ++common->refused;
    if (common->phase == kFlood) wait_ms(4 * kServeMs);
  } else if (CHECK_INT(status, DISTAG_OK)) {
    distag_value *answer = NULL;
    int64_t result = 0;
    CHECK_OK(distag_future_get_value(future, &answer, &err));
    CHECK_OK(distag_value_get_int64(answer, &result, &err));
    CHECK_INT(result, 3 * number);
    ++common->done;
  } else {
    common->phase = kDone; /* no process is to wait for an answer that does not come */
  }
  err.code = DISTAG_OK;
  distag_future_release(future);
  me->first = (me->first + 1) % kMost;
  --me->count;
}

static void send_all(distag_worker *worker, int32_t which) {
  static sender me;
  me.worker = worker;
  me.state = &common->states[which];
  for (int phase; (phase = common->phase) != kDone;) {
    if (phase == kFlood) {
      if (me.count == kMost) {
        *me.state = kFlood; /* twice of what may be on its way or wait */
        take_oldest(&me);
      }
      make_call(&me);
    } else if (me.count > 0) {
      take_oldest(&me);
    } else {
      *me.state = kQuiet;
      wait_ms(1);
    }
  }
  while (me.count > 0) take_oldest(&me);
}

/* ---- those that go on ---- */

static void reach(int phase) {
  common->phase = phase;
  for (int i = 0; i < senders; ++i) {
    while (common->phase == phase && common->states[i] != phase) wait_ms(1);
  }
}

/* The best of many times of some calls, and of `best`: other load of the machine is not measured. */
static int64_t time_of_calls(distag_worker *worker, distag_tensor *data, int64_t best) {
  distag_value *args[] = {distag_tensor_as_value(data)};
  for (int time = 0; time < kTimes; ++time) {
    const int64_t begin = now_ns();
    for (int i = 0; i < kCalls; ++i) {
      distag_value *result = NULL;
      CHECK_OK(distag_call(worker, NULL, "w2", "neg", args, 1, NULL, &result, &err));
      distag_value_release(result);
    }
    const int64_t took = now_ns() - begin;
    if (took < best) best = took;
  }
  return best;
}

static void ask_all(distag_worker *worker) {
  const int64_t size = 1 << 12;
  int64_t quiet = INT64_MAX, flooded = INT64_MAX;
  distag_tensor *data = NULL;
  int round = 0;
  CHECK_OK(distag_full(1, DISTAG_FLOAT64, &size, 1, &data, &err));
  for (; round < (kIsMeasured ? kRounds : 1); ++round) {
    reach(kQuiet);
    quiet = time_of_calls(worker, data, quiet);
    reach(kFlood);
    flooded = time_of_calls(worker, data, flooded);
  }
  common->phase = kDone;
  printf("%d rounds: a call takes %.1f us, beside the flood %.1f us\n", round, (double)quiet / kCalls / 1e3,
         (double)flooded / kCalls / 1e3);
  printf("figure: capi_overload.speed_beside_flood_percent %.1f %%\n", 100 * (double)quiet / (double)flooded);
  distag_tensor_release(data);
}

static int run_member(const char *rendezvous, int32_t rank, int32_t count, void *data) {
  common = data;
  if (rank == kSlow && kIsMeasured) memory_limit_begin(&common->limit);
  distag_worker *worker = NULL;
  distag_worker_options options = group_options(rank, count, rendezvous);
  options.max_in_flight_bytes = kBudget;
  options.no_lane = 1; /* so that what waits is memory of the slow one */
  if (rank == kSlow) options.thread_count = 1;
  CHECK_OK(distag_worker_create(&options, &worker, &err));
  CHECK_OK(distag_worker_register(worker, "serve", serve, NULL, NULL, NULL, &err));
  CHECK_OK(distag_worker_start(worker, 120 * DISTAG_SECOND, &err));
  const int64_t base = resident_bytes();
  if (rank == kSlow) limit_memory();
  if (rank == kAsker) ask_all(worker);
  if (rank >= kFirstSender) send_all(worker, rank - kFirstSender);
  CHECK_OK(distag_worker_shutdown(worker, 600 * DISTAG_SECOND, NULL, &err));
  if (rank == kSlow) {
    const int64_t grown = peak_bytes() - base;
    printf("%lld KiB more at most, of %lld KiB of budgets; %s\n", (long long)grown >> 10,
           (long long)senders * kBudget >> 10,
           common->limit.folder[0] != 0 ? "bounded by a control group" : "no control group can be made here");
    if (kIsMeasured) CHECK(grown <= room());
  }
  distag_worker_release(worker);
  fflush(stdout);
  return check_end();
}

int main(int argc, char **argv) {
  processes group;
  if (argc > 1) senders = atoi(argv[1]);
  if (senders < 1 || senders > kMostSenders) {
    fprintf(stderr, "usage: %s [SENDERS]   1 to %d\n", argv[0], kMostSenders);
    return 2;
  }
  shared *const all = mmap(NULL, sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK_INT(processes_start(&group, kFirstSender + senders, run_member, all), 0);
  CHECK_INT(processes_end(&group, -1), 0);
  memory_limit_end(&all->limit);
  printf("%lld calls were served, %lld refused\n", (long long)all->served, (long long)all->refused);
  CHECK_INT(all->served, all->done);
  CHECK(all->done > senders && all->refused > 0);
  munmap(all, sizeof *all);
  return check_end();
}
