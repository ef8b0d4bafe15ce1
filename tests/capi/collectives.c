/* Collectives of all kinds on meshes of 1 to 4 members: values, sub-axes, uneven and empty tensors, statistics. */
#include <stdlib.h>

#include "capi/check.h"
#include "capi/support/members.h"

static distag_mesh *make_mesh(members *group, const int64_t *shape, size_t ndim, int32_t rank) {
  static const char *const names[] = {"x", "y"};
  distag_error err = DISTAG_ERROR_INIT;
  distag_mesh *mesh = NULL;
  CHECK_OK(distag_mesh_create(group->workers[rank], NULL, 0, shape, names, ndim, NULL, &mesh, &err));
  return mesh;
}

/* Numbers that depend on the member, of shape [rows, columns]. */
static distag_tensor *numbers(int32_t rank, int64_t rows, int64_t columns) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_tensor *x = NULL;
  const int64_t shape[] = {rows, columns};
  const size_t count = (size_t)(rows * columns);
  double *data = calloc(count + 1, sizeof *data);
  for (size_t i = 0; i < count; ++i) data[i] = 1000.0 * rank + (double)i;
  CHECK_OK(distag_tensor_create(data, count * sizeof *data, DISTAG_FLOAT64, shape, 2, &x, &err));
  free(data);
  return x;
}

static void check_shape(distag_tensor *y, int64_t rows, int64_t columns) {
  CHECK_INT(distag_tensor_get_ndim(y), 2);
  CHECK_INT(distag_tensor_get_shape(y)[0], rows);
  CHECK_INT(distag_tensor_get_shape(y)[1], columns);
}

static double *values_of(distag_tensor *y) {
  distag_error err = DISTAG_ERROR_INIT;
  double *values = calloc((size_t)distag_tensor_get_count(y) + 1, sizeof *values);
  CHECK_OK(distag_tensor_copy_data(y, values, distag_tensor_get_size(y), &err));
  return values;
}

static distag_tensor *call(distag_mesh *mesh, uint32_t kind, const char *axes, distag_tensor *x,
                           distag_collective_options options) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_tensor *y = NULL;
  options.struct_size = sizeof options;
  CHECK_OK(distag_collective(mesh, kind, axes, x, &options, &y, &err));
  distag_tensor_release(x);
  return y;
}

/* Element i of the sum over members first .. last of `numbers`. */
static double sum_of(int32_t first, int32_t last, int64_t i) {
  double sum = 0;
  for (int32_t rank = first; rank <= last; ++rank) sum += 1000.0 * rank + (double)i;
  return sum;
}

/* 16 bytes go directly; 1.6 MB in chunks, of which 4 members cannot have equal ones. */
static void reductions(distag_mesh *mesh, int32_t rank, int32_t count) {
  static const int64_t rows[] = {0, 1, 9, 100001};
  for (size_t k = 0; k < 4; ++k) {
    distag_tensor *y = call(mesh, DISTAG_ALL_REDUCE, NULL, numbers(rank, rows[k], 2), (distag_collective_options){0});
    check_shape(y, rows[k], 2);
    double *values = values_of(y);
    int64_t wrong = 0;
    for (int64_t i = 0; i < 2 * rows[k]; ++i) wrong += values[i] != sum_of(0, count - 1, i);
    CHECK_INT(wrong, 0);
    free(values);
    distag_tensor_release(y);
    y = call(mesh, DISTAG_REDUCE, NULL, numbers(rank, rows[k], 2), (distag_collective_options){.root = count - 1});
    CHECK((y != NULL) == (rank == count - 1));
    if (y != NULL) {
      check_shape(y, rows[k], 2);
      values = values_of(y);
      for (int64_t i = 0; i < 2 * rows[k]; ++i) wrong += values[i] != sum_of(0, count - 1, i);
      CHECK_INT(wrong, 0);
      free(values);
    }
    distag_tensor_release(y);
  }
  static const struct {
    uint32_t reduction;
    double of_two[2]; /* of elements 1 of members 0 and 1 */
  } other[] = {{DISTAG_PRODUCT, {1, 1001}}, {DISTAG_MIN, {1, 1}}, {DISTAG_MAX, {1, 1001}}};
  for (size_t k = 0; k < 3 && count <= 2; ++k) {
    distag_tensor *y = call(mesh, DISTAG_ALL_REDUCE, NULL, numbers(rank, 1, 2),
                            (distag_collective_options){.reduction = other[k].reduction});
    double *values = values_of(y);
    CHECK_NEAR(values[1], other[k].of_two[count - 1]);
    free(values);
    distag_tensor_release(y);
  }
}

