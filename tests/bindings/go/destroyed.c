/* Without a library that fits, functions of loaded.c destroy what they are given to destroy, and refuse; two threads
 * look for the library at once. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loader.h"

static int counts[2];

static void destroy(void* user_data) { ++*(int*)user_data; }

/* Whether a call refused, and destroyed this number of things. */
static void expect(int line, distag_status status, distag_error* err, int count, int inner) {
  const int is_refused = status == DISTAG_E_UNSUPPORTED && err->code == status && err->origin_rank == -1 &&
                         strstr(err->message, "libm.so.6 is no libdistag") != NULL;
  if (!is_refused || counts[0] != count || counts[1] != inner) {
    fprintf(stderr, "line %d: %d \"%s\", destroyed %d and %d\n", line, (int)status, err->message, counts[0], counts[1]);
    exit(1);
  }
  counts[0] = counts[1] = 0;
  memset(err, 0, sizeof *err);
}
#define EXPECT(call, count, inner) expect(__LINE__, call, &err, count, inner)

static void* look(void* answer) {
  *(const char**)answer = distag_go_check_library(sizeof(distag_api), "0.3.0");
  return NULL;
}

int main(void) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_custom_op op = DISTAG_CUSTOM_OP_INIT;
  distag_allocator allocator = DISTAG_ALLOCATOR_INIT;
  distag_worker_options options = DISTAG_WORKER_OPTIONS_INIT;
  distag_deferred_options deferred = DISTAG_DEFERRED_OPTIONS_INIT;
  const char* said[2];
  pthread_t thread;

  if (pthread_create(&thread, NULL, look, &said[0]) != 0) return 2;
  look(&said[1]);
  pthread_join(thread, NULL);
  if (said[0] == NULL || said[0] != said[1] || distag_go_table() != NULL) return 3;

  EXPECT(distag_tensor_create_borrowed(NULL, 0, 0, NULL, NULL, 0, counts, destroy, NULL, &err), 1, 0);
  EXPECT(distag_tensor_create_borrowed(NULL, 0, 0, NULL, NULL, 0, counts, NULL, NULL, &err), 0, 0);
  EXPECT(distag_tensor_add_hook(NULL, NULL, counts, destroy, NULL, &err), 1, 0);
  EXPECT(distag_value_create_object("x", counts, destroy, NULL, &err), 1, 0);
  EXPECT(distag_worker_register(NULL, "x", NULL, counts, destroy, NULL, &err), 1, 0);
  EXPECT(distag_future_on_done(NULL, NULL, counts, destroy, &err), 1, 0);
  EXPECT(distag_future_then(NULL, NULL, counts, destroy, NULL, &err), 1, 0);
  EXPECT(distag_loader_create(NULL, NULL, counts, destroy, NULL, NULL, &err), 1, 0);

  op.user_data = deferred.user_data = options.user_data = counts;
  op.destroy = deferred.destroy = options.destroy = allocator.destroy = destroy;
  allocator.user_data = &counts[1];
  EXPECT(distag_apply_custom(&op, NULL, 0, NULL, 0, &err), 1, 0);
  EXPECT(distag_apply_custom(NULL, NULL, 0, NULL, 0, &err), 0, 0);
  EXPECT(distag_tensor_create_deferred(DISTAG_FLOAT32, NULL, 0, &deferred, NULL, &err), 1, 0);
  EXPECT(distag_worker_create(&options, NULL, &err), 1, 0);
  options.allocator = &allocator;
  EXPECT(distag_worker_create(&options, NULL, &err), 1, 1);
  op.struct_size = 8; /* who made this one is unknown: nothing of it is used */
  EXPECT(distag_apply_custom(&op, NULL, 0, NULL, 0, &err), 0, 0);
  return 0;
}
