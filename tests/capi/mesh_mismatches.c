/* Members that do not run the same program: all of them get DIVERGED with both calls, or DEADLINE with the missing one;
 * no member hangs, and no sum is wrong. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <unistd.h>

#include "capi/check.h"
#include "capi/support/members.h"

enum { kSize = 4, kOdd = 2 };

/* Waits until all members are here. */
static void meet(members *group, int32_t rank) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_value *null = NULL;
  CHECK_OK(distag_value_create_null(&null, &err));
  CHECK_OK(distag_worker_all_gather(group->workers[rank], null, NULL, 0, 120 * DISTAG_SECOND, NULL, &err));
  distag_value_release(null);
}

static distag_mesh *make_mesh(members *group, int32_t rank) {
  static const int64_t shape[] = {2, 2};
  static const char *const names[] = {"x", "y"};
  distag_error err = DISTAG_ERROR_INIT;
  distag_mesh *mesh = NULL;
  distag_mesh_options options = DISTAG_MESH_OPTIONS_INIT;
  options.name = "train";
  options.timeout_ns = 120 * DISTAG_SECOND;
  CHECK_OK(distag_mesh_create(group->workers[rank], NULL, 0, shape, names, 2, &options, &mesh, &err));
  return mesh;
}

typedef struct made_call {
  uint32_t kind;
  const char *axes;
  distag_dtype dtype;
  int64_t rows, columns;
  distag_collective_options options;
  const char *text; /* as the message shows it */
} made_call;

static const made_call kUsual = {DISTAG_ALL_REDUCE, NULL, DISTAG_FLOAT64, 4, 6, {0}, "all_reduce(float64[4, 6], sum"};

/* The calls of the odd member instead. */
static const made_call kOthers[] = {
    {DISTAG_ALL_GATHER, NULL, DISTAG_FLOAT64, 4, 6, {0}, "all_gather(float64[4, 6]"},
    {DISTAG_REDUCE_SCATTER, NULL, DISTAG_FLOAT64, 4, 6, {0}, "reduce_scatter(float64[4, 6]"},
    {DISTAG_ALL_TO_ALL, NULL, DISTAG_FLOAT64, 4, 6, {0}, "all_to_all(float64[4, 6]"},
    {DISTAG_BROADCAST, NULL, DISTAG_FLOAT64, 4, 6, {0}, "broadcast(float64[4, 6]"},
    {DISTAG_REDUCE, NULL, DISTAG_FLOAT64, 4, 6, {0}, "reduce(float64[4, 6]"},
    {DISTAG_PERMUTE, NULL, DISTAG_FLOAT64, 4, 6, {.shift = 1}, "permute(float64[4, 6]"},
    {DISTAG_ALL_REDUCE, NULL, DISTAG_FLOAT64, 6, 4, {0}, "all_reduce(float64[6, 4]"},
    {DISTAG_ALL_REDUCE, NULL, DISTAG_FLOAT64, 0, 6, {0}, "all_reduce(float64[0, 6]"},
    {DISTAG_ALL_REDUCE, NULL, DISTAG_FLOAT64, 40000, 6, {0}, "all_reduce(float64[40000, 6]"},
    {DISTAG_ALL_REDUCE, NULL, DISTAG_FLOAT32, 4, 6, {0}, "all_reduce(float32[4, 6]"},
    {DISTAG_ALL_REDUCE, NULL, DISTAG_INT64, 4, 6, {0}, "all_reduce(int64[4, 6]"},
    {DISTAG_ALL_REDUCE, "x", DISTAG_FLOAT64, 4, 6, {0}, "all_reduce(float64[4, 6], sum, axes x)"},
    {DISTAG_ALL_REDUCE, "(y, x)", DISTAG_FLOAT64, 4, 6, {0}, "all_reduce(float64[4, 6], sum, axes y, x)"},
    {DISTAG_ALL_REDUCE, NULL, DISTAG_FLOAT64, 4, 6, {.reduction = DISTAG_MAX}, "all_reduce(float64[4, 6], max"},
    {DISTAG_ALL_REDUCE, "z", DISTAG_FLOAT64, 4, 6, {0}, "collective, which fails"},
    {99, NULL, DISTAG_FLOAT64, 4, 6, {0}, "collective, which fails"},
    {DISTAG_REDUCE, NULL, DISTAG_FLOAT64, 4, 6, {.root = 9}, "reduce(float64[4, 6]"},
};
enum { kOtherCount = sizeof kOthers / sizeof *kOthers };

