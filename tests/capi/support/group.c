#include "capi/support/group.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { kMost = 20 };

static const char *const kNames[kMost] = {"w0",  "w1",  "w2",  "w3",  "w4",  "w5",  "w6",  "w7",  "w8",  "w9",
                                          "w10", "w11", "w12", "w13", "w14", "w15", "w16", "w17", "w18", "w19"};

distag_worker_options group_options(int32_t rank, int32_t size, const char *rendezvous) {
  distag_worker_options options = DISTAG_WORKER_OPTIONS_INIT;
  options.rank = rank;
  options.world_size = size;
  options.name = kNames[rank];
  options.rendezvous = rendezvous;
  options.thread_count = 2;
  return options;
}

const char *group_place(const char *name) {
  static _Thread_local char place[512];
  const char *const folder = getenv("DISTAG_TEST_SOCKETS");
  if (folder == NULL) {
    snprintf(place, sizeof place, "inproc://%s", name);
    return place;
  }
  /* A forked child meets elsewhere. A file of that name is from an older process that had the id. */
  snprintf(place, sizeof place, "file://%s/%s-%d", folder, name, (int)getpid());
  unlink(place + strlen("file://"));
  return place;
}

typedef distag_status (*collective)(distag_worker *worker, int64_t timeout_ns, distag_future **out_future,
                                    distag_error *err);

static int run(const char *what, collective begin, distag_worker *const *workers, size_t count) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_future *futures[kMost] = {NULL};
  for (size_t i = 0; i < count; ++i) begin(workers[i], 120 * DISTAG_SECOND, &futures[i], &err);
  if (err.code == DISTAG_OK) distag_wait_all(futures, count, DISTAG_FOREVER, &err);
  for (size_t i = 0; i < count; ++i) distag_future_release(futures[i]);
  if (err.code != DISTAG_OK) fprintf(stderr, "%s: %s: %s\n", what, distag_status_get_name(err.code), err.message);
  return err.code != DISTAG_OK;
}

int group_start(distag_worker *const *workers, size_t count) {
  return run("start", distag_worker_start_async, workers, count);
}

int group_shutdown(distag_worker *const *workers, size_t count) {
  return run("shutdown", distag_worker_shutdown_async, workers, count);
}

distag_status group_triple(void *user_data, distag_invocation *invocation, distag_error *err) {
  distag_tensor *x = NULL, *y = NULL;
  (void)user_data;
  distag_invocation_get_tensor(invocation, 0, &x, err);
  distag_mul_scalar(x, 3, &y, err);
  distag_invocation_return(invocation, distag_tensor_as_value(y), err);
  distag_tensor_release(y);
  return err->code;
}
