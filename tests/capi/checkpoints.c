/* Checkpoints: saved by two members, loaded by three, by two under another spec, and by a process alone; every failure.
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "capi/check.h"
#include "capi/support/members.h"
#include "capi/support/sharded_model.h"

static char folder[64];

static distag_mesh *make_mesh(members *group, int32_t rank, int64_t count) {
  static const char *const names[] = {"x"};
  const int32_t ranks[] = {0, 1, 2};
  distag_error err = DISTAG_ERROR_INIT;
  distag_mesh *mesh = NULL;
  CHECK_OK(distag_mesh_create(group->workers[rank], ranks, (size_t)count, &count, names, 1, NULL, &mesh, &err));
  return mesh;
}

static distag_tensor *tensor_of(distag_mesh *mesh, const char *spec, int64_t first) {
  const int64_t shape[] = {5, 2};
  distag_error err = DISTAG_ERROR_INIT;
  distag_tensor *tensor = sharded_numbers(shape, 2, first, &err);
  if (spec != NULL) CHECK_OK(distag_tensor_mark_sharding(tensor, mesh, spec, -1, &err));
  return tensor;
}

static distag_value *map_of(distag_tensor *tensor, int64_t step) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_value *number = NULL, *map = NULL;
  CHECK_OK(distag_value_create_int64(step, &number, &err));
  const char *const keys[] = {"step", "w"};
  distag_value *const items[] = {number, distag_tensor_as_value(tensor)};
  CHECK_OK(distag_value_create_map(keys, items, 2, &map, &err));
  distag_value_release(number);
  return map;
}

static void save(members *group, int32_t rank) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_mesh *mesh = make_mesh(group, rank, 2);
  distag_tensor *w = tensor_of(mesh, "('x', None)", 1);
  distag_value *map = map_of(w, 7);
  CHECK_OK(distag_checkpoint_save(mesh, folder, map, 0, &err));
  CHECK_OK(distag_checkpoint_save(mesh, folder, map, 120 * DISTAG_SECOND, &err)); /* over the first */
  distag_value_release(map);
  distag_tensor_release(w);
  distag_mesh_release(mesh);
}

static void check_numbers(distag_tensor *whole) {
  distag_error err = DISTAG_ERROR_INIT;
  double found[10], expected[10];
  distag_tensor *numbers = tensor_of(NULL, NULL, 1);
  CHECK_OK(distag_tensor_copy_data(whole, found, sizeof found, &err));
  CHECK_OK(distag_tensor_copy_data(numbers, expected, sizeof expected, &err));
  CHECK(memcmp(found, expected, sizeof found) == 0);
  distag_tensor_release(numbers);
}

static void load_into(distag_mesh *mesh, const char *spec) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_tensor *w = tensor_of(mesh, spec, 50), *whole = NULL;
  distag_value *map = map_of(w, 0), *loaded = NULL;
  CHECK_OK(distag_checkpoint_load(mesh, folder, map, 0, &loaded, &err));
  CHECK_OK(distag_tensor_gather(w, -1, DISTAG_FOREVER, &whole, &err));
  check_numbers(whole);
  int64_t step = 0;
  CHECK_OK(distag_value_get_int64(distag_value_get_entry(loaded, "step"), &step, &err));
  CHECK_INT(step, 7);
  CHECK_OK(distag_checkpoint_load(mesh, folder, map, 0, NULL, &err));
  distag_tensor_release(whole);
  distag_value_release(loaded);
  distag_value_release(map);
  distag_tensor_release(w);
}

static void load_on_three(members *group, int32_t rank) {
  distag_mesh *mesh = make_mesh(group, rank, 3);
  load_into(mesh, "('x', None)");
  load_into(mesh, "(None, 'x')");
  load_into(mesh, "(None, None)");
  distag_mesh_release(mesh);
}