static distag_status make(distag_mesh *mesh, const made_call *call, distag_tensor **out_y, distag_error *err) {
  const int64_t shape[] = {call->rows, call->columns};
  distag_collective_options options = call->options;
  distag_tensor *x = NULL;
  options.struct_size = sizeof options;
  distag_ones(call->dtype, shape, 2, &x, err);
  const distag_status status = distag_collective(mesh, call->kind, call->axes, x, &options, out_y, err);
  distag_tensor_release(x);
  return status;
}

static void check_divergence(const distag_error *err, const char *call, const char *usual, const char *odd) {
  char number[64];
  snprintf(number, sizeof number, "programs differ at %s", call);
  const int told = err->code == DISTAG_E_DIVERGED && strstr(err->message, "mesh \"train\"") != NULL &&
                   strstr(err->message, number) != NULL && strstr(err->message, usual) != NULL &&
                   strstr(err->message, odd) != NULL && strstr(err->message, "worker \"w2\" (rank 2)") != NULL;
  if (!check_true(told, __FILE__, __LINE__, "DIVERGED tells both calls")) {
    fprintf(stderr, "  %s: %s\n  of %s\n", distag_status_get_name(err->code), err->message, odd);
  }
}

/* After two equal calls the third differs. A member that needs nothing of the odd one may get through it, and a late
 * one may fail in an earlier call; no member gets through the next. */
static void other_calls(members *group, int32_t rank) {
  for (size_t k = 0; k < kOtherCount; ++k) {
    distag_mesh *mesh = make_mesh(group, rank);
    distag_error err = DISTAG_ERROR_INIT;
    distag_status status = DISTAG_OK;
    for (int i = 0; i < 6 && status != DISTAG_E_DIVERGED; ++i) {
      distag_tensor *y = NULL;
      err.code = DISTAG_OK;
      status = make(mesh, i == 2 && rank == kOdd ? &kOthers[k] : &kUsual, &y, &err);
      CHECK(status == DISTAG_OK || y == NULL);
      CHECK(status == DISTAG_OK || status == DISTAG_E_DIVERGED || (i == 2 && rank == kOdd));
      if (i < 2 && y != NULL) {
        double items[24];
        CHECK_OK(distag_tensor_copy_data(y, items, sizeof items, &err));
        CHECK_NEAR(items[23], kSize);
      }
      distag_tensor_release(y);
    }
    CHECK_INT(status, DISTAG_E_DIVERGED);
    check_divergence(&err, "call 3", kUsual.text, kOthers[k].text);
    CHECK(strstr(err.message, "the last equal call was 2, all_reduce") != NULL);
    distag_mesh_release(mesh);
  }
}

/* The same two calls in the other order. */
static void other_order(members *group, int32_t rank) {
  distag_mesh *mesh = make_mesh(group, rank);
  distag_error err = DISTAG_ERROR_INIT;
  distag_tensor *y = NULL;
  const made_call *const order[] = {rank == kOdd ? &kOthers[0] : &kUsual, rank == kOdd ? &kUsual : &kOthers[0]};
  for (int i = 0; i < 2; ++i) {
    CHECK_INT(make(mesh, order[i], &y, &err), DISTAG_E_DIVERGED);
    check_divergence(&err, "call 1", kUsual.text, kOthers[0].text);
    CHECK(y == NULL);
  }
  distag_mesh_release(mesh);
}

/* The odd member makes one call less: its next one differs, or it does not come. */
static void one_left_out(members *group, int32_t rank) {
  distag_mesh *mesh = make_mesh(group, rank);
  distag_error err = DISTAG_ERROR_INIT;
  distag_tensor *y = NULL;
  if (rank != kOdd) CHECK_INT(make(mesh, &kUsual, &y, &err), DISTAG_E_DIVERGED);
  CHECK_INT(make(mesh, &kOthers[0], &y, &err), DISTAG_E_DIVERGED);
  check_divergence(&err, "call 1", kUsual.text, kOthers[0].text);
  distag_mesh_release(mesh);
}

