/* Loaders on bad days: sources that fail, end early, differ, are late, or block while everything ends around them. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "capi/check.h"
#include "capi/support/feed.h"
#include "capi/support/group.h"
#include "capi/support/members.h"

enum { kTwo = 2 };

static feed feeds[kTwo];
static const int64_t kCount = kTwo;
static const int32_t kRanks[] = {0, 1};
static const char *const kX[] = {"x"};

static distag_mesh *make_mesh(members *group, int32_t rank, uint32_t check_replicas) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_mesh_options options = DISTAG_MESH_OPTIONS_INIT;
  distag_mesh *mesh = NULL;
  options.check_replicas = check_replicas;
  CHECK_OK(distag_mesh_create(group->workers[rank], kRanks, kTwo, &kCount, kX, 1, &options, &mesh, &err));
  return mesh;
}

static distag_loader *make_loader(distag_mesh *mesh, int32_t rank, uint32_t mode, int64_t rows) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_loader_options options = DISTAG_LOADER_OPTIONS_INIT;
  distag_loader *loader = NULL;
  options.mode = mode;
  options.row_count = rows;
  options.batch_rows = rows == 0 ? 0 : 4;
  CHECK_OK(distag_loader_create(mesh, feed_source, &feeds[rank], feed_destroy, &options, &loader, &err));
  return loader;
}

/* The mesh goes on. */
static void check_mesh(distag_mesh *mesh) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_tensor *one = NULL, *sum = NULL;
  CHECK_OK(distag_ones(DISTAG_FLOAT32, NULL, 0, &one, &err));
  CHECK_OK(distag_collective(mesh, DISTAG_ALL_REDUCE, NULL, one, NULL, &sum, &err));
  double value = 0;
  CHECK_OK(distag_tensor_get_item(sum, &value, &err));
  CHECK_NEAR(value, kTwo);
  distag_tensor_release(one);
  distag_tensor_release(sum);
}

static void take(distag_loader *loader, int64_t batches) {
  distag_error err = DISTAG_ERROR_INIT;
  for (int64_t i = 0; i < batches; ++i) {
    distag_value *batch = NULL;
    CHECK_OK(distag_loader_next(loader, 120 * DISTAG_SECOND, &batch, &err));
    CHECK(batch != NULL);
    distag_value_release(batch);
  }
}

static void check_end_of_data(distag_loader *loader) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_value *batch = NULL;
  for (int i = 0; i < 3; ++i) {
    CHECK_OK(distag_loader_next(loader, 120 * DISTAG_SECOND, &batch, &err));
    CHECK(batch == NULL);
  }
}

/* ---- a source that fails, and one whose batch does not fit ---- */

typedef struct failure {
  uint32_t mode;
  int64_t rows;
  int32_t member; /* whose source it is */
  int64_t fails_at, widens_at, cuts_at;
  int64_t taken; /* batches before it */
  distag_status status;
  const char *word;
} failure;

static const failure *expected;

static void fail(members *group, int32_t rank) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_mesh *mesh = make_mesh(group, rank, 0);
  distag_loader *loader = make_loader(mesh, rank, expected->mode, expected->rows);
  distag_value *batch = NULL;
  take(loader, expected->taken);
  CHECK_FAILS(distag_loader_next(loader, 120 * DISTAG_SECOND, &batch, &err), expected->status, expected->word);
  CHECK(batch == NULL);
  if (expected->fails_at >= 0 || expected->cuts_at >= 0) CHECK_INT(err.origin_rank, expected->member);
  feed_await_destroyed(&feeds[rank]);
  check_end_of_data(loader);
  check_mesh(mesh);
  distag_loader_release(loader);
  distag_mesh_release(mesh);
}

static void feeds_init(void) {
  for (int i = 0; i < kTwo; ++i) feed_init(&feeds[i]);
}

static void feeds_end(void) {
  for (int i = 0; i < kTwo; ++i) {
    CHECK_INT(feeds[i].destroyed, 1);
    CHECK_INT(feeds[i].calls_after, 0);
    feed_end(&feeds[i]);
  }
}

static void failures(members *group) {
  static const failure kFailures[] = {
      {DISTAG_BATCH_ROWS, 40, 1, 2, -1, -1, 2, 1007,
       "batch 2, the source of worker \"w1\" (rank 1): the disk is on fire"},
      {DISTAG_BATCH_ROWS, 40, 0, 0, -1, -1, 0, 1007, "the disk is on fire"},
      {DISTAG_BATCH_GLOBAL, 0, 1, 5, -1, -1, 5, 1007, "(rank 1): the disk"},
      {DISTAG_BATCH_ROOT, 0, 0, 3, -1, -1, 3, 1007, "(rank 0): the disk"},
      {DISTAG_BATCH_ROWS, 40, 1, -1, 1, -1, 1, DISTAG_E_INVALID_ARGUMENT, "differ"},
      {DISTAG_BATCH_GLOBAL, 0, 1, -1, 3, -1, 3, DISTAG_E_INVALID_ARGUMENT, "\"x\" int64[4, 3]"},
      {DISTAG_BATCH_ROWS, 40, 1, -1, -1, 2, 2, DISTAG_E_INVALID_ARGUMENT, "asked for 2 rows"},
  };
  for (size_t i = 0; i < sizeof kFailures / sizeof *kFailures; ++i) {
    expected = &kFailures[i];
    feeds_init();
    feeds[expected->member].fails_at = expected->fails_at;
    feeds[expected->member].widens_at = expected->widens_at;
    feeds[expected->member].cuts_at = expected->cuts_at;
    members_run(group, kTwo, fail);
    feeds_end();
  }
}