static void load_alone(void) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_value *loaded = NULL;
  distag_tensor *w = NULL;
  distag_tensor_info info = DISTAG_TENSOR_INFO_INIT;
  CHECK_OK(distag_checkpoint_load(NULL, folder, NULL, 0, &loaded, &err));
  CHECK_OK(distag_value_get_tensor(distag_value_get_entry(loaded, "w"), &w, &err));
  CHECK_OK(distag_tensor_get_info(w, &info, &err));
  CHECK((info.flags & DISTAG_TENSOR_DEFERRED) != 0);
  check_numbers(w);
  distag_value_release(loaded);
}

/* The same failure on all members; the mesh goes on, and the checkpoint stays. */
static void failures(members *group, int32_t rank) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_mesh *mesh = make_mesh(group, rank, 2), *other = make_mesh(group, rank, 2);
  distag_tensor *w = tensor_of(mesh, "('x', None)", 9), *foreign = tensor_of(other, "('x', None)", 9);
  distag_value *map = map_of(w, 0), *wrong = map_of(foreign, 0), *loaded = NULL, *object = NULL;
  char path[128];
  snprintf(path, sizeof path, "%s/no/parent", folder);
  CHECK_FAILS(distag_checkpoint_save(mesh, path, map, 0, &err), DISTAG_E_INVALID_STATE, "no/parent");
  CHECK_INT(err.origin_rank, 0);
  snprintf(path, sizeof path, "%s/index.json", folder);
  CHECK_FAILS(distag_checkpoint_save(mesh, path, map, 0, &err), DISTAG_E_INVALID_STATE, "index.json");
  CHECK_FAILS(distag_checkpoint_save(mesh, folder, wrong, 0, &err), DISTAG_E_INVALID_ARGUMENT, "another mesh");
  CHECK_FAILS(distag_checkpoint_save(mesh, "", map, 0, &err), DISTAG_E_INVALID_ARGUMENT, "empty");
  CHECK_FAILS(distag_checkpoint_save(mesh, NULL, map, 0, &err), DISTAG_E_INVALID_ARGUMENT, "directory");
  CHECK_FAILS(distag_checkpoint_save(NULL, folder, map, 0, &err), DISTAG_E_INVALID_ARGUMENT, "mesh");
  CHECK_FAILS(distag_checkpoint_save(mesh, folder, NULL, 0, &err), DISTAG_E_INVALID_ARGUMENT, "value");
  CHECK_FAILS(distag_checkpoint_save(mesh, folder, map, -5, &err), DISTAG_E_INVALID_ARGUMENT, "timeout_ns");
  CHECK_FAILS(distag_checkpoint_load(mesh, NULL, NULL, 0, &loaded, &err), DISTAG_E_INVALID_ARGUMENT, "directory");
  CHECK_FAILS(distag_checkpoint_load(mesh, "/nowhere/at/all", NULL, 0, &loaded, &err), DISTAG_E_NOT_FOUND, "/nowhere");
  CHECK_FAILS(distag_checkpoint_load(NULL, "/nowhere/at/all", NULL, 0, &loaded, &err), DISTAG_E_NOT_FOUND, "/nowhere");
  CHECK_FAILS(distag_checkpoint_load(mesh, folder, wrong, 0, &loaded, &err), DISTAG_E_INVALID_ARGUMENT, "another mesh");
  CHECK(loaded == NULL);
  distag_tensor *scalar = NULL;
  CHECK_OK(distag_zeros(DISTAG_FLOAT32, NULL, 0, &scalar, &err));
  distag_value *shapes = map_of(scalar, 0);
  CHECK_FAILS(distag_checkpoint_load(mesh, folder, shapes, 0, NULL, &err), DISTAG_E_INVALID_ARGUMENT, "entry \"w\"");
  distag_value *list = NULL;
  distag_value *const items[] = {distag_tensor_as_value(scalar)};
  CHECK_OK(distag_value_create_list(items, 1, &list, &err));
  CHECK_FAILS(distag_checkpoint_load(mesh, folder, list, 0, NULL, &err), DISTAG_E_NOT_FOUND, "no entry \"0\"");
  load_into(mesh, "('x', None)");
  distag_value_release(list);
  distag_value_release(shapes);
  distag_tensor_release(scalar);
  distag_value_release(object);
  distag_value_release(wrong);
  distag_value_release(map);
  distag_tensor_release(foreign);
  distag_tensor_release(w);
  distag_mesh_release(other);
  distag_mesh_release(mesh);
}