/* The odd member gives a tensor that does not travel: its next call is not taken for that one. */
static void one_gives_what_is_sharded(members *group, int32_t rank) {
  static const int64_t shape[] = {4, 6};
  distag_mesh *mesh = make_mesh(group, rank);
  distag_error err = DISTAG_ERROR_INIT;
  distag_tensor *x = NULL, *y = NULL;
  CHECK_OK(distag_ones(DISTAG_FLOAT64, shape, 2, &x, &err));
  CHECK_OK(distag_tensor_mark_sharding(x, mesh, "('x', None)", -1, &err));
  meet(group, rank); /* a mesh that has ended marks no more */
  if (rank == kOdd) {
    CHECK_FAILS(distag_collective(mesh, DISTAG_ALL_REDUCE, NULL, x, NULL, &y, &err), DISTAG_E_INVALID_ARGUMENT,
                "is sharded as");
  } else {
    CHECK_INT(make(mesh, &kUsual, &y, &err), DISTAG_E_DIVERGED);
  }
  CHECK_INT(make(mesh, &kUsual, &y, &err), DISTAG_E_DIVERGED);
  check_divergence(&err, "call 2", kUsual.text, "collective, which fails");
  CHECK(y == NULL);
  distag_tensor_release(x);
  distag_mesh_release(mesh);
}

/* The message tells the time that the caller gave, not what was left of it when the step began. */
static void one_misses_a_gather(members *group, int32_t rank) {
  static const int64_t shape[] = {4, 6};
  distag_mesh *mesh = make_mesh(group, rank);
  distag_error err = DISTAG_ERROR_INIT;
  distag_tensor *x = NULL, *y = NULL;
  CHECK_OK(distag_ones(DISTAG_FLOAT64, shape, 2, &x, &err));
  CHECK_OK(distag_tensor_mark_sharding(x, mesh, "(('x', 'y'), None)", -1, &err));
  meet(group, rank);
  if (rank == kOdd) meet(group, rank);
  CHECK_FAILS(distag_tensor_gather(x, -1, 3 * DISTAG_SECOND, &y, &err), DISTAG_E_DEADLINE, "after 3 s call 3, gather");
  CHECK_INT(err.origin_rank, kOdd);
  if (rank != kOdd) meet(group, rank);
  CHECK(y == NULL);
  distag_tensor_release(x);
  distag_mesh_release(mesh);
}

static void one_missing(members *group, int32_t rank) {
  distag_mesh *mesh = make_mesh(group, rank);
  distag_error err = DISTAG_ERROR_INIT;
  distag_tensor *y = NULL;
  made_call brief = kUsual;
  brief.options.timeout_ns = 5 * DISTAG_SECOND;
  meet(group, rank);
  if (rank == kOdd) meet(group, rank); /* it comes when the others have given up */
  CHECK_INT(make(mesh, &brief, &y, &err), DISTAG_E_DEADLINE);
  if (rank != kOdd) meet(group, rank);
  CHECK(strstr(err.message,
               "call 1, all_reduce(float64[4, 6], sum, axes x, y), waits for worker \"w2\" (rank 2), "
               "which is not in any call, and has made none") != NULL);
  CHECK(y == NULL);
  CHECK_INT(make(mesh, &kUsual, &y, &err), DISTAG_E_DEADLINE);
  distag_mesh_release(mesh);
}

