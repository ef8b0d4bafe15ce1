/* Checkpoints and the disk: a slow disk is waited for, a new folder is synced to it, and long paths leave room for the
 * reason of a failure. */
#define _GNU_SOURCE
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "capi/check.h"
#include "capi/support/members.h"

enum { kTwo = 2, kSeconds = 4, kRows = 3 };

static char folder[64];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int syncs_of_folder;

/* The library calls this fsync: it notes the folder of this test, and then syncs. */
__attribute__((visibility("default"))) int fsync(int descriptor) {
  char link[32], path[PATH_MAX];
  snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
  const ssize_t size = readlink(link, path, sizeof path - 1);
  pthread_mutex_lock(&mutex);
  if (size > 0 && (size_t)size == strlen(folder) && strncmp(path, folder, (size_t)size) == 0) ++syncs_of_folder;
  pthread_mutex_unlock(&mutex);
  return (int)syscall(SYS_fsync, descriptor);
}

static distag_mesh *make_mesh(members *group, int32_t rank) {
  static const char *const kX[] = {"x"};
  static const int64_t kCount = kTwo;
  distag_error err = DISTAG_ERROR_INIT;
  distag_mesh_options options = DISTAG_MESH_OPTIONS_INIT;
  distag_mesh *mesh = NULL;
  options.timeout_ns = kSeconds * DISTAG_SECOND / 2;
  CHECK_OK(distag_mesh_create(group->workers[rank], NULL, 0, &kCount, kX, 1, &options, &mesh, &err));
  return mesh;
}

/* Elements that take longer to come than the mesh waits for a member. */
static distag_status come_late(void *user_data, const int64_t *offset, const int64_t *extent, size_t ndim, void *buffer,
                               size_t size, distag_error *err) {
  (void)user_data, (void)offset, (void)extent, (void)ndim, (void)err;
  static pthread_mutex_t never_mutex = PTHREAD_MUTEX_INITIALIZER;
  static pthread_cond_t never = PTHREAD_COND_INITIALIZER;
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += kSeconds;
  pthread_mutex_lock(&never_mutex);
  while (pthread_cond_timedwait(&never, &never_mutex, &until) == 0) continue;
  pthread_mutex_unlock(&never_mutex);
  memset(buffer, 0, size);
  return DISTAG_OK;
}

static distag_value *late_map(void) {
  static const char *const kKeys[] = {"w"};
  static const int64_t kShape[] = {kRows};
  distag_error err = DISTAG_ERROR_INIT;
  distag_deferred_options options = DISTAG_DEFERRED_OPTIONS_INIT;
  distag_tensor *late = NULL;
  distag_value *map = NULL;
  options.init = DISTAG_INIT_SOURCE;
  options.source = come_late;
  CHECK_OK(distag_tensor_create_deferred(DISTAG_FLOAT32, kShape, 1, &options, &late, &err));
  distag_value *const items[] = {distag_tensor_as_value(late)};
  CHECK_OK(distag_value_create_map(kKeys, items, 1, &map, &err));
  distag_tensor_release(late);
  return map;
}

/* The member that writes is late: the other one waits, unless the call says how long. */
static void slow_writes(members *group, int32_t rank) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_mesh *mesh = make_mesh(group, rank);
  distag_value *map = late_map();
  char path[128];
  snprintf(path, sizeof path, "%s/slow", folder);
  CHECK_OK(distag_checkpoint_save(mesh, path, map, 0, &err));
  distag_value_release(map);

  static const int64_t kShape[] = {kRows};
  static const char *const kKeys[] = {"w"};
  distag_tensor *quick = NULL;
  if (rank == 0) {
    map = late_map();
  } else {
    CHECK_OK(distag_zeros(DISTAG_FLOAT32, kShape, 1, &quick, &err));
    distag_value *const items[] = {distag_tensor_as_value(quick)};
    CHECK_OK(distag_value_create_map(kKeys, items, 1, &map, &err));
  }
  CHECK_OK(distag_checkpoint_load(mesh, path, map, 0, NULL, &err)); /* rank 0 makes room for its elements */
  distag_value_release(map);
  distag_tensor_release(quick);

  map = late_map();
  CHECK_FAILS(distag_checkpoint_save(mesh, path, map, DISTAG_SECOND, &err), DISTAG_E_DEADLINE, "checkpoint_save");
  distag_value_release(map);
  distag_mesh_release(mesh);
}

static void new_folder(members *group, int32_t rank) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_mesh *mesh = make_mesh(group, rank);
  distag_value *map = NULL;
  char path[128];
  CHECK_OK(distag_value_create_map(NULL, NULL, 0, &map, &err));
  snprintf(path, sizeof path, "%s/new/", folder);
  CHECK_OK(distag_checkpoint_save(mesh, path, map, 120 * DISTAG_SECOND, &err));
  pthread_mutex_lock(&mutex);
  const int first = syncs_of_folder;
  pthread_mutex_unlock(&mutex);
  CHECK(first > 0);
  CHECK_OK(distag_checkpoint_save(mesh, path, map, 120 * DISTAG_SECOND, &err)); /* which is there now */
  pthread_mutex_lock(&mutex);
  CHECK_INT(syncs_of_folder, first);
  pthread_mutex_unlock(&mutex);
  distag_value_release(map);
  distag_mesh_release(mesh);
}

