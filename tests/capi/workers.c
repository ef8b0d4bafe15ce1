/* The services of a worker to its host beside calls: log, thread hooks, allocator, start that fails, last release. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "capi/check.h"
#include "capi/support/group.h"

static distag_error err = DISTAG_ERROR_INIT;

typedef struct {
  atomic_int logs, starts, stops, destroyed, allocated, freed, allocator_destroyed;
} host_counts;

static void on_log(void *user_data, int32_t level, const char *message) {
  CHECK(level >= DISTAG_LOG_ERROR && level <= DISTAG_LOG_DEBUG && message != NULL && message[0] != '\0');
  atomic_fetch_add(&((host_counts *)user_data)->logs, 1);
}
static void on_thread_start(void *user_data, const char *name) {
  CHECK(strncmp(name, "distag", 6) == 0);
  atomic_fetch_add(&((host_counts *)user_data)->starts, 1);
}
static void on_thread_stop(void *user_data, const char *name) {
  (void)name;
  atomic_fetch_add(&((host_counts *)user_data)->stops, 1);
}
static void destroy(void *user_data) { atomic_fetch_add(&((host_counts *)user_data)->destroyed, 1); }

static void *allocate(void *user_data, size_t size, size_t alignment) {
  atomic_fetch_add(&((host_counts *)user_data)->allocated, 1);
  return aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
}
static void deallocate(void *user_data, void *memory, size_t size, size_t alignment) {
  CHECK(size > 0 && alignment > 0);
  atomic_fetch_add(&((host_counts *)user_data)->freed, 1);
  free(memory);
}
static void destroy_allocator(void *user_data) {
  host_counts *counts = (host_counts *)user_data;
  CHECK_INT(atomic_load(&counts->allocated), atomic_load(&counts->freed)); /* after the last block came back */
  atomic_fetch_add(&counts->allocator_destroyed, 1);
}

static distag_status echo(void *user_data, distag_invocation *invocation, distag_error *told) {
  (void)user_data;
  return distag_invocation_return(invocation, distag_invocation_get_arg(invocation, 0), told);
}

/* Two workers over ipc, a large tensor there and back, which outlives them. */
static void host_services(void) {
  char folder[] = "/tmp/capi-workers-XXXXXX";
  char rendezvous[64], command[64];
  const int64_t shapes[2] = {1 << 15, 1 << 20}; /* one message, and chunks */
  host_counts counts = {0};
  distag_allocator allocator = DISTAG_ALLOCATOR_INIT;
  distag_worker *both[2] = {NULL, NULL};
  distag_value *results[2] = {NULL, NULL};

  if (!CHECK(mkdtemp(folder) != NULL)) return;
  snprintf(rendezvous, sizeof rendezvous, "file://%s", folder);
  allocator.allocate = allocate;
  allocator.deallocate = deallocate;
  allocator.user_data = &counts;
  allocator.destroy = destroy_allocator;
  for (int32_t rank = 0; rank < 2; ++rank) {
    distag_worker_options options = group_options(rank, 2, rendezvous);
    options.on_log = on_log;
    options.log_level = DISTAG_LOG_DEBUG;
    options.on_thread_start = on_thread_start;
    options.on_thread_stop = on_thread_stop;
    options.user_data = &counts;
    options.destroy = destroy;
    options.allocator = rank == 0 ? &allocator : NULL;
    CHECK_OK(distag_worker_create(&options, &both[rank], &err));
    CHECK_OK(distag_worker_register(both[rank], "echo", echo, NULL, NULL, NULL, &err));
  }
  CHECK_INT(atomic_load(&counts.starts), 0); /* nothing runs before the start */
  CHECK_INT(group_start(both, 2), 0);
  for (int i = 0; i < 2; ++i) {
    distag_tensor *x = NULL, *y = NULL;
    distag_value *args[1];
    CHECK_OK(distag_rand(1, DISTAG_FLOAT32, &shapes[i], 1, &x, &err));
    args[0] = distag_tensor_as_value(x);
    CHECK_OK(distag_call(both[0], NULL, "w1", "echo", args, 1, NULL, &results[i], &err));
    CHECK_OK(distag_value_get_tensor(results[i], &y, &err));
    CHECK(distag_tensor_get_id(x) != distag_tensor_get_id(y));
    CHECK(memcmp(distag_tensor_get_data(x), distag_tensor_get_data(y), distag_tensor_get_size(x)) == 0);
    distag_tensor_release(x);
  }
  CHECK(atomic_load(&counts.allocated) >= 2);
  CHECK_INT(group_shutdown(both, 2), 0);
  CHECK(atomic_load(&counts.starts) >= 3);
  CHECK_INT(atomic_load(&counts.starts), atomic_load(&counts.stops));
  CHECK_INT(atomic_load(&counts.destroyed), 2);
  distag_worker_release(both[0]);
  distag_worker_release(both[1]);
  CHECK_INT(atomic_load(&counts.allocator_destroyed), 0);
  distag_value_release(results[0]);
  CHECK_INT(atomic_load(&counts.allocator_destroyed), 0); /* not before the last block came back */
  distag_value_release(results[1]);
  CHECK_INT(atomic_load(&counts.allocator_destroyed), 1);
  snprintf(command, sizeof command, "rm -rf %s", folder);
  CHECK_INT(system(command), 0);
}