/* ---- data that end early on one member ---- */

static void end_early(members *group, int32_t rank) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_mesh *mesh = make_mesh(group, rank, 0);
  distag_loader *loader = make_loader(mesh, rank, rank == 0 ? DISTAG_BATCH_GLOBAL : 0, 0);
  take(loader, 3);
  check_end_of_data(loader);
  distag_loader_info info = DISTAG_LOADER_INFO_INIT;
  CHECK_OK(distag_loader_get_info(loader, &info, &err));
  CHECK_INT(info.next, 3);
  CHECK_INT(info.count, 3);
  CHECK(rank == 0 ? info.dropped == 0 : info.dropped >= 1);
  feed_await_destroyed(&feeds[rank]);
  distag_loader_release(loader);
  distag_mesh_release(mesh);
}

/* ---- a late source ---- */

static void late(members *group, int32_t rank) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_mesh *mesh = make_mesh(group, rank, 0);
  distag_loader *loader = make_loader(mesh, rank, DISTAG_BATCH_ROWS, 12);
  distag_value *batch = NULL;
  distag_future *future = NULL;
  take(loader, 1);
  feed_await_blocked(&feeds[1]);
  for (int i = 0; i < 2; ++i) {
    CHECK_FAILS(distag_loader_next(loader, 300 * DISTAG_MILLISECOND, &batch, &err), DISTAG_E_DEADLINE,
                "worker \"w1\" (rank 1)");
    CHECK(strstr(err.message, "source") != NULL);
    CHECK_INT(err.origin_rank, 1);
  }
  CHECK_FAILS(distag_loader_next(loader, 0, &batch, &err), DISTAG_E_DEADLINE, "worker \"w1\" (rank 1)");
  CHECK_OK(distag_loader_next_async(loader, DISTAG_FOREVER, &future, &err));
  distag_future_cancel(future);
  CHECK_FAILS(distag_future_wait(future, DISTAG_FOREVER, &err), DISTAG_E_CANCELLED, "loader");
  distag_future_release(future);
  check_mesh(mesh);
  if (rank == 0) feed_open(&feeds[1]);
  CHECK_OK(distag_loader_next_async(loader, 120 * DISTAG_SECOND, &future, &err));
  CHECK_OK(distag_future_wait(future, DISTAG_FOREVER, &err));
  CHECK_OK(distag_future_get_value(future, &batch, &err));
  CHECK_INT(distag_value_get_count(batch), 2);
  distag_future_release(future);
  take(loader, 1);
  check_end_of_data(loader);
  distag_loader_info info = DISTAG_LOADER_INFO_INIT;
  CHECK_OK(distag_loader_get_info(loader, &info, &err));
  CHECK(info.waited_ns >= 500 * DISTAG_MILLISECOND);
  if (rank == 1) CHECK(info.source_ns >= 500 * DISTAG_MILLISECOND);
  distag_loader_release(loader);
  feed_await_destroyed(&feeds[rank]);
  distag_mesh_release(mesh);
}

/* ---- what ends while a source blocks ---- */

static void release_while_blocked(members *group, int32_t rank) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_mesh *mesh = make_mesh(group, rank, 0);
  distag_loader *loader = make_loader(mesh, rank, DISTAG_BATCH_ROWS, 40);
  distag_value *batch = NULL;
  take(loader, 1);
  feed_await_blocked(&feeds[1]);
  if (rank == 1) {
    distag_loader_release(loader); /* it waits for no call: the blocked source goes on below */
    CHECK_INT(feed_get_destroyed(&feeds[1]), 0);
  } else {
    distag_status status;
    do {
      status = distag_loader_next(loader, 120 * DISTAG_SECOND, &batch, &err);
      distag_value_release(batch);
    } while (status == DISTAG_OK && batch != NULL);
    CHECK_INT(status, DISTAG_E_DISCONNECTED);
    CHECK(strstr(err.message, "worker \"w1\" (rank 1) has released the loader") != NULL);
    CHECK_INT(err.origin_rank, 1);
    feed_await_destroyed(&feeds[0]);
    check_end_of_data(loader);
    distag_loader_release(loader);
  }
  check_mesh(mesh);
  if (rank == 1) {
    CHECK_INT(feed_get_destroyed(&feeds[1]), 0);
    feed_open(&feeds[1]);
    feed_await_destroyed(&feeds[1]);
  }
  distag_mesh_release(mesh);
}

/* A member that never makes its loader can be waited for as well. */
static void release_without_loader(members *group, int32_t rank) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_mesh *mesh = make_mesh(group, rank, 0);
  if (rank == 0) {
    distag_loader *loader = make_loader(mesh, rank, DISTAG_BATCH_ROWS, 12);
    distag_value *batch = NULL;
    CHECK_FAILS(distag_loader_next(loader, DISTAG_FOREVER, &batch, &err), DISTAG_E_DISCONNECTED,
                "worker \"w1\" (rank 1) has left it");
    distag_loader_release(loader);
    feed_await_destroyed(&feeds[rank]);
  }
  distag_mesh_release(mesh);
}

