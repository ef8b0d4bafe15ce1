/* A worker whose one thread stands still is flooded by three others: they are told OVERLOADED at once, memory stays
 * within their budgets, all other workers go on, and nothing that was accepted is lost. */
#include <pthread.h>
#include <stdlib.h>

#include "capi/check.h"
#include "capi/support/engine.h"
#include "capi/support/group.h"
#include "capi/support/resident.h"

enum { kBlocking = 4 /* threads of the first sender */, kSlack = 4096 /* of a request, beside its argument */ };
enum { kSenders = 3, kWorkers = kSenders + 2, kBudget = 8 << 20, kMost = 2000, kSee = 5 * DISTAG_MILLISECOND };
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { kIsMeasured = 0 }; /* a sanitizer has memory of its own */
#else
enum { kIsMeasured = 1 };
#endif

static distag_error err = DISTAG_ERROR_INIT;
static distag_worker *workers[kWorkers]; /* the last but one is the slow one, the last one a bystander */
static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
static int64_t served;

static distag_status serve(void *user_data, distag_invocation *invocation, distag_error *told) {
  (void)user_data, (void)invocation, (void)told;
  pthread_mutex_lock(&gate);
  ++served;
  pthread_mutex_unlock(&gate);
  return DISTAG_OK;
}

/* Calls until a call is seen to be refused. Returns the number of calls before it. */
static int flood(distag_worker *sender, distag_value *arg, distag_future **accepted) {
  int count = 0;
  for (; count < kMost; ++count) {
    distag_future *future = NULL;
    CHECK_OK(distag_call_async(sender, NULL, "w3", "serve", &arg, 1, NULL, &future, &err));
    /* A refusal is there once the worker's own thread has seen the call; on a busy machine it may be seen later. */
    const distag_status status = distag_future_wait(future, kSee, &err);
    if (status == DISTAG_E_OVERLOADED) {
      CHECK(strstr(err.message, "max_in_flight_bytes") != NULL);
      CHECK(!(err.flags & DISTAG_ERROR_MAY_HAVE_RUN));
      distag_future_release(future);
      err.code = DISTAG_OK;
      return count;
    }
    CHECK_INT(status, DISTAG_E_DEADLINE);
    err.code = DISTAG_OK;
    accepted[count] = future;
  }
  CHECK(count < kMost);
  return count;
}

static void others_go_on(void) {
  distag_call_options options = DISTAG_CALL_OPTIONS_INIT;
  distag_tensor *one = NULL;
  const double value = 1;
  CHECK_OK(distag_tensor_create(&value, sizeof value, DISTAG_FLOAT64, NULL, 0, &one, &err));
  distag_value *args[] = {distag_tensor_as_value(one)};
  for (int sender = 0; sender < kSenders; ++sender) {
    distag_value *result = NULL;
    CHECK_OK(distag_call(workers[sender], NULL, "w4", "neg", args, 1, NULL, &result, &err));
    distag_value_release(result);
    CHECK_OK(distag_call(workers[4], NULL, "w0", "neg", args, 1, NULL, NULL, &err));
  }
  CHECK_OK(distag_call(workers[4], NULL, "w3", "neg", args, 1, NULL, NULL, &err)); /* an op needs no thread */
  options.timeout_ns = 50 * DISTAG_MILLISECOND;
  CHECK_FAILS(distag_call(workers[0], NULL, "w3", "serve", args, 1, &options, NULL, &err), DISTAG_E_DEADLINE, "50 ms");
  CHECK(!(err.flags & DISTAG_ERROR_MAY_HAVE_RUN)); /* it waited at its sender */
  err.code = DISTAG_OK;
  distag_tensor_release(one);
}

/* ---- threads that block, beside what waits already ---- */

struct blocking {
  pthread_t thread;
  distag_value *arg;
  distag_status status;
};

static void *call_and_wait(void *data) {
  struct blocking *const call = data;
  distag_error told = DISTAG_ERROR_INIT;
  distag_call_options options = DISTAG_CALL_OPTIONS_INIT;
  options.timeout_ns = DISTAG_FOREVER;
  call->status = distag_call(workers[0], NULL, "w3", "serve", &call->arg, 1, &options, NULL, &told);
  return NULL;
}

/* All of a budget, twice, the largest request, and one of each thread: the header's number holds for the sum. */
static void block(struct blocking *calls, distag_value *arg, int64_t request) {
  distag_stats stats = DISTAG_STATS_INIT;
  CHECK_OK(distag_worker_get_stats(workers[0], &stats, &err));
  const int64_t before = (int64_t)stats.request_bytes_waiting;
  for (int i = 0; i < kBlocking; ++i) {
    calls[i].arg = arg;
    CHECK_INT(pthread_create(&calls[i].thread, NULL, call_and_wait, &calls[i]), 0);
  }
  do {
    CHECK_OK(distag_worker_get_stats(workers[0], &stats, &err));
    const int64_t sum = (int64_t)(stats.request_bytes_open + stats.request_bytes_waiting);
    CHECK(sum <= 2 * (int64_t)kBudget + (1 + kBlocking) * (request + kSlack));
  } while ((int64_t)stats.request_bytes_waiting < before + kBlocking * request && check_failures == 0);
}

