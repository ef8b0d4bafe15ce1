/* Checkpoints beside the program: they hold the values at the call and run one after the other, a shutdown waits for
 * them, and failures go to the log if no future is left. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "capi/check.h"
#include "capi/support/group.h"
#include "capi/support/members.h"

enum { kTwo = 2, kRows = 6, kLarge = 1 << 20 };

static char folder[64];
static pthread_mutex_t log_mutex = PTHREAD_MUTEX_INITIALIZER;
static int lost_saves;

static void note_log(void *user_data, int32_t level, const char *text) {
  (void)user_data;
  pthread_mutex_lock(&log_mutex);
  if (level == DISTAG_LOG_ERROR && strstr(text, "checkpoint_save") != NULL && strstr(text, "no/parent") != NULL)
    ++lost_saves;
  pthread_mutex_unlock(&log_mutex);
}

static int start(members *group, const char *rendezvous) {
  distag_error err = DISTAG_ERROR_INIT;
  group->count = kTwo;
  for (int32_t i = 0; i < kTwo; ++i) {
    distag_worker_options options = group_options(i, kTwo, rendezvous);
    options.on_log = note_log;
    options.log_level = DISTAG_LOG_ERROR;
    if (!CHECK_OK(distag_worker_create(&options, &group->workers[i], &err))) return 1;
  }
  return group_start(group->workers, kTwo);
}

static distag_mesh *make_mesh(members *group, int32_t rank) {
  static const char *const kX[] = {"x"};
  static const int64_t kCount = kTwo;
  distag_error err = DISTAG_ERROR_INIT;
  distag_mesh *mesh = NULL;
  CHECK_OK(distag_mesh_create(group->workers[rank], NULL, 0, &kCount, kX, 1, NULL, &mesh, &err));
  return mesh;
}

static distag_tensor *full(distag_mesh *mesh, double number, int64_t rows) {
  const int64_t shape[] = {rows, 2};
  distag_error err = DISTAG_ERROR_INIT;
  distag_tensor *made = NULL;
  CHECK_OK(distag_full(number, DISTAG_FLOAT64, shape, 2, &made, &err));
  if (mesh != NULL) CHECK_OK(distag_tensor_mark_sharding(made, mesh, "('x', None)", -1, &err));
  return made;
}

/* Sets every element of a sharded tensor. */
static void fill(distag_tensor *sharded, double number, int64_t rows) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_tensor *part = full(NULL, number, rows / kTwo);
  CHECK_OK(distag_tensor_assign(sharded, part, &err));
  distag_tensor_release(part);
}

static distag_value *map_of(distag_tensor *w, distag_tensor *plain, int64_t step) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_value *number = NULL, *map = NULL;
  CHECK_OK(distag_value_create_int64(step, &number, &err));
  const char *const keys[] = {"plain", "step", "w"};
  distag_value *const items[] = {distag_tensor_as_value(plain), number, distag_tensor_as_value(w)};
  CHECK_OK(distag_value_create_map(keys, items, 3, &map, &err));
  distag_value_release(number);
  return map;
}

static const char *path_of(const char *name, char *path, size_t size) {
  snprintf(path, size, "%s/%s", folder, name);
  return path;
}

static void check_saved(const char *name, double number, int64_t step) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_value *loaded = NULL;
  char path[128];
  int64_t found_step = 0;
  CHECK_OK(distag_checkpoint_load(NULL, path_of(name, path, sizeof path), NULL, 0, &loaded, &err));
  CHECK_OK(distag_value_get_int64(distag_value_get_entry(loaded, "step"), &found_step, &err));
  CHECK_INT(found_step, step);
  static const char *const kKeys[] = {"w", "plain"};
  for (int i = 0; i < 2; ++i) {
    distag_tensor *tensor = NULL;
    double found[2 * kRows] = {0};
    CHECK_OK(distag_value_get_tensor(distag_value_get_entry(loaded, kKeys[i]), &tensor, &err));
    CHECK_OK(distag_tensor_copy_data(tensor, found, sizeof found, &err));
    for (int k = 0; k < 2 * kRows; ++k) CHECK_NEAR(found[k], number);
  }
  distag_value_release(loaded);
}