/* The member that has the data releases its loader, and its mesh as well if it leaves: announced batches still come,
 * whatever the others had asked for. A member that asks for nothing learns of it at the mesh. */
static void release_at_the_root(members *group, int32_t rank) {
  distag_error err = DISTAG_ERROR_INIT;
  for (uint32_t prefetch = 1; prefetch <= 8; ++prefetch) {
    const int leaves = prefetch % 2 == 0, reads = prefetch != 4;
    distag_mesh *mesh = make_mesh(group, rank, 0);
    distag_loader_options options = DISTAG_LOADER_OPTIONS_INIT;
    distag_loader *loader = NULL;
    distag_value *batch = NULL;
    distag_tensor *one = NULL, *sum = NULL;
    int count = 0;
    options.mode = DISTAG_BATCH_ROOT;
    options.prefetch = rank == 0 ? prefetch : 9 - prefetch;
    CHECK_OK(distag_loader_create(mesh, feed_source, &feeds[rank], NULL, &options, &loader, &err));
    if (rank == 0) take(loader, 1);
    if (prefetch >= 6) check_mesh(mesh); /* the first batch is there */
    if (rank == 0) distag_loader_release(loader);
    while (rank == 1 && reads) {
      const distag_status status = distag_loader_next(loader, 120 * DISTAG_SECOND, &batch, &err);
      if (status != DISTAG_OK || batch == NULL) break;
      distag_value_release(batch);
      ++count;
    }
    if (rank == 1 && reads) {
      CHECK_INT(err.code, DISTAG_E_DISCONNECTED);
      CHECK(strstr(err.message, "worker \"w0\" (rank 0) has released the loader") != NULL);
      CHECK(count >= 1 && count <= 1 + (int)prefetch);
    }
    if (!leaves) {
      check_mesh(mesh);
    } else if (rank == 1) {
      CHECK_OK(distag_ones(DISTAG_FLOAT32, NULL, 0, &one, &err));
      CHECK_FAILS(distag_collective(mesh, DISTAG_ALL_REDUCE, NULL, one, NULL, &sum, &err), DISTAG_E_DISCONNECTED,
                  "has left it");
      distag_tensor_release(one);
    }
    if (rank == 1) distag_loader_release(loader);
    distag_mesh_release(mesh);
  }
}

static void end_mesh_while_blocked(members *group, int32_t rank) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_mesh *mesh = make_mesh(group, rank, 0);
  distag_loader *loader = make_loader(mesh, rank, DISTAG_BATCH_ROWS, 40);
  distag_value *batch = NULL;
  distag_future *future = NULL;
  distag_tensor *one = NULL, *sum = NULL;
  feed_await_blocked(&feeds[1]);
  CHECK_OK(distag_loader_next_async(loader, DISTAG_FOREVER, &future, &err));
  CHECK_OK(distag_ones(DISTAG_FLOAT32, NULL, 0, &one, &err));
  CHECK_FAILS(distag_collective(mesh, rank == 0 ? DISTAG_ALL_REDUCE : DISTAG_BROADCAST, NULL, one, NULL, &sum, &err),
              DISTAG_E_DIVERGED, "programs differ");
  CHECK_FAILS(distag_future_wait(future, DISTAG_FOREVER, &err), DISTAG_E_DIVERGED, "programs differ");
  CHECK_FAILS(distag_loader_next(loader, DISTAG_FOREVER, &batch, &err), DISTAG_E_DIVERGED, "programs differ");
  distag_future_release(future);
  if (rank == 1) CHECK_INT(feed_get_destroyed(&feeds[1]), 0);
  feed_open(&feeds[rank]);
  feed_await_destroyed(&feeds[rank]);
  distag_loader_release(loader);
  distag_tensor_release(one);
  distag_mesh_release(mesh);
}

static void shut_down_while_blocked(void) {
  members group;
  distag_error err = DISTAG_ERROR_INIT;
  feeds_init();
  feeds[0].blocks_at = 1;
  if (members_start(&group, 1, "loader_shutdown") != 0) return;
  const int64_t count = 1;
  distag_mesh *mesh = NULL;
  distag_value *batch = NULL;
  CHECK_OK(distag_mesh_create(group.workers[0], NULL, 0, &count, kX, 1, NULL, &mesh, &err));
  distag_loader *loader = make_loader(mesh, 0, DISTAG_BATCH_ROWS, 40);
  take(loader, 1);
  feed_await_blocked(&feeds[0]);
  CHECK_FAILS(distag_worker_shutdown(group.workers[0], 300 * DISTAG_MILLISECOND, NULL, &err), DISTAG_E_DEADLINE,
              "still run");
  CHECK_FAILS(distag_loader_next(loader, DISTAG_FOREVER, &batch, &err), DISTAG_E_CANCELLED, "shut down");
  CHECK_INT(feed_get_destroyed(&feeds[0]), 0);
  feed_open(&feeds[0]);
  CHECK_OK(distag_worker_shutdown(group.workers[0], DISTAG_FOREVER, NULL, &err));
  CHECK_INT(feed_get_destroyed(&feeds[0]), 1);
  distag_loader_release(loader);
  distag_mesh_release(mesh);
  distag_worker_release(group.workers[0]);
  feeds[1].destroyed = 1; /* not used */
  feeds_end();
}