/* Member i gives i rows: the first has none. */
static void gathers(distag_mesh *mesh, int32_t rank, int32_t count) {
  distag_tensor *y = call(mesh, DISTAG_ALL_GATHER, NULL, numbers(rank, rank, 3), (distag_collective_options){0});
  check_shape(y, (int64_t)count * (count - 1) / 2, 3);
  double *values = values_of(y);
  int64_t row = 0;
  for (int32_t from = 0; from < count; ++from) {
    for (int64_t i = 0; i < from; ++i, ++row) CHECK_NEAR(values[3 * row], 1000.0 * from + 3.0 * (double)i);
  }
  free(values);
  distag_tensor_release(y);
  y = call(mesh, DISTAG_ALL_GATHER, NULL, numbers(rank, 2, 1), (distag_collective_options){.dim = -1});
  check_shape(y, 2, count);
  values = values_of(y);
  for (int32_t from = 0; from < count; ++from) CHECK_NEAR(values[count + from], 1000.0 * from + 1);
  free(values);
  distag_tensor_release(y);
  distag_error err = DISTAG_ERROR_INIT;
  distag_collective_options options = {.struct_size = sizeof options, .reduction = DISTAG_MIN};
  distag_tensor *x = numbers(rank, 1, 1);
  CHECK_FAILS(distag_collective(mesh, DISTAG_ALL_GATHER, NULL, x, &options, &y, &err), DISTAG_E_UNSUPPORTED,
              "reduction");
  CHECK(y == NULL);
  distag_tensor_release(x);
}

static int64_t block_offset(int64_t size, int64_t parts, int64_t index) {
  const int64_t block = size / parts + (size % parts != 0);
  return index * block < size ? index * block : size;
}

/* 5 rows over 4 members: blocks of 2, 2, 1 and 0. */
static void scatters(distag_mesh *mesh, int32_t rank, int32_t count) {
  const int64_t first = block_offset(5, count, rank), end = block_offset(5, count, rank + 1);
  distag_tensor *y = call(mesh, DISTAG_REDUCE_SCATTER, NULL, numbers(rank, 5, 2), (distag_collective_options){0});
  check_shape(y, end - first, 2);
  double *values = values_of(y);
  for (int64_t i = 0; i < 2 * (end - first); ++i) CHECK_NEAR(values[i], sum_of(0, count - 1, 2 * first + i));
  free(values);
  distag_tensor_release(y);
  y = call(mesh, DISTAG_ALL_TO_ALL, NULL, numbers(rank, 5, 2), (distag_collective_options){.dim = 0, .dim_to = 1});
  check_shape(y, end - first, 2 * count);
  values = values_of(y);
  for (int64_t i = 0; i < end - first; ++i) {
    for (int32_t from = 0; from < count; ++from) {
      CHECK_NEAR(values[i * 2 * count + 2 * from], 1000.0 * from + 2.0 * (double)(first + i));
    }
  }
  free(values);
  distag_tensor_release(y);
}

static void copies(distag_mesh *mesh, int32_t rank, int32_t count) {
  static const int64_t rows[] = {0, 3, 50001};
  for (size_t k = 0; k < 3; ++k) {
    distag_tensor *y =
        call(mesh, DISTAG_BROADCAST, NULL, numbers(rank, rows[k], 2), (distag_collective_options){.root = count - 1});
    check_shape(y, rows[k], 2);
    double *values = values_of(y);
    int64_t wrong = 0;
    for (int64_t i = 0; i < 2 * rows[k]; ++i) wrong += values[i] != 1000.0 * (count - 1) + (double)i;
    CHECK_INT(wrong, 0);
    free(values);
    distag_tensor_release(y);
  }
  for (int64_t shift = -1; shift <= 5; ++shift) {
    distag_tensor *y =
        call(mesh, DISTAG_PERMUTE, NULL, numbers(rank, 1, 2), (distag_collective_options){.shift = shift});
    double *values = values_of(y);
    CHECK_NEAR(values[1], 1000.0 * (double)(((rank - shift) % count + count) % count) + 1);
    free(values);
    distag_tensor_release(y);
  }
}