static void failing_starts(void) {
  distag_worker_options options = group_options(0, 2, "inproc://failing_starts");
  distag_worker *worker = NULL, *other = NULL;
  distag_future *future = NULL;
  CHECK_OK(distag_worker_create(&options, &worker, &err));
  CHECK_FAILS(distag_worker_start(worker, 20 * DISTAG_MILLISECOND, &err), DISTAG_E_DEADLINE, "rank");
  CHECK_OK(distag_worker_start_async(worker, 120 * DISTAG_SECOND, &future, &err)); /* it can be started again */
  options = group_options(1, 2, "inproc://failing_starts");
  CHECK_OK(distag_worker_create(&options, &other, &err));
  CHECK_OK(distag_worker_start(other, 120 * DISTAG_SECOND, &err));
  CHECK_OK(distag_future_wait(future, DISTAG_FOREVER, &err));
  distag_future_release(future);
  CHECK_OK(distag_worker_shutdown(worker, 0, NULL, &err)); /* waits for no peer */
  CHECK_OK(distag_worker_shutdown(other, 0, NULL, &err));
  distag_worker_release(worker);
  distag_worker_release(other);

  options = group_options(0, 1, "carrier-pigeon://coop");
  CHECK_OK(distag_worker_create(&options, &worker, &err));
  CHECK_FAILS(distag_worker_start(worker, DISTAG_SECOND, &err), DISTAG_E_INVALID_ARGUMENT, "carrier-pigeon");
  CHECK_OK(distag_worker_shutdown(worker, 0, NULL, &err));
  distag_worker_release(worker);

  options = group_options(0, 1, "inproc://public");
  options.rendezvous = "tcp://127.0.0.1:0";
  options.bind = "tcp://0.0.0.0:0";
  CHECK_OK(distag_worker_create(&options, &worker, &err));
  CHECK_FAILS(distag_worker_start(worker, DISTAG_SECOND, &err), DISTAG_E_DENIED, "0.0.0.0");
  distag_worker_release(worker);
}

/* Names, addresses and a rendezvous that are not available. */
static void taken_and_unreachable(void) {
  distag_worker *first = NULL, *both[2] = {NULL, NULL};
  distag_future *futures[2] = {NULL, NULL};
  distag_worker_options options = group_options(0, 2, "inproc://taken");
  for (int i = 0; i < 2; ++i) { /* both under the name of the first: the later one is refused */
    options.rank = i;
    CHECK_OK(distag_worker_create(&options, &both[i], &err));
    CHECK_OK(distag_worker_start_async(both[i], 120 * DISTAG_SECOND, &futures[i], &err));
  }
  while (distag_future_poll(futures[0]) + distag_future_poll(futures[1]) == 0) sched_yield();
  const int refused = distag_future_poll(futures[0]) ? 0 : 1;
  CHECK_FAILS(distag_future_wait(futures[refused], DISTAG_FOREVER, &err), DISTAG_E_INVALID_STATE, "w0");
  CHECK_OK(distag_worker_shutdown(both[1 - refused], 0, NULL, &err));
  CHECK_INT(distag_future_wait(futures[1 - refused], DISTAG_FOREVER, &err), DISTAG_E_CANCELLED);
  for (int i = 0; i < 2; ++i) {
    distag_future_release(futures[i]);
    distag_worker_release(both[i]);
  }
  while (distag_get_handle_count() != 0) sched_yield(); /* the refused one ends on a thread of distag */

  options = group_options(1, 2, "tcp://127.0.0.1:9"); /* no process serves there */
  CHECK_OK(distag_worker_create(&options, &first, &err));
  const distag_status status = distag_worker_start(first, 300 * DISTAG_MILLISECOND, &err);
  CHECK(status == DISTAG_E_DISCONNECTED || status == DISTAG_E_DEADLINE);
  CHECK(strstr(err.message, "127.0.0.1:9") != NULL);
  distag_worker_release(first);

  options = group_options(0, 1, "tcp://nowhere");
  CHECK_OK(distag_worker_create(&options, &first, &err));
  CHECK_FAILS(distag_worker_start(first, DISTAG_SECOND, &err), DISTAG_E_INVALID_ARGUMENT, "nowhere");
  distag_worker_release(first);
}