static distag_future *save(distag_mesh *mesh, const char *name, distag_tensor *w, distag_tensor *plain, int64_t step) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_future *future = NULL;
  distag_value *map = map_of(w, plain, step);
  char path[128];
  CHECK_OK(distag_checkpoint_save_async(mesh, path_of(name, path, sizeof path), map, 0, &future, &err));
  distag_value_release(map);
  return future;
}

static void finish(distag_future *future) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_value *value = NULL;
  CHECK_OK(distag_future_wait(future, 120 * DISTAG_SECOND, &err));
  CHECK_OK(distag_future_get_value(future, &value, &err));
  CHECK_INT(distag_value_get_kind(value), DISTAG_VALUE_NULL);
  distag_future_release(future);
}

/* Writes after the call do not show in a save. The save does not wait for the program, nor the program for the save. */
static void values_of_the_call(members *group, int32_t rank) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_mesh *mesh = make_mesh(group, rank);
  distag_tensor *w = full(mesh, 1, kRows), *plain = full(NULL, 1, kRows), *other = full(NULL, 2, kRows), *sum = NULL;
  distag_future *first = save(mesh, "a", w, plain, 1);
  distag_future_cancel(first);
  fill(w, 2, kRows);
  CHECK_OK(distag_tensor_assign(plain, other, &err));
  distag_future *second = save(mesh, "b", w, plain, 2);
  for (int i = 0; i < 5; ++i) {
    CHECK_OK(distag_collective(mesh, DISTAG_ALL_REDUCE, NULL, other, NULL, &sum, &err));
    distag_tensor_release(sum);
  }
  fill(w, 3, kRows);
  finish(first);
  finish(second);
  check_saved("a", 1, 1);
  check_saved("b", 2, 2);
  distag_tensor_release(other);
  distag_tensor_release(plain);
  distag_tensor_release(w);
  distag_mesh_release(mesh);
}

/* The last save that is begun is the one that stays; a load and a blocking save come after the others. */
static void one_after_the_other(members *group, int32_t rank) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_mesh *mesh = make_mesh(group, rank);
  distag_tensor *w = full(mesh, 0, kRows), *plain = full(NULL, 9, kRows);
  distag_future *saves[8], *loading = NULL;
  distag_value *loaded = NULL, *map = NULL;
  char path[128];
  for (int i = 0; i < 8; ++i) {
    fill(w, i, kRows);
    saves[i] = save(mesh, "c", w, w, i);
  }
  fill(w, 50, kRows);
  map = map_of(w, w, 0);
  CHECK_OK(distag_checkpoint_load_async(mesh, path_of("c", path, sizeof path), map, 0, &loading, &err));
  CHECK_OK(distag_future_wait(loading, 120 * DISTAG_SECOND, &err));
  CHECK_OK(distag_future_get_value(loading, &loaded, &err));
  int64_t step = 0;
  CHECK_OK(distag_value_get_int64(distag_value_get_entry(loaded, "step"), &step, &err));
  CHECK_INT(step, 7);
  distag_tensor *whole = NULL;
  double found[2 * kRows] = {0};
  CHECK_OK(distag_tensor_gather(w, -1, DISTAG_FOREVER, &whole, &err));
  CHECK_OK(distag_tensor_copy_data(whole, found, sizeof found, &err));
  for (int k = 0; k < 2 * kRows; ++k) CHECK_NEAR(found[k], 7);
  distag_tensor_release(whole);
  distag_value_release(map);
  for (int i = 0; i < 8; ++i) finish(saves[i]);
  saves[0] = save(mesh, "c", plain, plain, 20);
  map = map_of(plain, plain, 21);
  CHECK_OK(distag_checkpoint_save(mesh, path, map, 0, &err));
  CHECK_INT(distag_future_poll(saves[0]), 1);
  finish(saves[0]);
  check_saved("c", 9, 21);
  distag_value_release(map);
  distag_future_release(loading);
  distag_tensor_release(plain);
  distag_tensor_release(w);
  distag_mesh_release(mesh);
}