/* A loader that is released last, after its worker. */
static void outlive_worker(void) {
  members group;
  distag_error err = DISTAG_ERROR_INIT;
  feeds_init();
  if (members_start(&group, 1, "loader_outlives") != 0) return;
  const int64_t count = 1;
  distag_mesh *mesh = NULL;
  distag_value *state = NULL;
  distag_loader_info info = DISTAG_LOADER_INFO_INIT;
  CHECK_OK(distag_mesh_create(group.workers[0], NULL, 0, &count, kX, 1, NULL, &mesh, &err));
  distag_loader *loader = make_loader(mesh, 0, DISTAG_BATCH_GLOBAL, 0);
  distag_mesh_release(mesh);
  take(loader, 2);
  CHECK_INT(members_end(&group), 0);
  CHECK_INT(feed_get_destroyed(&feeds[0]), 1);
  CHECK_OK(distag_loader_save(loader, &state, &err));
  CHECK_OK(distag_loader_get_info(loader, &info, &err));
  CHECK_INT(info.next, 2);
  distag_value_release(state);
  distag_loader_release(loader);
  feeds[1].destroyed = 1;
  feeds_end();
}

static void run_blocked(members *group, int64_t blocks_at, void (*program)(members *, int32_t)) {
  feeds_init();
  feeds[1].blocks_at = blocks_at;
  members_run(group, kTwo, program);
  feeds_end();
}

/* The only thread of a pool is in a source that blocks: sums that the pool makes go on, and so do calls of the source.
 */
static void sum_while_blocked(members *group, int32_t rank) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_mesh *mesh = make_mesh(group, rank, 0);
  distag_loader *loader = make_loader(mesh, rank, DISTAG_BATCH_ROWS, 12);
  const int64_t count = 1 << 18;
  distag_tensor *ones = NULL, *sum = NULL;
  feed_await_blocked(&feeds[1]);
  CHECK_OK(distag_ones(DISTAG_FLOAT64, &count, 1, &ones, &err));
  for (int i = 0; i < 3; ++i) {
    CHECK_OK(distag_collective(mesh, DISTAG_ALL_REDUCE, NULL, ones, NULL, &sum, &err));
    distag_tensor_release(sum);
  }
  feed_open(&feeds[1]);
  take(loader, 3);
  check_end_of_data(loader);
  distag_tensor_release(ones);
  distag_loader_release(loader);
  feed_await_destroyed(&feeds[rank]);
  distag_mesh_release(mesh);
}

static void one_thread(void) {
  members group = {0};
  distag_error err = DISTAG_ERROR_INIT;
  group.count = kTwo;
  for (int32_t i = 0; i < kTwo; ++i) {
    distag_worker_options options = DISTAG_WORKER_OPTIONS_INIT;
    options.rank = i;
    options.world_size = kTwo;
    options.rendezvous = "inproc://loader_thread";
    options.thread_count = 1;
    options.call_timeout_ns = 120 * DISTAG_SECOND;
    CHECK_OK(distag_worker_create(&options, &group.workers[i], &err));
  }
  if (group_start(group.workers, kTwo) != 0) return;
  run_blocked(&group, 1, sum_while_blocked);
  CHECK_INT(members_end(&group), 0);
}

/* A forked child has no loader; the parent's goes on. */
static void fork_beside(void) {
  members group;
  distag_error err = DISTAG_ERROR_INIT;
  feeds_init();
  if (members_start(&group, 1, "loader_fork") != 0) return;
  const int64_t count = 1;
  distag_mesh *mesh = NULL;
  distag_value *batch = NULL;
  distag_loader_info info = DISTAG_LOADER_INFO_INIT;
  CHECK_OK(distag_mesh_create(group.workers[0], NULL, 0, &count, kX, 1, NULL, &mesh, &err));
  distag_loader *loader = make_loader(mesh, 0, DISTAG_BATCH_ROWS, 40);
  take(loader, 1);
  const pid_t child = fork();
  if (child == 0) {
    CHECK_FAILS(distag_loader_next(loader, DISTAG_FOREVER, &batch, &err), DISTAG_E_INVALID_STATE, "fork");
    CHECK_FAILS(distag_loader_get_info(loader, &info, &err), DISTAG_E_INVALID_STATE, "fork");
    distag_loader_release(loader);
    _exit(check_failures + feeds[0].destroyed);
  }
  int status = -1;
  CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
  take(loader, 9);
  check_end_of_data(loader);
  distag_loader_release(loader);
  feed_await_destroyed(&feeds[0]);
  distag_mesh_release(mesh);
  CHECK_INT(members_end(&group), 0);
  feeds[1].destroyed = 1;
  feeds_end();
}

/* ---- specs that do not fit what comes ---- */

static void misfit(distag_mesh *mesh, int32_t rank, const char *key, const char *spec, distag_status status,
                   const char *word) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_loader_options options = DISTAG_LOADER_OPTIONS_INIT;
  distag_loader *loader = NULL;
  distag_value *batch = NULL;
  options.keys = &key;
  options.specs = &spec;
  options.spec_count = 1;
  CHECK_OK(distag_loader_create(mesh, feed_source, &feeds[rank], feed_destroy, &options, &loader, &err));
  CHECK_FAILS(distag_loader_next(loader, DISTAG_FOREVER, &batch, &err), status, word);
  distag_loader_release(loader);
  feed_await_destroyed(&feeds[rank]);
  feeds[rank].destroyed = 0;
}

