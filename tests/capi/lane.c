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

/* ---- what is given back ---- */

static distag_status give_back(void *user_data, distag_invocation *invocation, distag_error *error) {
  (void)user_data;
  return distag_invocation_return(invocation, distag_invocation_get_arg(invocation, 0), error);
}

/* Returns the tensor that comes back, with a reference of the caller's. */
static distag_tensor *call_give_back(distag_worker *worker, const char *peer, distag_tensor *x) {
  distag_value *args[] = {distag_tensor_as_value(x)}, *result = NULL;
  distag_tensor *y = NULL;
  CHECK_OK(distag_call(worker, NULL, peer, "give_back", args, 1, NULL, &result, &err));
  CHECK_OK(distag_value_get_tensor(result, &y, &err));
  distag_tensor_retain(y);
  distag_value_release(result);
  return y;
}

static void write_all(distag_tensor *x, int64_t count, float value) {
  float *numbers = malloc((size_t)count * sizeof *numbers);
  for (int64_t i = 0; i < count; ++i) numbers[i] = value;
  CHECK_OK(distag_tensor_write(x, numbers, (size_t)count * sizeof *numbers, &err));
  free(numbers);
}

static void check_all(distag_tensor *x, int64_t count, float value) {
  float *numbers = malloc((size_t)count * sizeof *numbers);
  int64_t same = 0;
  CHECK_OK(distag_tensor_copy_data(x, numbers, (size_t)count * sizeof *numbers, &err));
  while (same < count && numbers[same] == value) ++same;
  CHECK_INT(same, count);
  free(numbers);
}

/* The tensor that comes back lies in the memory of the one that was sent; a write to either leaves the other alone. */
static void check_given_back(distag_worker *worker, const char *peer, int64_t count) {
  distag_tensor *x = NULL, *y, *part = NULL, *z;
  CHECK_OK(distag_full(3, DISTAG_FLOAT32, &count, 1, &x, &err));
  y = call_give_back(worker, peer, x);
  CHECK(distag_tensor_get_data(y) == distag_tensor_get_data(x));
  write_all(x, count, 4);
  check_all(y, count, 3);
  distag_tensor_release(y);
  y = call_give_back(worker, peer, x);
  CHECK(distag_tensor_get_data(y) == distag_tensor_get_data(x));
  write_all(y, count, 5);
  check_all(x, count, 4);
  check_all(y, count, 5);
  z = call_give_back(worker, peer, y);
  distag_tensor_release(y);
  check_all(z, count, 5);
  CHECK_OK(distag_slice(z, 0, 1, count - 1, 1, &part, &err));
  distag_tensor_release(z);
  z = call_give_back(worker, peer, part);
  CHECK(distag_tensor_get_data(z) == distag_tensor_get_data(part));
  distag_tensor_release(part);
  distag_tensor_release(x);
  check_all(z, count - 2, 5);
  distag_tensor_release(z);
}

/* Whole numbers are copied before they are looked at. */
static void check_whole_numbers_given_back(distag_worker *worker, const char *peer) {
  distag_tensor *x = NULL, *y;
  CHECK_OK(distag_arange(0, 100000, 1, DISTAG_INT64, &x, &err));
  y = call_give_back(worker, peer, x);
  const int64_t *numbers = distag_tensor_get_data(y);
  CHECK(memcmp(numbers, distag_tensor_get_data(x), 100000 * sizeof *numbers) == 0);
  distag_tensor_release(y);
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
    CHECK_OK(distag_worker_register(workers[rank], "give_back", give_back, NULL, NULL, NULL, &err));
  }
  CHECK(group_start(workers, 2) == 0);
  for (int i = 0; i < 20; ++i) {
    call_neg(workers[0], "w1", 1);
    call_neg(workers[1], "w0", 5000);
  }
  call_neg(workers[0], "w1", 5 << 20); /* 20 MB in pieces */
  if (strcmp(lane, "\"lane\": \"lane\"") == 0) {
    for (int i = 0; i < 10; ++i) check_given_back(workers[i % 2], i % 2 == 0 ? "w1" : "w0", 5 << 20);
    for (int i = 0; i < 100; ++i) check_given_back(workers[i % 2], i % 2 == 0 ? "w1" : "w0", 50000 + i * 1000);
    check_whole_numbers_given_back(workers[0], "w1");
  }
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
  options.reserved_2 = 1;
  CHECK_FAILS(distag_worker_create(&options, &worker, &err), DISTAG_E_UNSUPPORTED, "reserved_2");
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