/* The odd member is ahead by as many calls as it may have under way. */
static void one_early(members *group, int32_t rank) {
  distag_mesh *mesh = make_mesh(group, rank);
  distag_error err = DISTAG_ERROR_INIT;
  distag_future *futures[100];
  const int64_t shape[] = {3};
  for (int turn = 0; turn < 2; ++turn) {
    for (int i = 0; i < 100 && (rank == kOdd) == (turn == 0); ++i) {
      distag_tensor *x = NULL;
      CHECK_OK(distag_full(rank + i, DISTAG_FLOAT64, shape, 1, &x, &err));
      CHECK_OK(distag_collective_async(mesh, DISTAG_ALL_REDUCE, NULL, x, NULL, &futures[i], &err));
      distag_tensor_release(x);
    }
    meet(group, rank);
  }
  CHECK_OK(distag_wait_all(futures, 100, 120 * DISTAG_SECOND, &err));
  for (int i = 0; i < 100; ++i) {
    distag_value *value = NULL;
    distag_tensor *y = NULL;
    double items[3] = {0};
    CHECK_OK(distag_future_get_value(futures[i], &value, &err));
    CHECK_OK(distag_value_get_tensor(value, &y, &err));
    CHECK_OK(distag_tensor_copy_data(y, items, sizeof items, &err));
    CHECK_NEAR(items[2], 6 + 4 * i);
    distag_future_release(futures[i]);
  }
  distag_mesh_release(mesh);
}

/* The error names a line that only some members use. */
static void another_line(members *group, int32_t rank) {
  distag_mesh *mesh = make_mesh(group, rank), *line = NULL;
  distag_error err = DISTAG_ERROR_INIT;
  distag_tensor *y = NULL;
  CHECK_OK(distag_mesh_open_line(mesh, rank == kOdd ? "b" : "a", &line, &err));
  made_call brief = kUsual;
  brief.options.timeout_ns = 5 * DISTAG_SECOND;
  meet(group, rank);
  CHECK_INT(make(line, &brief, &y, &err), DISTAG_E_DEADLINE);
  if (strstr(err.message, "mesh \"train\", line \"a\"") != NULL) {
    CHECK(strstr(err.message, "waits for worker \"w2\" (rank 2), which has never opened line \"a\"") != NULL);
  } else {
    CHECK(strstr(err.message, "mesh \"train\", line \"b\"") != NULL);
    CHECK(strstr(err.message, "worker \"w3\" (rank 3), which has never opened line \"b\"") != NULL);
  }
  distag_mesh_release(line);
  distag_mesh_release(mesh);
}

/* Rank 3 does not come to the second call: rank 2 waits there for it, and rank 0 misses rank 2 in the third. */
static void one_waits_elsewhere(members *group, int32_t rank) {
  distag_mesh *mesh = make_mesh(group, rank);
  distag_error err = DISTAG_ERROR_INIT;
  distag_tensor *y = NULL;
  made_call row = kUsual, column = kUsual;
  row.axes = "y";
  column.axes = "x";
  if (rank == 0) column.options.timeout_ns = 5 * DISTAG_SECOND;
  meet(group, rank);
  if (rank < 2) CHECK_OK(make(mesh, &row, &y, &err));
  if (rank == 2) CHECK_INT(make(mesh, &row, &y, &err), DISTAG_E_DEADLINE);
  if (rank == 3) meet(group, rank);
  distag_tensor_release(y);
  CHECK_INT(make(mesh, rank == 3 ? &row : &column, &y, &err), DISTAG_E_DEADLINE);
  if (rank != 3) meet(group, rank);
  const char *said =
      "waits for worker \"w2\" (rank 2), which is at call 1, all_reduce(float64[4, 6], sum, axes y), since ";
  if (!CHECK(strstr(err.message, said) != NULL &&
             strstr(err.message, ", and waits for rank 3; worker \"w3\" (rank 3), which is not in any call") != NULL)) {
    fprintf(stderr, "  %s\n", err.message);
  }
  distag_mesh_release(mesh);
}

static distag_future *begin(distag_mesh *mesh, double value) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_tensor *x = NULL;
  distag_future *future = NULL;
  CHECK_OK(distag_full(value, DISTAG_FLOAT64, NULL, 0, &x, &err));
  CHECK_OK(distag_collective_async(mesh, DISTAG_ALL_REDUCE, NULL, x, NULL, &future, &err));
  distag_tensor_release(x);
  return future;
}