/* A value differs between the members: both learn which, and nothing is saved. */
static void diverge(members *group, int32_t rank) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_mesh *mesh = make_mesh(group, rank, 2);
  distag_tensor *w = tensor_of(mesh, "('x', None)", 9);
  distag_value *map = map_of(w, 4 + rank);
  CHECK_FAILS(distag_checkpoint_save(mesh, folder, map, 0, &err), DISTAG_E_DIVERGED,
              "members save other values: rank 0 has \"step\" = 4, rank 1 has \"step\" = 5");
  distag_value_release(map);
  distag_tensor_release(w);
  distag_mesh_release(mesh);
}

/* Entries of a file are in the order of other writers: by the size of their elements, then by name. */
static void order_of_entries(members *group, int32_t rank) {
  static const distag_dtype kDtypes[] = {DISTAG_FLOAT32, DISTAG_BOOL, DISTAG_FLOAT64, DISTAG_FLOAT32, DISTAG_INT64};
  static const char *const kKeys[] = {"b", "a", "y", "~c/d", "x"}, *const kOrder[] = {"x", "y", "b", "~0c~1d", "a"};
  distag_error err = DISTAG_ERROR_INIT;
  distag_mesh *mesh = make_mesh(group, rank, 1);
  distag_tensor *tensors[5];
  distag_value *items[5], *map = NULL;
  char place[96], command[128], text[4096] = {0}, name[16];
  for (int i = 0; i < 5; ++i) {
    CHECK_OK(distag_zeros(kDtypes[i], NULL, 0, &tensors[i], &err));
    items[i] = distag_tensor_as_value(tensors[i]);
  }
  CHECK_OK(distag_value_create_map(kKeys, items, 5, &map, &err));
  snprintf(place, sizeof place, "%s/order", folder);
  CHECK_OK(distag_checkpoint_save(mesh, place, map, 0, &err));
  snprintf(command, sizeof command, "tail -c +9 %s/shard-*", place);
  FILE *file = popen(command, "r");
  if (CHECK(file != NULL)) {
    CHECK(fread(text, 1, sizeof text - 1, file) > 0);
    pclose(file);
  }
  const char *last = text;
  for (int i = 0; i < 5; ++i) {
    snprintf(name, sizeof name, "\"%s\":", kOrder[i]);
    const char *const at = strstr(text, name);
    CHECK(at != NULL && at > last);
    last = at;
  }
  CHECK_OK(distag_checkpoint_load(mesh, place, map, 0, NULL, &err));
  snprintf(command, sizeof command, "rm -r %s", place);
  CHECK(system(command) == 0);
  distag_value_release(map);
  for (int i = 0; i < 5; ++i) distag_tensor_release(tensors[i]);
  distag_mesh_release(mesh);
}

/* {"": {"a": x}, "a": x}: both would be the entry "a". */
static void paths_alike(members *group, int32_t rank) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_mesh *mesh = make_mesh(group, rank, 2);
  distag_tensor *x = tensor_of(NULL, NULL, 1);
  distag_value *inner = NULL, *map = NULL;
  const char *const keys[] = {"a", ""};
  distag_value *items[] = {distag_tensor_as_value(x), NULL};
  CHECK_OK(distag_value_create_map(keys, items, 1, &inner, &err));
  items[1] = inner;
  CHECK_OK(distag_value_create_map(keys, items, 2, &map, &err));
  CHECK_FAILS(distag_checkpoint_save(mesh, folder, map, 0, &err), DISTAG_E_INVALID_ARGUMENT, "the path \"a\"");
  distag_value_release(map);
  distag_value_release(inner);
  distag_tensor_release(x);
  distag_mesh_release(mesh);
}