/* A later write on the argument does not show in the result, which is a tensor of its own. */
static void results_are_new(distag_mesh *mesh, int32_t rank, int32_t count) {
  distag_error err = DISTAG_ERROR_INIT;
  static const uint32_t kinds[] = {DISTAG_BROADCAST, DISTAG_PERMUTE, DISTAG_ALL_REDUCE, DISTAG_ALL_GATHER};
  static const double other[] = {-1, -1};
  for (size_t k = 0; k < 4; ++k) {
    distag_tensor *x = numbers(rank, 1, 2), *y = NULL;
    distag_collective_options options = DISTAG_COLLECTIVE_OPTIONS_INIT;
    options.shift = count;
    CHECK_OK(distag_collective(mesh, kinds[k], NULL, x, &options, &y, &err));
    CHECK(distag_tensor_get_id(x) != distag_tensor_get_id(y));
    double *before = values_of(y);
    CHECK_OK(distag_tensor_write(x, other, sizeof other, &err));
    double *after = values_of(y);
    CHECK(before[0] == after[0] && before[1] == after[1] && after[1] >= 0);
    free(before);
    free(after);
    distag_tensor_release(x);
    distag_tensor_release(y);
  }
}

static void all_kinds(members *group, int32_t rank) {
  const int64_t shape[] = {group->count};
  distag_mesh *mesh = make_mesh(group, shape, 1, rank);
  reductions(mesh, rank, group->count);
  gathers(mesh, rank, group->count);
  scatters(mesh, rank, group->count);
  copies(mesh, rank, group->count);
  results_are_new(mesh, rank, group->count);
  distag_mesh_release(mesh);
}

/* On a mesh (2, 2): along each axis, along both in either order. */
static void sub_axes(members *group, int32_t rank) {
  static const int64_t shape[] = {2, 2};
  distag_mesh *mesh = make_mesh(group, shape, 2, rank);
  const int32_t row = rank / 2, column = rank % 2;
  static const struct {
    const char *axes;
    int32_t order[4]; /* of ranks, for member 0 */
    size_t count;
  } cases[] = {{"x", {0, 2}, 2}, {"'y'", {0, 1}, 2}, {"('x', 'y')", {0, 1, 2, 3}, 4}, {"(1, 0)", {0, 2, 1, 3}, 4}};
  for (size_t k = 0; k < 4; ++k) {
    distag_tensor *y =
        call(mesh, DISTAG_ALL_GATHER, cases[k].axes, numbers(rank, 1, 1), (distag_collective_options){0});
    check_shape(y, (int64_t)cases[k].count, 1);
    double *values = values_of(y);
    const int32_t base = k == 0 ? column : k == 1 ? 2 * row : 0;
    for (size_t i = 0; i < cases[k].count; ++i) CHECK_NEAR(values[i], 1000.0 * (base + cases[k].order[i]));
    free(values);
    distag_tensor_release(y);
  }
  distag_tensor *y = call(mesh, DISTAG_ALL_REDUCE, "y", numbers(rank, 1, 1), (distag_collective_options){0});
  double *values = values_of(y);
  CHECK_NEAR(values[0], sum_of(2 * row, 2 * row + 1, 0));
  free(values);
  distag_tensor_release(y);
  distag_mesh_release(mesh);
}