/* Parts of a sum are added up before they are written. */
static void partial(members *group, int32_t rank) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_mesh *mesh = make_mesh(group, rank);
  distag_tensor *part = full(NULL, 1 + rank, kRows), *sum = NULL;
  CHECK_OK(distag_tensor_from_local(mesh, part, "(None, None) sum('x')", NULL, 0, NULL, &sum, &err));
  finish(save(mesh, "d", sum, sum, 4));
  check_saved("d", 3, 4);
  distag_value *map = map_of(sum, sum, 5);
  char path[128];
  CHECK_OK(distag_checkpoint_save(mesh, path_of("d", path, sizeof path), map, 0, &err));
  check_saved("d", 3, 5);
  distag_value_release(map);
  distag_tensor_release(sum);
  distag_tensor_release(part);
  distag_mesh_release(mesh);
}

static void failures(members *group, int32_t rank) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_mesh *mesh = make_mesh(group, rank), *other = make_mesh(group, rank);
  distag_tensor *w = full(mesh, 1, kRows), *foreign = full(other, 1, kRows);
  distag_value *map = map_of(w, w, 1), *wrong = map_of(foreign, foreign, 1);
  distag_future *future = NULL;
  char path[128];
  CHECK_OK(distag_checkpoint_save_async(mesh, path_of("no/parent", path, sizeof path), map, 0, &future, &err));
  CHECK_FAILS(distag_future_wait(future, 120 * DISTAG_SECOND, &err), DISTAG_E_INVALID_STATE, "no/parent");
  CHECK_INT(err.origin_rank, 0);
  distag_future_release(future);
  CHECK_OK(distag_checkpoint_load_async(mesh, path, NULL, 0, &future, &err));
  CHECK_FAILS(distag_future_wait(future, 120 * DISTAG_SECOND, &err), DISTAG_E_NOT_FOUND, "no/parent");
  distag_future_release(future);
  future = NULL;
  CHECK_FAILS(distag_checkpoint_save_async(mesh, folder, wrong, 0, &future, &err), DISTAG_E_INVALID_ARGUMENT,
              "another mesh");
  CHECK_FAILS(distag_checkpoint_load_async(mesh, folder, wrong, 0, &future, &err), DISTAG_E_INVALID_ARGUMENT,
              "another mesh");
  CHECK_FAILS(distag_checkpoint_save_async(mesh, "", map, 0, &future, &err), DISTAG_E_INVALID_ARGUMENT, "empty");
  CHECK_FAILS(distag_checkpoint_save_async(mesh, NULL, map, 0, &future, &err), DISTAG_E_INVALID_ARGUMENT, "directory");
  CHECK_FAILS(distag_checkpoint_save_async(NULL, folder, map, 0, &future, &err), DISTAG_E_INVALID_ARGUMENT, "mesh");
  CHECK_FAILS(distag_checkpoint_save_async((distag_mesh *)map, folder, map, 0, &future, &err),
              DISTAG_E_INVALID_ARGUMENT, "mesh");
  CHECK_FAILS(distag_checkpoint_save_async(mesh, folder, NULL, 0, &future, &err), DISTAG_E_INVALID_ARGUMENT, "value");
  CHECK_FAILS(distag_checkpoint_save_async(mesh, folder, map, -5, &future, &err), DISTAG_E_INVALID_ARGUMENT,
              "timeout_ns");
  CHECK_FAILS(distag_checkpoint_save_async(mesh, folder, map, 0, NULL, &err), DISTAG_E_INVALID_ARGUMENT, "out_future");
  CHECK_FAILS(distag_checkpoint_load_async(mesh, NULL, NULL, 0, &future, &err), DISTAG_E_INVALID_ARGUMENT, "directory");
  CHECK_FAILS(distag_checkpoint_load_async(mesh, folder, NULL, 0, NULL, &err), DISTAG_E_INVALID_ARGUMENT, "out_future");
  CHECK_FAILS(distag_checkpoint_load_async(NULL, folder, NULL, 0, &future, &err), DISTAG_E_UNSUPPORTED, "mesh");
  CHECK(future == NULL);
  /* Futures of failed saves are released early, or are never waited for: then the log has the failures. */
  CHECK_OK(distag_checkpoint_save_async(mesh, path, map, 0, &future, &err));
  distag_future_release(future);
  CHECK_OK(distag_checkpoint_save_async(mesh, path, map, 0, &future, &err));
  finish(save(mesh, "e", w, w, 6)); /* this save comes after it */
  CHECK_INT(distag_future_poll(future), 1);
  distag_future_release(future);
  check_saved("e", 1, 6);
  distag_value_release(wrong);
  distag_value_release(map);
  distag_tensor_release(foreign);
  distag_tensor_release(w);
  distag_mesh_release(other);
  distag_mesh_release(mesh);
}