static uint32_t crc32_of(const char *text, size_t size) {
  uint32_t sum = 0xFFFFFFFFu;
  for (size_t i = 0; i < size; ++i) {
    sum ^= (unsigned char)text[i];
    for (int bit = 0; bit < 8; ++bit) sum = (sum >> 1) ^ (0xEDB88320u & (0u - (sum & 1)));
  }
  return ~sum;
}

/* The number of the value becomes a tensor that has no entry. */
static void break_index(void) {
  static char text[1 << 16], changed[1 << 16];
  const char *const number = "\"step\":7", *const lost = "\"step\":{\"tensor\":\"lost\"}";
  char path[128];
  snprintf(path, sizeof path, "%s/index.json", folder);
  FILE *file = fopen(path, "r+");
  if (!CHECK(file != NULL)) return;
  const size_t size = fread(text, 1, sizeof text - 1, file);
  const char *const at = strstr(text, number);
  if (CHECK(at != NULL && size > 20)) {
    text[size - 20] = '\0'; /* the sum of the bytes before follows here */
    const int length = snprintf(changed, sizeof changed, "%.*s%s%s", (int)(at - text), text, lost, at + strlen(number));
    rewind(file);
    fprintf(file, "%s,\"crc32\":\"%08x\"}", changed, (unsigned)crc32_of(changed, (size_t)length));
  }
  fclose(file);
}

/* A load makes all that it gives before it writes the first element. */
static void failed_load(members *group, int32_t rank) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_mesh *mesh = make_mesh(group, rank, 2);
  distag_tensor *w = tensor_of(mesh, "('x', None)", 50), *before = tensor_of(NULL, NULL, 50);
  distag_tensor *plain = tensor_of(NULL, NULL, 50), *whole = NULL;
  distag_value *map = map_of(w, 0), *plain_map = map_of(plain, 0), *loaded = NULL;
  double found[10], expected[10];
  CHECK_OK(distag_tensor_copy_data(before, expected, sizeof expected, &err));
  CHECK_FAILS(distag_checkpoint_load(mesh, folder, map, 0, &loaded, &err), DISTAG_E_PROTOCOL, "lacks entry \"lost\"");
  CHECK_FAILS(distag_checkpoint_load(NULL, folder, plain_map, 0, &loaded, &err), DISTAG_E_PROTOCOL, "\"lost\"");
  CHECK_OK(distag_tensor_gather(w, -1, DISTAG_FOREVER, &whole, &err));
  CHECK_OK(distag_tensor_copy_data(whole, found, sizeof found, &err));
  CHECK(memcmp(found, expected, sizeof found) == 0);
  CHECK_OK(distag_tensor_copy_data(plain, found, sizeof found, &err));
  CHECK(memcmp(found, expected, sizeof found) == 0);
  distag_tensor_release(whole);
  distag_value_release(plain_map);
  distag_value_release(map);
  distag_tensor_release(plain);
  distag_tensor_release(before);
  distag_tensor_release(w);
  distag_mesh_release(mesh);
}

int main(void) {
  members group = {0};
  snprintf(folder, sizeof folder, "/tmp/distag-checkpoint-XXXXXX");
  if (!CHECK(mkdtemp(folder) != NULL)) return 1;
  char command[256];
  if (!CHECK(members_start(&group, 3, "checkpoints") == 0)) return 1;
  members_run(&group, 2, save);
  members_run(&group, 3, load_on_three);
  load_alone();
  members_run(&group, 2, failures);
  members_run(&group, 2, diverge);
  members_run(&group, 1, order_of_entries);
  members_run(&group, 2, paths_alike);
  load_alone();
  break_index();
  members_run(&group, 2, failed_load);
  CHECK(members_end(&group) == 0);
  snprintf(command, sizeof command, "test $(ls %s | wc -l) = 3 && rm -r %s", folder, folder); /* no leftover */
  CHECK(system(command) == 0);
  return check_end();
}