/* Calls itself once more, until the argument is 0. */
static distag_status descend(void *user_data, distag_invocation *invocation, distag_error *told) {
  distag_call_options options = DISTAG_CALL_OPTIONS_INIT;
  distag_value *next = NULL;
  int64_t depth = 0;
  (void)user_data;
  distag_value_get_int64(distag_invocation_get_arg(invocation, 0), &depth, told);
  if (depth == 0 || told->code != DISTAG_OK) return told->code;
  distag_value_create_int64(depth - 1, &next, told);
  options.within = invocation;
  distag_call(distag_invocation_get_worker(invocation), NULL, "w0", "descend", &next, 1, &options, NULL, told);
  distag_value_release(next);
  return told->code;
}

/* Nested calls complete with a pool of one thread, up to the cap; above it they are refused before they are sent. */
static void nested_calls(void) {
  distag_worker_options options = group_options(0, 1, "inproc://nested_calls");
  distag_worker *worker = NULL;
  distag_value *depth = NULL;
  options.thread_count = 1;
  CHECK_OK(distag_worker_create(&options, &worker, &err));
  CHECK_OK(distag_worker_register(worker, "descend", descend, NULL, NULL, NULL, &err));
  CHECK_OK(distag_worker_start(worker, 120 * DISTAG_SECOND, &err));
  CHECK_OK(distag_value_create_int64(200, &depth, &err));
  CHECK_OK(distag_call(worker, NULL, "w0", "descend", &depth, 1, NULL, NULL, &err));
  distag_value_release(depth);
  CHECK_OK(distag_value_create_int64(300, &depth, &err));
  CHECK_FAILS(distag_call(worker, NULL, "w0", "descend", &depth, 1, NULL, NULL, &err), DISTAG_E_OVERLOADED, "wait");
  CHECK(strlen(err.message) <= 495);
  distag_value_release(depth);
  CHECK_OK(distag_worker_shutdown(worker, 120 * DISTAG_SECOND, NULL, &err));
  distag_worker_release(worker);
}

/* The last release of a running worker ends it, and its function's data, on a thread of distag. */
static void last_release(void) {
  const distag_worker_options options = group_options(0, 1, "inproc://last_release");
  host_counts counts = {0};
  distag_worker *worker = NULL;
  distag_future *future = NULL;
  CHECK_OK(distag_worker_create(&options, &worker, &err));
  CHECK_OK(distag_worker_register(worker, "echo", echo, &counts, destroy, NULL, &err));
  CHECK_OK(distag_worker_start(worker, 120 * DISTAG_SECOND, &err));
  CHECK_OK(distag_call_async(worker, NULL, "w0", "neg", NULL, 0, NULL, &future, &err));
  distag_worker_release(worker);
  while (atomic_load(&counts.destroyed) == 0) sched_yield();
  CHECK(distag_future_wait(future, 120 * DISTAG_SECOND, &err) != DISTAG_OK); /* done: a handle stays safe */
  CHECK_INT(distag_future_poll(future), 1);
  distag_future_release(future);
  while (distag_get_handle_count() != 0) sched_yield();
  CHECK_INT(atomic_load(&counts.destroyed), 1);
}

static atomic_int is_inside, may_go_on;