/* Rank 0 saves in its program and rank 1 beside it: they would wait for each other. */
static void not_alike(members *group, int32_t rank) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_mesh *mesh = make_mesh(group, rank);
  distag_tensor *w = full(mesh, 1, kRows);
  distag_value *map = map_of(w, w, 1);
  distag_future *future = NULL;
  char path[128];
  path_of("g", path, sizeof path);
  if (rank == 0) {
    CHECK_FAILS(distag_checkpoint_save(mesh, path, map, DISTAG_FOREVER, &err), DISTAG_E_DIVERGED, "checkpoint_save");
  } else {
    CHECK_OK(distag_checkpoint_save_async(mesh, path, map, DISTAG_FOREVER, &future, &err));
    CHECK_FAILS(distag_future_wait(future, 120 * DISTAG_SECOND, &err), DISTAG_E_DIVERGED, "checkpoint_save_async");
  }
  distag_future_release(future);
  distag_value_release(map);
  distag_tensor_release(w);
  distag_mesh_release(mesh);
}

static void check_differ(distag_mesh *mesh, const char *name, distag_value *value, const char *part) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_future *future = NULL;
  char path[128];
  CHECK_OK(distag_checkpoint_save_async(mesh, path_of(name, path, sizeof path), value, 0, &future, &err));
  CHECK_FAILS(distag_future_wait(future, 120 * DISTAG_SECOND, &err), DISTAG_E_DIVERGED, part);
  distag_future_release(future);
  future = NULL;
  CHECK_FAILS(distag_checkpoint_save_async(mesh, path, value, 0, &future, &err), DISTAG_E_DIVERGED, "");
  CHECK(future == NULL);
  CHECK(access(path, F_OK) != 0);
}

/* The save that waits fails the same way, and nothing is made: an entry, a shape, copies of a mesh that checks them. */
static void values_that_differ(members *group, int32_t rank) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_mesh *mesh = make_mesh(group, rank);
  distag_tensor *w = full(mesh, 1, kRows);
  distag_value *map = map_of(w, w, 7 + rank);
  check_differ(mesh, "h", map, "rank 0 has \"step\" = 7, rank 1 has \"step\" = 8");
  distag_value_release(map);
  distag_tensor_release(w);
  distag_mesh_release(mesh);

  mesh = make_mesh(group, rank);
  w = full(mesh, 1, kRows);
  distag_tensor *plain = full(NULL, 1, kRows + rank);
  map = map_of(w, plain, 1);
  check_differ(mesh, "i", map,
               "rank 0 has \"plain\" = float64[6, 2] (None, None), rank 1 has \"plain\" = float64[7, 2]");
  distag_value_release(map);
  distag_tensor_release(plain);
  distag_tensor_release(w);
  distag_mesh_release(mesh);

  static const char *const kX[] = {"x"};
  static const int64_t kCount = kTwo;
  distag_mesh_options options = DISTAG_MESH_OPTIONS_INIT;
  options.check_replicas = 1;
  CHECK_OK(distag_mesh_create(group->workers[rank], NULL, 0, &kCount, kX, 1, &options, &mesh, &err));
  w = full(mesh, 1, kRows);
  plain = full(NULL, 1 + rank, kRows);
  map = map_of(w, plain, 1);
  check_differ(mesh, "j", map, "\"plain\" = float64[6, 2] (None, None) with plain elements of hash");
  distag_value_release(map);
  distag_tensor_release(plain);
  distag_tensor_release(w);
  distag_mesh_release(mesh);
}

