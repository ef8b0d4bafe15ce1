/* The lane between workers of one machine, as hosts see it: the option, the environment, the report. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <unistd.h>

#include "capi/check.h"
#include "capi/support/group.h"

static distag_error err = DISTAG_ERROR_INIT;

static void call_neg(distag_worker *worker, const char *peer, int64_t count) {
  distag_tensor *x = NULL, *y = NULL;
  distag_value *result = NULL;
  float *seen = calloc((size_t)count, sizeof *seen);
  CHECK_OK(distag_full(3, DISTAG_FLOAT32, &count, 1, &x, &err));
  distag_value *args[] = {distag_tensor_as_value(x)};
  CHECK_OK(distag_call(worker, NULL, peer, "neg", args, 1, NULL, &result, &err));
  CHECK_OK(distag_value_get_tensor(result, &y, &err));
  CHECK_OK(distag_tensor_copy_data(y, seen, (size_t)count * sizeof *seen, &err));
  for (int64_t i = 0; i < count; ++i) {
    if (!CHECK(seen[i] == -3)) break;
  }
  free(seen);
  distag_value_release(result);
  distag_tensor_release(x);
}

static int report_has(distag_worker *worker, const char *text) {
  static char report[1 << 16];
  size_t size = 0;
  CHECK_OK(distag_worker_copy_report(worker, report, sizeof report, &size, &err));
  return strstr(report, text) != NULL;
}

/* Two workers that call each other; `lane`: what the report of w0 says of w1. */
static void run_pair(uint32_t no_lane, const char *bind, const char *lane, const char *counters) {
  char directory[] = "/tmp/distag-lane-XXXXXX";
  char rendezvous[64];
  distag_worker *workers[2] = {NULL, NULL};
  CHECK(mkdtemp(directory) != NULL);
  snprintf(rendezvous, sizeof rendezvous, "file://%s", directory);
  for (int32_t rank = 0; rank < 2; ++rank) {
    distag_worker_options options = group_options(rank, 2, rendezvous);
    options.no_lane = rank == 0 ? no_lane : 0;
    options.bind = bind;
    CHECK_OK(distag_worker_create(&options, &workers[rank], &err));
  }
  CHECK(group_start(workers, 2) == 0);
  for (int i = 0; i < 20; ++i) {
    call_neg(workers[0], "w1", 1);
    call_neg(workers[1], "w0", 5000);
  }
  call_neg(workers[0], "w1", 5 << 20); /* 20 MB in pieces */
  CHECK(report_has(workers[0], lane));
  CHECK(report_has(workers[0], counters));
  CHECK(group_shutdown(workers, 2) == 0);
  distag_worker_release(workers[0]);
  distag_worker_release(workers[1]);
  char command[96];
  snprintf(command, sizeof command, "rm -rf '%s'", directory);
  CHECK(system(command) == 0);
}

static void bad_options(void) {
  distag_worker *worker = NULL;
  distag_worker_options options = group_options(0, 1, "inproc://lane-options");
  options.no_lane = 2;
  CHECK_FAILS(distag_worker_create(&options, &worker, &err), DISTAG_E_INVALID_ARGUMENT, "no_lane");
  options.no_lane = 0;
  options.reserved = 1;
  CHECK_FAILS(distag_worker_create(&options, &worker, &err), DISTAG_E_UNSUPPORTED, "reserved");
}

int main(void) {
  CHECK(unsetenv("DISTAG_LANE") == 0);
  bad_options();
  run_pair(0, NULL, "\"lane\": \"lane\"", "\"on\": true");
  run_pair(1, NULL, "\"lane\": \"the worker's option no_lane\"", "\"on\": false");
  run_pair(0, "tcp://127.0.0.1:0", "\"lane\": \"the endpoint is no ipc://", "\"open\": 0");
  CHECK(setenv("DISTAG_LANE", "0", 1) == 0);
  run_pair(0, NULL, "\"lane\": \"DISTAG_LANE=0\"", "\"on\": false");
  return check_end();
}
