/* Large tensors go to another process and back, again and again, without a byte more in either: tensors that come back
 * as they were, and results that were computed there. usage: capi_lane_memory [ROUND_TRIPS] */
#define _GNU_SOURCE
#include <stdlib.h>

#include "capi/check.h"
#include "capi/support/group.h"
#include "capi/support/lent_bytes.h"
#include "capi/support/processes.h"
#include "capi/support/resident.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { kTrips = 20, kIsMeasured = 0 }; /* a sanitizer has memory of its own */
#else
enum { kTrips = 300, kIsMeasured = 1 };
#endif
/* Tensors of 64 MiB. The peak of a window of trips does not depend on the moment at which memory goes back. */
enum { kCount = 16 << 20, kWindow = 40, kFirst = 60 };
static const int64_t kMostGrowth = 32 << 20; /* less than half a tensor */

static distag_error err = DISTAG_ERROR_INIT;

/* ---- what a process has, at most since it was asked last ---- */

enum { kResident, kLendable, kBorrowed, kKinds };
static const char *const kNames[kKinds] = {"resident", "lendable", "borrowed"};

typedef struct usage {
  int64_t bytes[kKinds];
} usage;

static usage usage_now(void) {
  const usage now = {{resident_bytes(), lendable_bytes(), borrowed_bytes()}};
  return now;
}

static void raise_to(usage *peak, usage now) {
  for (int i = 0; i < kKinds; ++i) {
    if (now.bytes[i] > peak->bytes[i]) peak->bytes[i] = now.bytes[i];
  }
}

static distag_status give_back(void *user_data, distag_invocation *invocation, distag_error *error) {
  (void)user_data;
  return distag_invocation_return(invocation, distag_invocation_get_arg(invocation, 0), error);
}

/* Answers with a list of the bytes of each kind. */
static distag_status tell_usage(void *user_data, distag_invocation *invocation, distag_error *error) {
  const usage now = usage_now();
  distag_value *items[kKinds] = {NULL}, *list = NULL;
  (void)user_data;
  for (int i = 0; i < kKinds; ++i) distag_value_create_int64(now.bytes[i], &items[i], error);
  distag_value_create_list(items, kKinds, &list, error);
  for (int i = 0; i < kKinds; ++i) distag_value_release(items[i]);
  if (error->code == DISTAG_OK) distag_invocation_return(invocation, list, error);
  distag_value_release(list);
  return error->code;
}

static usage usage_of_other(distag_worker *worker) {
  distag_value *list = NULL;
  usage seen = {{0}};
  CHECK_OK(distag_call(worker, NULL, "w1", "tell_usage", NULL, 0, NULL, &list, &err));
  for (size_t i = 0; list != NULL && i < kKinds; ++i) {
    CHECK_OK(distag_value_get_int64(distag_value_get_item(list, i), &seen.bytes[i], &err));
  }
  distag_value_release(list);
  return seen;
}

/* ---- trips ---- */

/* Checks an element or two of each page. */
static void check_elements(distag_tensor *x, float value) {
  const float *numbers = distag_tensor_get_data(x);
  for (int64_t i = 0; i < kCount; i += 1021) {
    if (!CHECK(numbers[i] == value)) return;
  }
  CHECK(numbers[kCount - 1] == value);
}

static void trip(distag_worker *worker, distag_tensor *x, int64_t number) {
  const int is_computed = number % 2 == 1;
  distag_value *args[] = {distag_tensor_as_value(x)}, *result = NULL;
  distag_tensor *y = NULL;
  CHECK_OK(distag_call(worker, NULL, "w1", is_computed ? "neg" : "give_back", args, 1, NULL, &result, &err));
  if (!CHECK_OK(distag_value_get_tensor(result, &y, &err))) return;
  if (!is_computed) CHECK(distag_tensor_get_data(y) == distag_tensor_get_data(x)); /* it was lent, not copied */
  check_elements(y, is_computed ? -3 : 3);
  distag_value_release(result);
}

static void compare(const char *who, const usage *before, const usage *after, int is_measured) {
  for (int i = 0; i < kKinds; ++i) {
    const int64_t growth = after->bytes[i] - before->bytes[i];
    printf("%s, %s: at most %lld MiB in the first trips, %lld MiB in the last\n", who, kNames[i],
           (long long)before->bytes[i] >> 20, (long long)after->bytes[i] >> 20);
    if (is_measured) CHECK(growth < kMostGrowth);
  }
}

static void make_trips(distag_worker *worker, int64_t trips) {
  const int64_t count = kCount, begin = now_ns();
  usage own[2] = {{{0}}}, other[2] = {{{0}}};
  distag_tensor *x = NULL;
  CHECK_OK(distag_full(3, DISTAG_FLOAT32, &count, 1, &x, &err));
  for (int64_t i = 0; i < trips && check_failures == 0; ++i) {
    const int is_last = i >= trips - kWindow;
    trip(worker, x, i);
    if (!is_last && (i < kFirst - kWindow || i >= kFirst)) continue;
    raise_to(&own[is_last], usage_now());
    raise_to(&other[is_last], usage_of_other(worker));
  }
  printf("%lld trips of 64 MiB in %.1f s\n", (long long)trips, (double)(now_ns() - begin) / DISTAG_SECOND);
  compare("caller", &own[0], &own[1], kIsMeasured && trips >= kFirst + kWindow);
  compare("callee", &other[0], &other[1], kIsMeasured && trips >= kFirst + kWindow);
  check_elements(x, 3);
  distag_tensor_release(x);
}

static int member(const char *rendezvous, int32_t rank, int32_t count, void *data) {
  distag_worker_options options = group_options(rank, count, rendezvous);
  distag_worker *worker = NULL;
  CHECK_OK(distag_worker_create(&options, &worker, &err));
  CHECK_OK(distag_worker_register(worker, "give_back", give_back, NULL, NULL, NULL, &err));
  CHECK_OK(distag_worker_register(worker, "tell_usage", tell_usage, NULL, NULL, NULL, &err));
  CHECK_OK(distag_worker_start(worker, 60 * DISTAG_SECOND, &err));
  if (rank == 0) make_trips(worker, *(const int64_t *)data);
  CHECK_OK(distag_worker_shutdown(worker, DISTAG_FOREVER, NULL, &err));
  distag_worker_release(worker);
  fflush(stdout);
  return check_end();
}

int main(int argc, char **argv) {
  int64_t trips = argc > 1 ? atoll(argv[1]) : kTrips;
  processes group;
  CHECK(unsetenv("DISTAG_LANE") == 0);
  CHECK_INT(processes_start(&group, 2, member, &trips), 0);
  CHECK_INT(processes_end(&group, -1), 0);
  return check_end();
}
