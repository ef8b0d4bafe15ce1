/* all_gather and barrier: values of several workers brought to each of them, from several threads at once. */
#include <pthread.h>

#include "capi/check.h"
#include "capi/support/group.h"

enum { kSize = 3, kRounds = 50 };

static distag_worker *workers[kSize];

typedef struct gatherer {
  int32_t rank;
  const int32_t *ranks; /* NULL: all */
  size_t count;
} gatherer;

/* The value of each round encodes rank and round. */
static void *gather_rounds(void *given) {
  const gatherer *me = given;
  for (int64_t round = 0; round < kRounds; ++round) {
    distag_error err = DISTAG_ERROR_INIT;
    distag_value *mine = NULL, *all = NULL;
    const size_t expected = me->ranks == NULL ? kSize : me->count;
    CHECK_OK(distag_value_create_int64(100 * round + me->rank, &mine, &err));
    CHECK_OK(distag_worker_all_gather(workers[me->rank], mine, me->ranks, me->count, 120 * DISTAG_SECOND, &all, &err));
    CHECK_INT(distag_value_get_count(all), expected);
    for (size_t i = 0; i < expected; ++i) {
      int64_t seen = -1;
      CHECK_OK(distag_value_get_int64(distag_value_get_item(all, i), &seen, &err));
      CHECK_INT(seen, 100 * round + (me->ranks == NULL ? (int64_t)i : me->ranks[i]));
    }
    distag_value_release(mine);
    distag_value_release(all);
  }
  return NULL;
}

static void side_by_side(void) {
  static const int32_t up[] = {0, 2}, down[] = {2, 0};
  const gatherer gatherers[] = {{0, NULL, 0}, {1, NULL, 0}, {2, NULL, 0}, {0, up, 2}, {2, down, 2}};
  pthread_t threads[5];
  for (size_t i = 0; i < 5; ++i) CHECK_INT(pthread_create(&threads[i], NULL, gather_rounds, (void *)&gatherers[i]), 0);
  for (size_t i = 0; i < 5; ++i) pthread_join(threads[i], NULL);
}

static void failures(distag_value *value) {
  static const int32_t twice[] = {0, 1, 1}, foreign[] = {1, 2}, unknown[] = {0, 7}, one[] = {0};
  distag_error err = DISTAG_ERROR_INIT;
  distag_value *all = NULL;
  CHECK_FAILS(distag_worker_all_gather(workers[0], value, NULL, 0, 100 * DISTAG_MILLISECOND, &all, &err),
              DISTAG_E_DEADLINE, "worker \"w1\" (rank 1), worker \"w2\" (rank 2)");
  CHECK_FAILS(distag_worker_all_gather(workers[0], value, twice, 3, 0, &all, &err), DISTAG_E_INVALID_ARGUMENT,
              "rank 1 is named twice");
  CHECK_FAILS(distag_worker_all_gather(workers[0], value, foreign, 2, 0, &all, &err), DISTAG_E_INVALID_ARGUMENT,
              "own rank 0");
  CHECK_FAILS(distag_worker_all_gather(workers[0], value, one, 0, 0, &all, &err), DISTAG_E_INVALID_ARGUMENT,
              "own rank 0");
  CHECK_FAILS(distag_worker_all_gather(workers[0], value, unknown, 2, 0, &all, &err), DISTAG_E_INVALID_ARGUMENT,
              "no rank 7");
  CHECK_FAILS(distag_worker_all_gather(workers[0], value, NULL, 0, -2, &all, &err), DISTAG_E_INVALID_ARGUMENT,
              "timeout_ns");
  CHECK(all == NULL);
  CHECK_OK(distag_worker_all_gather(workers[0], value, one, 1, DISTAG_FOREVER, NULL, &err)); /* no member to wait for */
}

/* Tensors come back as new tensors, also the worker's own. */
static void tensors(void) {
  static const int32_t one[] = {1};
  distag_error err = DISTAG_ERROR_INIT;
  distag_tensor *mine = NULL, *seen = NULL;
  distag_value *all = NULL;
  double item = 0;
  CHECK_OK(distag_full(2.5, DISTAG_FLOAT32, NULL, 0, &mine, &err));
  CHECK_OK(distag_worker_all_gather(workers[1], distag_tensor_as_value(mine), one, 1, DISTAG_FOREVER, &all, &err));
  CHECK_OK(distag_value_get_tensor(distag_value_get_item(all, 0), &seen, &err));
  CHECK(distag_tensor_get_id(seen) != distag_tensor_get_id(mine));
  CHECK_OK(distag_tensor_get_item(seen, &item, &err));
  CHECK_NEAR(item, 2.5);
  distag_value_release(all);
  distag_tensor_release(mine);
}

/* In a static group all members have to take part, also a member that has left. */
static void after_one_has_left(distag_value *value) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_worker *pair[2];
  for (int32_t i = 0; i < 2; ++i) {
    const distag_worker_options options = group_options(i, 2, "inproc://all_gather-left");
    CHECK_OK(distag_worker_create(&options, &pair[i], &err));
  }
  CHECK_INT(group_start(pair, 2), 0);
  distag_worker_shutdown(pair[1], 0, NULL, NULL);
  for (int i = 0; i < 20; ++i) {
    CHECK_FAILS(distag_worker_all_gather(pair[0], value, NULL, 0, 120 * DISTAG_SECOND, NULL, &err),
                DISTAG_E_DISCONNECTED, "w1");
  }
  distag_worker_shutdown(pair[0], 0, NULL, NULL);
  for (int32_t i = 0; i < 2; ++i) distag_worker_release(pair[i]);
}

int main(void) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_value *value = NULL;
  CHECK_OK(distag_value_create_null(&value, &err));
  for (int32_t i = 0; i < kSize; ++i) {
    const distag_worker_options options = group_options(i, kSize, "inproc://all_gather");
    CHECK_OK(distag_worker_create(&options, &workers[i], &err));
  }
  CHECK_FAILS(distag_worker_all_gather(workers[0], value, NULL, 0, 0, NULL, &err), DISTAG_E_INVALID_STATE,
              "not started");
  CHECK_INT(group_start(workers, kSize), 0);
  side_by_side();
  failures(value);
  tensors();
  CHECK_INT(group_shutdown(workers, kSize), 0);
  CHECK_FAILS(distag_worker_all_gather(workers[0], value, NULL, 0, 0, NULL, &err), DISTAG_E_INVALID_STATE, "down");
  after_one_has_left(value);
  distag_value_release(value);
  for (int32_t i = 0; i < kSize; ++i) distag_worker_release(workers[i]);
  return check_end();
}