static void misfits(members *group, int32_t rank) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_mesh *mesh = make_mesh(group, rank, 0);
  misfit(mesh, rank, "z", "('x',)", DISTAG_E_NOT_FOUND, "no entry \"z\": it has \"x\", \"y\"");
  misfit(mesh, rank, "y", "('x', None)", DISTAG_E_INVALID_ARGUMENT, "entry \"y\" of 1 dims, spec ('x', None)");
  misfit(mesh, rank, NULL, "('x', None)", DISTAG_E_INVALID_ARGUMENT, "entry \"y\" of 1 dims");
  /* An entry without a spec is repeated. */
  const char *const key = "x", *const spec = "(None, 'x')";
  distag_loader_options options = DISTAG_LOADER_OPTIONS_INIT;
  distag_loader *loader = NULL;
  distag_value *batch = NULL;
  distag_tensor *x = NULL, *y = NULL, *local = NULL;
  options.keys = &key;
  options.specs = &spec;
  options.spec_count = 1;
  CHECK_OK(distag_loader_create(mesh, feed_source, &feeds[rank], feed_destroy, &options, &loader, &err));
  CHECK_OK(distag_loader_next(loader, DISTAG_FOREVER, &batch, &err));
  CHECK_OK(distag_value_get_tensor(distag_value_get_entry(batch, "x"), &x, &err));
  CHECK_OK(distag_value_get_tensor(distag_value_get_entry(batch, "y"), &y, &err));
  CHECK_TEXT(distag_tensor_get_spec(x), "(None, 'x')");
  CHECK_TEXT(distag_tensor_get_spec(y), "(None,)");
  CHECK_OK(distag_tensor_to_local(x, NULL, &local, &err));
  int64_t column[kFedRows] = {0};
  CHECK_OK(distag_tensor_copy_data(local, column, sizeof column, &err));
  for (int64_t i = 0; i < kFedRows; ++i) CHECK_INT(column[i], 2 * i + rank);
  distag_tensor_release(local);
  distag_value_release(batch);
  distag_loader_release(loader);
  feed_await_destroyed(&feeds[rank]);
  distag_mesh_release(mesh);
}

/* ---- a host that runs its callbacks itself ---- */

static pthread_t polls;
static int ran_elsewhere;

static distag_status feed_here(void *user_data, uint64_t number, const int64_t *rows, size_t row_count,
                               distag_value **out_batch, distag_error *err) {
  ran_elsewhere |= !pthread_equal(polls, pthread_self());
  return feed_source(user_data, number, rows, row_count, out_batch, err);
}

static void destroy_here(void *user_data) {
  ran_elsewhere |= !pthread_equal(polls, pthread_self());
  feed_destroy(user_data);
}

static void host_executor(void) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_worker_options options = DISTAG_WORKER_OPTIONS_INIT;
  distag_worker *worker = NULL;
  distag_mesh *mesh = NULL;
  distag_loader *loader = NULL;
  distag_value *batch = NULL;
  const int64_t count = 1;
  feed data;
  feed_init(&data);
  data.batches = 3;
  polls = pthread_self();
  options.rank = 0;
  options.world_size = 1;
  options.rendezvous = "inproc://loader_host";
  options.executor = DISTAG_EXECUTOR_HOST;
  CHECK_OK(distag_worker_create(&options, &worker, &err));
  CHECK_OK(distag_worker_start(worker, 120 * DISTAG_SECOND, &err));
  CHECK_OK(distag_mesh_create(worker, NULL, 0, &count, kX, 1, NULL, &mesh, &err));
  CHECK_OK(distag_loader_create(mesh, feed_here, &data, destroy_here, NULL, &loader, &err));
  take(loader, 3);
  check_end_of_data(loader);
  distag_loader_release(loader);
  CHECK_OK(distag_loader_create(mesh, feed_here, &data, destroy_here, NULL, &loader, &err));
  distag_loader_release(loader); /* before a call of its source has run */
  CHECK_FAILS(distag_loader_next(NULL, 0, &batch, &err), DISTAG_E_INVALID_ARGUMENT, "loader");
  distag_mesh_release(mesh);
  CHECK_OK(distag_worker_shutdown(worker, 120 * DISTAG_SECOND, NULL, &err));
  CHECK_INT(data.destroyed, 2);
  CHECK(!ran_elsewhere);
  distag_worker_release(worker);
  feed_end(&data);
}

/* ---- the source itself calls its loader ---- */

static distag_loader *own;
static pthread_mutex_t own_mutex = PTHREAD_MUTEX_INITIALIZER;

static distag_status read_itself(void *user_data, uint64_t number, const int64_t *rows, size_t row_count,
                                 distag_value **out_batch, distag_error *err) {
  (void)user_data, (void)number, (void)rows, (void)row_count;
  pthread_mutex_lock(&own_mutex);
  distag_loader *loader = own;
  pthread_mutex_unlock(&own_mutex);
  distag_future *future = NULL;
  distag_error refusal = DISTAG_ERROR_INIT;
  CHECK_INT(distag_loader_next_async(loader, DISTAG_FOREVER, &future, &refusal), DISTAG_E_INVALID_STATE);
  CHECK(future == NULL);
  return distag_loader_next(loader, DISTAG_FOREVER, out_batch, err);
}