static distag_status stay(void *user_data, distag_invocation *invocation, distag_error *told) {
  (void)user_data;
  (void)invocation;
  (void)told;
  atomic_store(&is_inside, 1);
  while (atomic_load(&may_go_on) == 0) sched_yield();
  return DISTAG_OK;
}

/* A shutdown that is out of time while a function runs says so; the next one waits for it. */
static void function_that_stays(void) {
  const distag_worker_options options = group_options(0, 1, "inproc://function_that_stays");
  distag_worker *worker = NULL;
  distag_future *future = NULL;
  distag_value *report = (distag_value *)&err;
  int64_t open_calls = -1;
  CHECK_OK(distag_worker_create(&options, &worker, &err));
  CHECK_OK(distag_worker_register(worker, "stay", stay, NULL, NULL, NULL, &err));
  CHECK_OK(distag_worker_start(worker, 120 * DISTAG_SECOND, &err));
  CHECK_OK(distag_call_async(worker, NULL, "w0", "stay", NULL, 0, NULL, &future, &err));
  while (atomic_load(&is_inside) == 0) sched_yield();
  CHECK_FAILS(distag_worker_shutdown(worker, 10 * DISTAG_MILLISECOND, &report, &err), DISTAG_E_DEADLINE, "stay");
  CHECK(report == NULL);
  CHECK_INT(distag_future_wait(future, DISTAG_FOREVER, &err), DISTAG_E_CANCELLED);
  distag_future_release(future);
  CHECK_OK(distag_worker_shutdown_async(worker, 0, &future, &err));
  CHECK_FAILS(distag_future_wait(future, DISTAG_FOREVER, &err), DISTAG_E_DEADLINE, "stay");
  distag_future_release(future);
  atomic_store(&may_go_on, 1);
  CHECK_OK(distag_worker_shutdown(worker, 120 * DISTAG_SECOND, &report, &err));
  CHECK_OK(distag_value_get_int64(distag_value_get_entry(report, "open_calls"), &open_calls, &err));
  CHECK(open_calls > 0);
  distag_value_release(report);
  distag_worker_release(worker);
}

static _Atomic(distag_future *) begun_inside;

static distag_status end_own_worker(void *user_data, distag_invocation *invocation, distag_error *told) {
  distag_worker *self = distag_invocation_get_worker(invocation);
  distag_error inner = DISTAG_ERROR_INIT;
  distag_future *future = NULL;
  (void)user_data;
  CHECK_INT(distag_worker_shutdown(self, DISTAG_FOREVER, NULL, &inner), DISTAG_E_INVALID_STATE);
  CHECK(strstr(inner.message, "_async") != NULL);
  if (distag_worker_shutdown_async(self, 120 * DISTAG_SECOND, &future, told) != DISTAG_OK) return told->code;
  CHECK_INT(distag_future_wait(future, DISTAG_FOREVER, &inner), DISTAG_E_INVALID_STATE);
  CHECK_INT(distag_wait_all(&future, 1, DISTAG_FOREVER, &inner), DISTAG_E_INVALID_STATE);
  atomic_store(&begun_inside, future);
  return DISTAG_OK;
}

/* A function may begin the end of its worker, but not wait for it. */
static void shutdown_from_inside(void) {
  const distag_worker_options options = group_options(0, 1, "inproc://shutdown_from_inside");
  distag_worker *worker = NULL;
  CHECK_OK(distag_worker_create(&options, &worker, &err));
  CHECK_OK(distag_worker_register(worker, "end_own_worker", end_own_worker, NULL, NULL, NULL, &err));
  CHECK_OK(distag_worker_start(worker, 120 * DISTAG_SECOND, &err));
  CHECK_OK(distag_call(worker, NULL, "w0", "end_own_worker", NULL, 0, NULL, NULL, &err));
  distag_future *future = atomic_load(&begun_inside);
  CHECK_OK(distag_future_wait(future, DISTAG_FOREVER, &err));
  distag_future_release(future);
  CHECK_OK(distag_worker_shutdown(worker, 0, NULL, &err));
  distag_worker_release(worker);
}

int main(void) {
  host_services();
  failing_starts();
  taken_and_unreachable();
  nested_calls();
  last_release();
  function_that_stays();
  shutdown_from_inside();
  return check_end();
}