static distag_future *begin_other_folder(distag_mesh *mesh, int32_t rank, distag_value *map, int is_load) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_future *future = NULL;
  char path[128];
  path_of(rank == 0 ? "a" : "b", path, sizeof path);
  if (is_load) {
    CHECK_OK(distag_checkpoint_load_async(mesh, path, map, 0, &future, &err));
  } else {
    CHECK_OK(distag_checkpoint_save_async(mesh, path, map, 0, &future, &err));
  }
  return future;
}

static void folders_that_differ(members *group, int32_t rank) {
  for (int is_load = 0; is_load < 2; ++is_load) {
    distag_error err = DISTAG_ERROR_INIT;
    distag_mesh *mesh = make_mesh(group, rank);
    distag_tensor *w = full(mesh, 1, kRows);
    distag_value *map = map_of(w, w, 1);
    distag_future *future = begin_other_folder(mesh, rank, map, is_load);
    CHECK_FAILS(distag_future_wait(future, 120 * DISTAG_SECOND, &err), DISTAG_E_DIVERGED, "/b\")");
    distag_future_release(future);
    distag_value_release(map);
    distag_tensor_release(w);
    distag_mesh_release(mesh);
  }
}

/* Only the end of its worker waits for this save. */
static void left_to_the_shutdown(members *group, int32_t rank) {
  distag_mesh *mesh = make_mesh(group, rank);
  distag_tensor *w = full(mesh, 5, kLarge), *plain = full(NULL, 5, kRows);
  distag_future_release(save(mesh, "f", w, plain, 8));
  distag_tensor_release(plain);
  distag_tensor_release(w);
  distag_mesh_release(mesh);
}

int main(void) {
  members group = {0};
  snprintf(folder, sizeof folder, "/tmp/distag-checkpoint-XXXXXX");
  if (!CHECK(mkdtemp(folder) != NULL)) return 1;
  if (!CHECK(start(&group, "inproc://checkpoints_async") == 0)) return 1;
  members_run(&group, kTwo, values_of_the_call);
  members_run(&group, kTwo, one_after_the_other);
  members_run(&group, kTwo, partial);
  members_run(&group, kTwo, failures);
  members_run(&group, kTwo, not_alike);
  members_run(&group, kTwo, values_that_differ);
  members_run(&group, kTwo, folders_that_differ);
  members_run(&group, kTwo, left_to_the_shutdown);
  CHECK(members_end(&group) == 0);
  CHECK_INT(lost_saves, 2 * kTwo);
  distag_error err = DISTAG_ERROR_INIT;
  distag_value *loaded = NULL;
  distag_tensor *w = NULL;
  char path[128], command[256];
  CHECK_OK(distag_checkpoint_load(NULL, path_of("f", path, sizeof path), NULL, 0, &loaded, &err));
  CHECK_OK(distag_value_get_tensor(distag_value_get_entry(loaded, "w"), &w, &err));
  CHECK_INT(distag_tensor_get_count(w), 2 * kLarge);
  distag_value_release(loaded);
  snprintf(command, sizeof command, "test $(ls %s/c | wc -l) = 3 && rm -r %s", folder, folder); /* no leftover */
  CHECK(system(command) == 0);
  return check_end();
}