static void call_itself(members *group, int32_t rank) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_mesh *mesh = make_mesh(group, rank, 0);
  distag_value *batch = NULL;
  distag_loader *loader = NULL;
  if (rank == 0) pthread_mutex_lock(&own_mutex);
  CHECK_OK(distag_loader_create(mesh, rank == 0 ? read_itself : feed_source, &feeds[rank], feed_destroy, NULL, &loader,
                                &err));
  if (rank == 0) {
    own = loader;
    pthread_mutex_unlock(&own_mutex);
  }
  CHECK_FAILS(distag_loader_next(loader, DISTAG_FOREVER, &batch, &err), DISTAG_E_INVALID_STATE, "the source of this");
  distag_loader_release(loader);
  feed_await_destroyed(&feeds[rank]);
  distag_mesh_release(mesh);
}

/* ---- programs that differ: the same loader as another call ---- */

static void shift(members *group, int32_t rank) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_mesh *mesh = make_mesh(group, rank, 0);
  distag_tensor *x = NULL, *sum = NULL;
  distag_loader *loader = NULL;
  distag_value *batch = NULL;
  const float one = 1;
  CHECK_OK(distag_tensor_create(&one, sizeof one, DISTAG_FLOAT32, NULL, 0, &x, &err));
  CHECK_OK(distag_tensor_mark_sharding(x, mesh, "()", -1, &err));
  if (rank == 0) loader = make_loader(mesh, rank, DISTAG_BATCH_ROWS, 12);
  CHECK_OK(distag_add(x, x, &sum, &err)); /* sends nothing */
  if (rank == 1) loader = make_loader(mesh, rank, DISTAG_BATCH_ROWS, 12);
  CHECK_FAILS(distag_loader_next(loader, DISTAG_FOREVER, &batch, &err), DISTAG_E_DIVERGED, "loader_create");
  distag_loader_release(loader);
  feed_await_destroyed(&feeds[rank]);
  distag_tensor_release(sum);
  distag_tensor_release(x);
  distag_mesh_release(mesh);
}

/* ---- replicas that differ ---- */

static void differ(members *group, int32_t rank) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_mesh *mesh = make_mesh(group, rank, 1);
  distag_loader *loader = make_loader(mesh, rank, DISTAG_BATCH_GLOBAL, 0);
  distag_value *batch = NULL;
  CHECK_FAILS(distag_loader_next(loader, DISTAG_FOREVER, &batch, &err), DISTAG_E_DIVERGED, "other elements");
  CHECK_INT(err.origin_rank, 0); /* the first of both that differ */
  check_mesh(mesh);
  distag_loader_release(loader);
  feed_await_destroyed(&feeds[rank]);
  distag_mesh_release(mesh);
}

/* ---- arguments ---- */

typedef struct wrong {
  distag_loader_options options;
  const char *word;
  distag_status status;
} wrong;

static void refuse(distag_mesh *mesh, distag_loader_options options, distag_status status, const char *word) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_loader *loader = NULL;
  feed data;
  feed_init(&data);
  CHECK_FAILS(distag_loader_create(mesh, feed_source, &data, feed_destroy, &options, &loader, &err), status, word);
  CHECK(loader == NULL);
  CHECK_INT(data.destroyed, 1);
  feed_end(&data);
}

static void refuse_counts(distag_mesh *mesh) {
  const distag_loader_options none = DISTAG_LOADER_OPTIONS_INIT;
  const int64_t kWrong[][4] = {/* mode, row_count, batch_rows, epochs */
                               {DISTAG_BATCH_ROWS, -1, 4, 0},  {DISTAG_BATCH_ROWS, 10, 0, 0},
                               {DISTAG_BATCH_ROWS, 10, -1, 0}, {DISTAG_BATCH_ROWS, 10, INT64_C(1) << 62, 0},
                               {DISTAG_BATCH_ROWS, 10, 4, -2}, {DISTAG_BATCH_ROWS, INT64_C(1) << 62, 1, 4},
                               {DISTAG_BATCH_LOCAL, 10, 0, 0}, {0, 0, 4, 0},
                               {DISTAG_BATCH_ROOT, 0, 0, 1}};
  for (size_t i = 0; i < sizeof kWrong / sizeof *kWrong; ++i) {
    distag_loader_options options = none;
    options.mode = (uint32_t)kWrong[i][0];
    options.row_count = kWrong[i][1];
    options.batch_rows = kWrong[i][2];
    options.epochs = kWrong[i][3];
    refuse(mesh, options, DISTAG_E_INVALID_ARGUMENT, "");
  }
  distag_loader_options options = none;
  options.struct_size = 0;
  refuse(mesh, options, DISTAG_E_INVALID_ARGUMENT, "struct_size");
  options = none;
  options.mode = 5;
  refuse(mesh, options, DISTAG_E_UNSUPPORTED, "mode");
  options = none;
  options.shuffle = 2;
  refuse(mesh, options, DISTAG_E_INVALID_ARGUMENT, "shuffle");
  options = none;
  options.prefetch = UINT32_MAX;
  refuse(mesh, options, DISTAG_E_INVALID_ARGUMENT, "prefetch");
  options = none;
  options.spec_count = (size_t)1 << 62;
  refuse(mesh, options, DISTAG_E_INVALID_ARGUMENT, "spec_count");
}