/* As long as the odd one does not come 256 calls are under way: one more is refused, a blocking one waits for room. */
static void too_many(members *group, int32_t rank) {
  enum { kMost = 256 };
  for (int waits = 0; waits < 2; ++waits) {
    distag_mesh *mesh = make_mesh(group, rank);
    distag_error err = DISTAG_ERROR_INIT;
    distag_tensor *y = NULL;
    distag_future *futures[kMost], *more = NULL;
    if (rank == kOdd) meet(group, rank);
    for (int i = 0; i < kMost; ++i) futures[i] = begin(mesh, i);
    if (rank != kOdd) {
      if (!waits) {
        more = begin(mesh, 7);
        CHECK_FAILS(distag_future_wait(more, 120 * DISTAG_SECOND, &err), DISTAG_E_OVERLOADED,
                    "256 calls are under way");
        distag_future_release(more);
      }
      meet(group, rank);
    }
    if (waits) {
      CHECK_OK(make(mesh, &kUsual, &y, &err));
      distag_tensor_release(y);
    }
    CHECK_OK(distag_wait_all(futures, kMost, 120 * DISTAG_SECOND, &err));
    for (int i = 0; i < kMost; ++i) {
      distag_value *value = NULL;
      double item = 0;
      CHECK_OK(distag_future_get_value(futures[i], &value, &err));
      CHECK_OK(distag_value_get_tensor(value, &y, &err));
      CHECK_OK(distag_tensor_get_item(y, &item, &err));
      CHECK_NEAR(item, kSize * i);
      distag_future_release(futures[i]);
    }
    distag_mesh_release(mesh);
  }
}

/* A member releases the mesh, or shuts its worker down, while others go on: they hear that it has left. */
static void one_leaves(members *group, int32_t rank) {
  distag_mesh *mesh = make_mesh(group, rank);
  distag_error err = DISTAG_ERROR_INIT;
  distag_tensor *y = NULL;
  CHECK_OK(make(mesh, &kUsual, &y, &err));
  distag_tensor_release(y);
  if (rank != kOdd) {
    for (int i = 0; i < 2; ++i) {
      CHECK_FAILS(make(mesh, &kUsual, &y, &err), DISTAG_E_DISCONNECTED, "worker \"w2\" (rank 2) has left it");
      CHECK_INT(err.origin_rank, kOdd);
    }
  }
  distag_mesh_release(mesh);
}

static void one_shuts_down(members *group, int32_t rank) {
  distag_mesh *mesh = make_mesh(group, rank);
  distag_error err = DISTAG_ERROR_INIT;
  distag_tensor *y = NULL;
  CHECK_OK(make(mesh, &kUsual, &y, &err));
  distag_tensor_release(y);
  y = NULL;
  if (rank == kOdd) {
    CHECK_OK(distag_worker_shutdown(group->workers[rank], 0, NULL, &err));
    CHECK_FAILS(make(mesh, &kUsual, &y, &err), DISTAG_E_INVALID_STATE, "shut down");
  } else {
    CHECK_FAILS(make(mesh, &kUsual, &y, &err), DISTAG_E_DISCONNECTED, "w2");
    /* A mesh of those that are left. */
    static const int32_t left[] = {0, 1, 3};
    static const int64_t shape[] = {3};
    distag_mesh *next = NULL;
    CHECK_OK(distag_mesh_create(group->workers[rank], left, 3, shape, NULL, 1, NULL, &next, &err));
    CHECK_OK(make(next, &kUsual, &y, &err));
    distag_tensor_release(y);
    distag_mesh_release(next);
  }
  distag_mesh_release(mesh);
}

int main(void) {
  members group;
  alarm(500);
  CHECK_INT(members_start(&group, kSize, "mesh_mismatches"), 0);
  members_run(&group, kSize, other_calls);
  members_run(&group, kSize, other_order);
  members_run(&group, kSize, one_left_out);
  members_run(&group, kSize, one_gives_what_is_sharded);
  members_run(&group, kSize, one_misses_a_gather);
  members_run(&group, kSize, one_missing);
  members_run(&group, kSize, one_early);
  members_run(&group, kSize, another_line);
  members_run(&group, kSize, one_waits_elsewhere);
  members_run(&group, kSize, too_many);
  members_run(&group, kSize, one_leaves);
  members_run(&group, kSize, one_shuts_down);
  for (int i = 0; i < kSize; ++i) {
    distag_worker_shutdown(group.workers[i], 0, NULL, NULL);
    distag_worker_release(group.workers[i]);
  }
  return check_end();
}