/* Counters after each call, exactly: direct sums send all to all, larger ones twice their chunks. */
static void statistics(members *group, int32_t rank) {
  static const int64_t shape[] = {2, 2};
  distag_error err = DISTAG_ERROR_INIT;
  distag_mesh *mesh = make_mesh(group, shape, 2, rank);
  distag_mesh_stats stats = DISTAG_MESH_STATS_INIT;
  CHECK_OK(distag_mesh_get_stats(mesh, &stats, &err));
  CHECK(stats.calls == 0 && stats.bytes_sent == 0 && stats.bytes_received == 0 && stats.bytes_held_max == 0);
  distag_tensor_release(call(mesh, DISTAG_ALL_REDUCE, NULL, numbers(rank, 1, 8), (distag_collective_options){0}));
  CHECK_OK(distag_mesh_get_stats(mesh, &stats, &err));
  CHECK_INT(stats.calls, 1);
  CHECK_INT(stats.all_reduces, 1);
  CHECK_INT(stats.bytes_sent, 3 * 64);
  CHECK_INT(stats.bytes_received, 3 * 64);
  CHECK_INT(stats.bytes_held, 0);
  CHECK_INT(stats.bytes_held_max, 3 * 64);
  distag_tensor_release(call(mesh, DISTAG_ALL_REDUCE, NULL, numbers(rank, 100000, 1), (distag_collective_options){0}));
  CHECK_OK(distag_mesh_get_stats(mesh, &stats, &err));
  CHECK_INT(stats.all_reduces, 2);
  CHECK_INT(stats.bytes_sent, 3 * 64 + 2 * 3 * 200000);
  CHECK_INT(stats.bytes_received, 3 * 64 + 2 * 3 * 200000);
  distag_tensor_release(call(mesh, DISTAG_ALL_GATHER, "x", numbers(rank, 1, 1), (distag_collective_options){0}));
  distag_tensor_release(call(mesh, DISTAG_REDUCE_SCATTER, "x", numbers(rank, 2, 1), (distag_collective_options){0}));
  distag_tensor_release(
      call(mesh, DISTAG_ALL_TO_ALL, "x", numbers(rank, 2, 1), (distag_collective_options){.dim_to = 1}));
  distag_tensor_release(call(mesh, DISTAG_BROADCAST, "x", numbers(rank, 1, 1), (distag_collective_options){0}));
  distag_tensor_release(call(mesh, DISTAG_PERMUTE, "x", numbers(rank, 1, 1), (distag_collective_options){.shift = 1}));
  CHECK_OK(distag_mesh_get_stats(mesh, &stats, &err));
  CHECK_INT(stats.calls, 7);
  CHECK_INT(stats.all_gathers, 1);
  CHECK_INT(stats.reduce_scatters, 1);
  CHECK_INT(stats.all_to_alls, 1);
  CHECK_INT(stats.broadcasts, 1);
  CHECK_INT(stats.moves, 1);
  CHECK_INT(stats.hidden_moves, 0);
  CHECK_INT(stats.plan_misses, 0);
  CHECK_INT(stats.bytes_sent, 1200192 + 4 * 8 + (rank < 2 ? 8 : 0));
  CHECK_INT(stats.bytes_received, 1200192 + 4 * 8 + (rank < 2 ? 0 : 8));
  distag_mesh_release(mesh);
}

/* All members have the same bits of a sum, and its first elements have the same bits in a shorter tensor. */
static double sums[4][2][40001];

static void same_bits(members *group, int32_t rank) {
  static const int64_t shape[] = {4}, sizes[] = {101, 40001};
  distag_error err = DISTAG_ERROR_INIT;
  distag_mesh *mesh = make_mesh(group, shape, 1, rank);
  for (size_t k = 0; k < 2; ++k) {
    distag_tensor *x = NULL, *y = NULL;
    CHECK_OK(distag_randn((uint64_t)rank + 1, DISTAG_FLOAT64, &sizes[1], 1, &x, &err));
    CHECK_OK(distag_slice(x, 0, 0, sizes[k], 1, &y, &err));
    distag_tensor_release(x);
    y = call(mesh, DISTAG_ALL_REDUCE, NULL, y, (distag_collective_options){0});
    CHECK_OK(distag_tensor_copy_data(y, sums[rank][k], distag_tensor_get_size(y), &err));
    distag_tensor_release(y);
  }
  distag_mesh_release(mesh);
}

int main(void) {
  for (int32_t count = 1; count <= 4; ++count) {
    members group;
    char name[32];
    snprintf(name, sizeof name, "collectives-%d", (int)count);
    CHECK_INT(members_start(&group, count, name), 0);
    members_run(&group, count, all_kinds);
    if (count == 4) {
      members_run(&group, count, sub_axes);
      members_run(&group, count, statistics);
      members_run(&group, count, same_bits);
      for (int rank = 0; rank < 4; ++rank) {
        CHECK(memcmp(sums[rank][0], sums[0][1], 101 * sizeof(double)) == 0);
        CHECK(memcmp(sums[rank][1], sums[0][1], sizeof sums[0][1]) == 0);
      }
    }
    CHECK_INT(members_end(&group), 0);
  }
  return check_end();
}