static void refuse_specs(distag_mesh *mesh) {
  const distag_loader_options none = DISTAG_LOADER_OPTIONS_INIT;
  const char *const specs[] = {"('x', None)", "(None, 'x')"}, *const keys[] = {"a", "b"}, *const same[] = {"a", "a"};
  const char *const nulls[] = {NULL, "a"}, *const bad[] = {"('z', None)"}, *const sum[] = {"(None,) sum('x')"};
  distag_loader_options options = none;
  options.spec_count = 2;
  refuse(mesh, options, DISTAG_E_INVALID_ARGUMENT, "specs");
  options.specs = specs;
  refuse(mesh, options, DISTAG_E_INVALID_ARGUMENT, "keys");
  options.keys = nulls;
  refuse(mesh, options, DISTAG_E_INVALID_ARGUMENT, "NULL");
  options.keys = same;
  refuse(mesh, options, DISTAG_E_INVALID_ARGUMENT, "twice");
  options.keys = keys;
  options.mode = DISTAG_BATCH_ROWS;
  options.row_count = options.batch_rows = 8;
  refuse(mesh, options, DISTAG_E_INVALID_ARGUMENT, "different ways");
  options = none;
  options.spec_count = 1;
  options.specs = bad;
  refuse(mesh, options, DISTAG_E_INVALID_ARGUMENT, "no axis z");
  options.specs = sum;
  refuse(mesh, options, DISTAG_E_INVALID_ARGUMENT, "sum");
}

static void refuse_states(distag_mesh *mesh, int32_t rank) {
  distag_error err = DISTAG_ERROR_INIT;
  const distag_loader_options none = DISTAG_LOADER_OPTIONS_INIT;
  distag_loader *loader = make_loader(mesh, rank, DISTAG_BATCH_ROWS, 12);
  distag_value *state = NULL, *number = NULL;
  CHECK_OK(distag_loader_save(loader, &state, &err));
  distag_loader_options options = none;
  options.mode = DISTAG_BATCH_ROWS;
  options.row_count = 13;
  options.batch_rows = 4;
  options.state = state;
  refuse(mesh, options, DISTAG_E_INVALID_ARGUMENT, "row_count 12, and this one has 13");
  options.row_count = 12;
  options.seed = 3;
  refuse(mesh, options, DISTAG_E_INVALID_ARGUMENT, "seed");
  CHECK_OK(distag_value_create_int64(3, &number, &err));
  options.state = number;
  refuse(mesh, options, DISTAG_E_INVALID_ARGUMENT, "no state of a loader");
  options.state = (distag_value *)loader;
  refuse(mesh, options, DISTAG_E_INVALID_ARGUMENT, "state");
  distag_value_release(number);
  distag_value_release(state);
  distag_loader_release(loader);
  feed_await_destroyed(&feeds[rank]);
}

/* A loader at its end goes on where another one has more epochs. */
static void grow(members *group, int32_t rank) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_mesh *mesh = make_mesh(group, rank, 0);
  distag_loader *loader = make_loader(mesh, rank, DISTAG_BATCH_ROWS, 10), *more = NULL;
  distag_loader_options options = DISTAG_LOADER_OPTIONS_INIT;
  distag_loader_info info = DISTAG_LOADER_INFO_INIT;
  distag_value *state = NULL;
  take(loader, 3);
  check_end_of_data(loader);
  CHECK_OK(distag_loader_save(loader, &options.state, &err));
  distag_loader_release(loader);
  feed_await_destroyed(&feeds[rank]);
  feeds[rank].destroyed = 0;
  options.mode = DISTAG_BATCH_ROWS;
  options.row_count = 10;
  options.batch_rows = 4;
  options.epochs = 3;
  CHECK_OK(distag_loader_create(mesh, feed_source, &feeds[rank], feed_destroy, &options, &more, &err));
  take(more, 6);
  check_end_of_data(more);
  CHECK_OK(distag_loader_get_info(more, &info, &err));
  CHECK_INT(info.count, 9);
  distag_value_release(options.state);
  CHECK_OK(distag_loader_save(more, &state, &err));
  distag_loader_release(more);
  feed_await_destroyed(&feeds[rank]);
  options.state = state;
  options.epochs = 2;
  refuse(mesh, options, DISTAG_E_INVALID_ARGUMENT, "epochs 3, and this one has 2");
  distag_value_release(state);
  distag_mesh_release(mesh);
}

/* Parts that are the boxes of no tensor. */
static void odd_parts(members *group, int32_t rank) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_mesh *mesh = make_mesh(group, rank, 0);
  distag_loader *loader = make_loader(mesh, rank, DISTAG_BATCH_LOCAL, 0);
  distag_value *batch = NULL;
  CHECK_FAILS(distag_loader_next(loader, DISTAG_FOREVER, &batch, &err), DISTAG_E_INVALID_ARGUMENT,
              "rank 0 has [1, 2], rank 1 has [3, 2]");
  distag_loader_release(loader);
  feed_await_destroyed(&feeds[rank]);
  distag_mesh_release(mesh);
}