static void long_paths(members *group, int32_t rank) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_mesh *mesh = make_mesh(group, rank);
  distag_value *map = NULL;
  char path[1024];
  CHECK_OK(distag_value_create_map(NULL, NULL, 0, &map, &err));
  size_t size = (size_t)snprintf(path, sizeof path, "%s", folder);
  for (int i = 0; i < 4; ++i) size += (size_t)snprintf(path + size, sizeof path - size, "/%0200d", i);
  CHECK_FAILS(distag_checkpoint_save(mesh, path, map, 120 * DISTAG_SECOND, &err), DISTAG_E_INVALID_STATE,
              "cannot be made: No such file or directory");
  CHECK(strstr(err.message, folder) != NULL);
  CHECK_INT(err.origin_rank, 0);
  CHECK_FAILS(distag_checkpoint_load(mesh, path, NULL, 120 * DISTAG_SECOND, NULL, &err), DISTAG_E_NOT_FOUND,
              "is not there");
  CHECK_FAILS(distag_checkpoint_load(NULL, path, NULL, 0, NULL, &err), DISTAG_E_NOT_FOUND, "is not there");
  distag_value_release(map);
  distag_mesh_release(mesh);
}

/* A safetensors file with one int64. */
static void write_file(const char *path, int64_t number, const char *name) {
  char header[128];
  const uint64_t size = (uint64_t)snprintf(header, sizeof header,
                                           "{\"%s\":{\"dtype\":\"I64\",\"shape\":[1],\"data_offsets\":[0,8]}}", name);
  FILE *file = fopen(path, "w");
  if (!CHECK(file != NULL)) return;
  CHECK(fwrite(&size, 8, 1, file) == 1 && fwrite(header, size, 1, file) == 1 && fwrite(&number, 8, 1, file) == 1);
  CHECK(fclose(file) == 0);
}

static distag_status read_number(distag_value *map, const char *name, int64_t *out, distag_error *out_err) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_tensor *tensor = NULL;
  CHECK_OK(distag_value_get_tensor(distag_value_get_entry(map, name), &tensor, &err));
  return distag_tensor_copy_data(tensor, out, sizeof *out, out_err);
}

/* More files than stay open: a closed file is opened again, unless another file has taken its place. */
static void many_files(void) {
  enum { kFiles = 300 };
  distag_error err = DISTAG_ERROR_INIT;
  distag_value *loaded = NULL;
  char place[96], path[256], other[256], name[16];
  int64_t number = -1;
  snprintf(place, sizeof place, "%s/many", folder);
  snprintf(path, sizeof path, "mkdir %s", place);
  CHECK(system(path) == 0);
  snprintf(path, sizeof path, "%s/model.safetensors.index.json", place);
  FILE *map = fopen(path, "w");
  if (!CHECK(map != NULL)) return;
  fprintf(map, "{\"weight_map\":{");
  for (int i = 0; i < kFiles; ++i) {
    snprintf(name, sizeof name, "t%03d", i);
    fprintf(map, "%s\"%s\":\"%s.safetensors\"", i == 0 ? "" : ",", name, name);
    snprintf(path, sizeof path, "%s/%s.safetensors", place, name);
    write_file(path, i, name);
  }
  fprintf(map, "}}");
  fclose(map);
  CHECK_OK(distag_checkpoint_load(NULL, place, NULL, 0, &loaded, &err));
  snprintf(path, sizeof path, "%s/t000.safetensors", place);
  snprintf(other, sizeof other, "%s/other", place);
  write_file(other, 7, "t000");
  CHECK(rename(other, path) == 0);
  CHECK_FAILS(read_number(loaded, "t000", &number, &err), DISTAG_E_NOT_FOUND, "no longer what it was");
  static const int kRead[] = {1, 2, 299, 3, 150};
  for (size_t i = 0; i < sizeof kRead / sizeof *kRead; ++i) {
    snprintf(name, sizeof name, "t%03d", kRead[i]);
    CHECK_OK(read_number(loaded, name, &number, &err));
    CHECK_INT(number, kRead[i]);
  }
  distag_value_release(loaded);
}

int main(void) {
  members group = {0};
  char command[96];
  snprintf(folder, sizeof folder, "/tmp/distag-checkpoint-XXXXXX");
  if (!CHECK(mkdtemp(folder) != NULL)) return 1;
  many_files();
  if (!CHECK(members_start(&group, kTwo, "checkpoints_files") == 0)) return 1;
  members_run(&group, kTwo, new_folder);
  members_run(&group, kTwo, long_paths);
  members_run(&group, kTwo, slow_writes);
  CHECK(members_end(&group) == 0);
  snprintf(command, sizeof command, "rm -r %s", folder);
  CHECK(system(command) == 0);
  return check_end();
}