static int end_blocking(struct blocking *calls) {
  for (int i = 0; i < kBlocking; ++i) {
    CHECK_INT(pthread_join(calls[i].thread, NULL), 0);
    CHECK_INT(calls[i].status, DISTAG_OK);
  }
  return kBlocking;
}

/* Numbers of the header by which a host plans: a budget is under way; another budget and one request wait. */
static void look_at_budgets(int64_t request) {
  for (int sender = 0; sender < kSenders; ++sender) {
    distag_stats stats = DISTAG_STATS_INIT;
    do { /* a busy loop reports its counters late */
      CHECK_OK(distag_worker_get_stats(workers[sender], &stats, &err));
    } while (stats.request_bytes_waiting < kBudget && check_failures == 0);
    CHECK((int64_t)stats.request_bytes_open >= request && stats.request_bytes_open <= kBudget);
    CHECK((int64_t)stats.request_bytes_waiting <= kBudget + request + kSlack);
  }
}

/* The bytes that senders may have on their way, and a tenth more. libzmq also keeps what it has read, up to 64 messages
 * of each connection; a group that meets within its process has no socket. */
static int64_t room(int64_t request) {
  const int is_all =
      getenv("DISTAG_TEST_SOCKETS") == NULL ||
      engine_keeps("a slow worker keeps no more than the budgets of its senders (`max_in_flight_bytes`)");
  return (int64_t)kSenders * (kBudget * 11 / 10 + (is_all ? 0 : 64 * request));
}

static void flood_by_all(int64_t size) {
  static distag_future *accepted[kSenders][kMost];
  struct blocking blocking[kBlocking];
  int counts[kSenders], total = 0; /* made, and accepted of all */
  distag_tensor *data = NULL;
  CHECK_OK(distag_rand(1, DISTAG_FLOAT32, &size, 1, &data, &err));
  const int64_t before = resident_bytes();
  served = 0;
  pthread_mutex_lock(&gate);
  for (int sender = 0; sender < kSenders; ++sender) {
    counts[sender] = flood(workers[sender], distag_tensor_as_value(data), accepted[sender]);
  }
  look_at_budgets(4 * size);
  block(blocking, distag_tensor_as_value(data), 4 * size);
  others_go_on();
  const int64_t grown = resident_bytes() - before;
  if (kIsMeasured) CHECK(grown < room(4 * size));
  CHECK_INT(served, 0);
  pthread_mutex_unlock(&gate);
  for (int sender = 0; sender < kSenders; ++sender) {
    int done = 0;
    for (int i = 0; i < counts[sender]; ++i) {
      const distag_status status = distag_future_wait(accepted[sender][i], 120 * DISTAG_SECOND, &err);
      if (status != DISTAG_E_OVERLOADED) CHECK_INT(status, DISTAG_OK);
      done += status == DISTAG_OK;
      err.code = DISTAG_OK;
      distag_future_release(accepted[sender][i]);
    }
    CHECK(done > 1 && done <= 2 * kBudget / (size * 4) + 1);
    total += done;
  }
  total += end_blocking(blocking);
  printf("%d accepted of %lld bytes, %lld KiB more\n", total, (long long)size * 4, (long long)grown >> 10);
  CHECK_INT(served, total);
  distag_stats stats = DISTAG_STATS_INIT;
  do {
    CHECK_OK(distag_worker_get_stats(workers[0], &stats, &err));
  } while (stats.request_bytes_waiting > 0 && check_failures == 0);
  CHECK(stats.request_bytes_open <= kBudget / 8); /* the last report of begun requests may be owed */
  distag_tensor_release(data);
}

int main(void) {
  for (int rank = 0; rank < kWorkers; ++rank) {
    distag_worker_options options = group_options(rank, kWorkers, group_place("flood"));
    options.max_in_flight_bytes = kBudget;
    if (rank == kSenders) options.thread_count = 1;
    CHECK_OK(distag_worker_create(&options, &workers[rank], &err));
    CHECK_OK(distag_worker_register(workers[rank], "serve", serve, NULL, NULL, NULL, &err));
  }
  CHECK_INT(group_start(workers, kWorkers), 0);
  flood_by_all(1 << 18);
  flood_by_all(1 << 18);
  flood_by_all(1 << 14);
  CHECK_INT(group_shutdown(workers, kWorkers), 0);
  for (int rank = 0; rank < kWorkers; ++rank) distag_worker_release(workers[rank]);
  return check_end();
}