static void refuse_handles(distag_mesh *mesh) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_loader *loader = NULL;
  distag_mesh *alone = NULL;
  distag_value *batch = NULL;
  distag_future *future = NULL;
  distag_loader_info info = DISTAG_LOADER_INFO_INIT;
  feed data;
  feed_init(&data);
  CHECK_FAILS(distag_loader_create(NULL, feed_source, &data, feed_destroy, NULL, &loader, &err),
              DISTAG_E_INVALID_ARGUMENT, "mesh");
  CHECK_FAILS(distag_loader_create(mesh, NULL, &data, feed_destroy, NULL, &loader, &err), DISTAG_E_INVALID_ARGUMENT,
              "source");
  CHECK_FAILS(distag_loader_create(mesh, feed_source, &data, feed_destroy, NULL, NULL, &err), DISTAG_E_INVALID_ARGUMENT,
              "out_loader");
  CHECK_OK(distag_mesh_create(NULL, NULL, 2, &kCount, kX, 1, NULL, &alone, &err));
  CHECK_FAILS(distag_loader_create(alone, feed_source, &data, feed_destroy, NULL, &loader, &err),
              DISTAG_E_INVALID_ARGUMENT, "without a worker");
  CHECK_INT(data.destroyed, 4);
  distag_mesh_release(alone);
  distag_loader *const no_loader = (distag_loader *)mesh;
  CHECK_FAILS(distag_loader_next(NULL, 0, &batch, &err), DISTAG_E_INVALID_ARGUMENT, "loader");
  CHECK_FAILS(distag_loader_next(no_loader, 0, &batch, &err), DISTAG_E_INVALID_ARGUMENT, "mesh handle");
  CHECK_FAILS(distag_loader_next_async(NULL, 0, &future, &err), DISTAG_E_INVALID_ARGUMENT, "loader");
  CHECK_FAILS(distag_loader_next_async(no_loader, 0, &future, &err), DISTAG_E_INVALID_ARGUMENT, "loader");
  CHECK_FAILS(distag_loader_save(NULL, &batch, &err), DISTAG_E_INVALID_ARGUMENT, "loader");
  CHECK_FAILS(distag_loader_save(no_loader, &batch, &err), DISTAG_E_INVALID_ARGUMENT, "loader");
  CHECK_FAILS(distag_loader_get_info(NULL, &info, &err), DISTAG_E_INVALID_ARGUMENT, "loader");
  distag_loader_retain(NULL);
  distag_loader_release(NULL);
  feed_end(&data);
}

static void refuse_all(members *group, int32_t rank) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_mesh *mesh = make_mesh(group, rank, 0);
  refuse_counts(mesh);
  refuse_specs(mesh);
  refuse_states(mesh, rank);
  refuse_handles(mesh);
  check_mesh(mesh);
  feeds[rank].destroyed = 0;
  distag_loader *loader = make_loader(mesh, rank, DISTAG_BATCH_ROWS, 12);
  distag_loader_info info = DISTAG_LOADER_INFO_INIT;
  distag_value *batch = NULL;
  distag_future *future = NULL;
  CHECK_FAILS(distag_loader_next(loader, -5, &batch, &err), DISTAG_E_INVALID_ARGUMENT, "timeout_ns");
  CHECK_FAILS(distag_loader_next(loader, 0, NULL, &err), DISTAG_E_INVALID_ARGUMENT, "out_batch");
  CHECK_FAILS(distag_loader_next_async(loader, -2, &future, &err), DISTAG_E_INVALID_ARGUMENT, "timeout_ns");
  CHECK_FAILS(distag_loader_next_async(loader, 0, NULL, &err), DISTAG_E_INVALID_ARGUMENT, "out_future");
  CHECK_FAILS(distag_loader_save(loader, NULL, &err), DISTAG_E_INVALID_ARGUMENT, "out_state");
  CHECK_FAILS(distag_loader_get_info(loader, NULL, &err), DISTAG_E_INVALID_ARGUMENT, "is NULL");
  info.struct_size = 0;
  CHECK_FAILS(distag_loader_get_info(loader, &info, &err), DISTAG_E_INVALID_ARGUMENT, "struct_size");
  take(loader, 3);
  distag_loader_release(loader);
  feed_await_destroyed(&feeds[rank]);
  distag_mesh_release(mesh);
}

int main(void) {
  members group;
  if (members_start(&group, kTwo, "loader_failures") != 0) return 1;
  failures(&group);
  feeds_init();
  feeds[0].batches = 3;
  members_run(&group, kTwo, end_early);
  feeds_end();
  run_blocked(&group, 1, late);
  run_blocked(&group, 1, release_while_blocked);
  feeds_init();
  members_run(&group, kTwo, release_at_the_root);
  for (int i = 0; i < kTwo; ++i) feed_end(&feeds[i]);
  feeds_init();
  members_run(&group, kTwo, release_without_loader);
  for (int i = 0; i < kTwo; ++i) feed_end(&feeds[i]);
  run_blocked(&group, 0, end_mesh_while_blocked);
  run_blocked(&group, -1, call_itself);
  feeds_init();
  members_run(&group, kTwo, shift);
  feeds_end();
  feeds_init();
  feeds[1].first = 1;
  feeds[1].count = kFedRows;
  members_run(&group, kTwo, differ);
  feeds_end();
  run_blocked(&group, -1, refuse_all);
  run_blocked(&group, -1, misfits);
  run_blocked(&group, -1, grow);
  feeds_init();
  feeds[0].count = 1;
  feeds[1].first = 1;
  feeds[1].count = 3;
  members_run(&group, kTwo, odd_parts);
  feeds_end();
  CHECK_INT(members_end(&group), 0);
  shut_down_while_blocked();
  host_executor();
  fork_beside();
  one_thread();
  outlive_worker();
  return check_end();
}
