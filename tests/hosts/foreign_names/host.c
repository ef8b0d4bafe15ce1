/* A host that exports, as functions that end it, each name that distag takes from other libraries (a source made by
 * run.sh): products, messages over tcp with a key, new keys and checkpoints go by the libraries that distag was linked
 * with. usage: host [products|keys|starts TEXT], which are refused then with an error that has the text. */
#include <distag.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { kRows = 3, kColumns = 300 };

static int check(const distag_error* err, const char* what) {
  if (err->code != DISTAG_OK) fprintf(stderr, "%s: %s: %s\n", what, distag_status_get_name(err->code), err->message);
  return err->code == DISTAG_OK;
}

static int multiplies(distag_dtype dtype, distag_error* err) {
  const int64_t left[] = {kRows, kColumns}, right[] = {kColumns, kRows};
  distag_tensor *a = NULL, *b = NULL, *product = NULL, *sum = NULL;
  double total = 0;
  distag_full(2, dtype, left, 2, &a, err);
  distag_full(3, dtype, right, 2, &b, err);
  distag_matmul(a, b, &product, err);
  distag_sum(product, NULL, 0, 0, &sum, err);
  distag_tensor_get_item(sum, &total, err);
  distag_tensor_release(sum);
  distag_tensor_release(product);
  distag_tensor_release(b);
  distag_tensor_release(a);
  return err->code == DISTAG_OK && total == 6.0 * kColumns * kRows * kRows;
}

static int is_refused(const distag_error* err, const char* text) {
  if (err->code == DISTAG_E_UNSUPPORTED && strstr(err->message, text) != NULL) return 1;
  fprintf(stderr, "%s: %s, not \"%s\"\n", distag_status_get_name(err->code), err->message, text);
  return 0;
}

/* Saved and read again, with a sum for all that is written. */
static int saves(distag_worker* worker, distag_error* err) {
  static const char* const names[] = {"x"};
  const int32_t alone[] = {0};
  const int64_t count = 1;
  const char* const keys[] = {"w"};
  distag_mesh* mesh = NULL;
  distag_tensor *w = NULL, *found = NULL, *sum = NULL;
  distag_value *map = NULL, *loaded = NULL;
  double total = 0;
  distag_full(2, DISTAG_FLOAT32, &count, 1, &w, err);
  distag_value* items[] = {distag_tensor_as_value(w)};
  distag_value_create_map(keys, items, 1, &map, err);
  distag_mesh_create(worker, alone, 1, &count, names, 1, NULL, &mesh, err);
  if (distag_checkpoint_save(mesh, "saved", map, 0, err) != DISTAG_OK) return 0;
  if (distag_checkpoint_load(NULL, "saved", NULL, 0, &loaded, err) != DISTAG_OK) return 0;
  distag_value_get_tensor(distag_value_get_entry(loaded, "w"), &found, err);
  distag_sum(found, NULL, 0, 0, &sum, err);
  distag_tensor_get_item(sum, &total, err);
  distag_tensor_release(sum);
  distag_value_release(loaded);
  distag_mesh_release(mesh);
  distag_value_release(map);
  distag_tensor_release(w);
  return err->code == DISTAG_OK && total == 2;
}

static int calls(distag_error* err) {
  const int64_t count = 1 << 18;
  distag_worker* workers[2];
  distag_future *start[2], *end[2];
  distag_security_options security = DISTAG_SECURITY_OPTIONS_INIT;
  distag_tensor *x = NULL, *y = NULL, *sum = NULL;
  distag_value* result = NULL;
  char rendezvous[4096] = "file://";
  double total = 0;
  if (getcwd(rendezvous + 7, sizeof rendezvous - 7) == NULL) return 0;
  security.group_key = "a key that is long enough for a group of workers";
  for (int rank = 0; rank < 2; ++rank) {
    distag_worker_options options = DISTAG_WORKER_OPTIONS_INIT;
    options.rank = rank;
    options.world_size = 2;
    options.rendezvous = rendezvous;
    options.bind = "tcp://127.0.0.1:0";
    options.security = &security;
    distag_worker_create(&options, &workers[rank], err);
    distag_worker_start_async(workers[rank], 120 * DISTAG_SECOND, &start[rank], err);
  }
  if (distag_wait_all(start, 2, DISTAG_FOREVER, err) != DISTAG_OK) return 0;
  distag_full(3, DISTAG_FLOAT32, &count, 1, &x, err);
  distag_value* arg = distag_tensor_as_value(x);
  distag_call(workers[0], NULL, "worker1", "neg", &arg, 1, NULL, &result, err);
  distag_value_get_tensor(result, &y, err);
  distag_sum(y, NULL, 0, 0, &sum, err);
  distag_tensor_get_item(sum, &total, err);
  distag_tensor_release(sum);
  distag_value_release(result);
  distag_tensor_release(x);
  if (!saves(workers[0], err)) return 0;
  for (int rank = 0; rank < 2; ++rank)
    distag_worker_shutdown_async(workers[rank], 120 * DISTAG_SECOND, &end[rank], err);
  distag_wait_all(end, 2, DISTAG_FOREVER, err);
  for (int rank = 0; rank < 2; ++rank) {
    distag_future_release(start[rank]), distag_future_release(end[rank]);
    distag_worker_release(workers[rank]);
  }
  return err->code == DISTAG_OK && total == -3.0 * (double)count;
}

int main(int argc, char** argv) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_key_pair keys = DISTAG_KEY_PAIR_INIT;
  if (argc == 3) {
    if (strcmp(argv[1], "products") == 0) multiplies(DISTAG_FLOAT32, &err);
    if (strcmp(argv[1], "keys") == 0) distag_security_create_keys(&keys, &err);
    if (strcmp(argv[1], "starts") == 0) calls(&err);
    return !is_refused(&err, argv[2]);
  }
  if (!multiplies(DISTAG_FLOAT32, &err) || !multiplies(DISTAG_FLOAT64, &err)) return check(&err, "matmul"), 2;
  distag_security_create_keys(&keys, &err);
  if (!calls(&err)) return check(&err, "calls"), 3;
  return check(&err, "keys") ? 0 : 4;
}
