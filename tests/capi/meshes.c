/* Meshes: making them, their lines, options and reports, the mesh without a worker, and all that is refused. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>

#include "capi/check.h"
#include "capi/support/members.h"

static const char *const kNames[] = {"x", "y"};

static distag_tensor *ones(int64_t count) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_tensor *x = NULL;
  CHECK_OK(distag_ones(DISTAG_FLOAT64, &count, 1, &x, &err));
  return x;
}

static distag_mesh *local_mesh(const int64_t *shape, size_t ndim, const distag_mesh_options *options, size_t count) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_mesh *mesh = NULL;
  CHECK_OK(distag_mesh_create(NULL, NULL, count, shape, kNames, ndim, options, &mesh, &err));
  return mesh;
}

/* ---- without a worker ---- */

static void boxes_and_specs(void) {
  static const int64_t shape[] = {2, 3}, tensor[] = {5, 7};
  distag_error err = DISTAG_ERROR_INIT;
  distag_mesh *mesh = local_mesh(shape, 2, NULL, 6);
  distag_mesh_info info = DISTAG_MESH_INFO_INIT;
  CHECK_OK(distag_mesh_get_info(mesh, &info, &err));
  CHECK_INT(info.ndim, 2);
  CHECK_INT(info.count, 6);
  CHECK_INT(info.position, -1);
  CHECK_TEXT(info.name, "mesh");
  CHECK(info.shape[0] == 2 && info.shape[1] == 3);
  CHECK_TEXT(info.axis_names[1], "y");
  for (int32_t i = 0; i < 6; ++i) CHECK(info.ranks[i] == i && info.granules[i] == 0);
  int64_t offset[2], extent[2], replica;
  CHECK_OK(distag_mesh_copy_box(mesh, "('y', None)", tensor, 2, 5, offset, extent, &replica, &err));
  CHECK(offset[0] == 4 && offset[1] == 0 && extent[0] == 1 && extent[1] == 7);
  CHECK_INT(replica, 1);
  CHECK_OK(distag_mesh_copy_box(mesh, "()", NULL, 0, 4, NULL, NULL, &replica, &err));
  CHECK_INT(replica, 4);
  static const struct {
    uint32_t form;
    const char *text;
  } forms[] = {{0, "('y', None) sum('x')"},
               {DISTAG_SPEC_TUPLE, "('y', None) sum('x')"},
               {DISTAG_SPEC_PLACEMENTS, "P(sum), S(0)"},
               {DISTAG_SPEC_HLO, "{devices=[3,1,2]0,3,1,4,2,5 last_tile_dims={unreduced}}"},
               {DISTAG_SPEC_HLO_IOTA, "{devices=[3,1,2]<=[2,3]T(1,0) last_tile_dims={unreduced}}"},
               {DISTAG_SPEC_SHARDY, "sharding<@mesh, [{\"y\"}, {}], unreduced={\"x\"}>"}};
  for (size_t from = 0; from < 6; ++from) {
    for (size_t to = 0; to < 6; ++to) {
      char text[128];
      size_t size = 0;
      CHECK_OK(distag_mesh_copy_spec(mesh, forms[from].text, 2, forms[to].form, text, sizeof text, &size, &err));
      CHECK_TEXT(text, forms[to].text);
      CHECK_INT(size, strlen(forms[to].text));
    }
  }
  char cut[6];
  size_t size = 0;
  CHECK_OK(distag_mesh_copy_spec(mesh, "(x, y)", 2, 0, cut, sizeof cut, &size, &err));
  CHECK_TEXT(cut, "('x',");
  CHECK_INT(size, 10);
  CHECK_OK(distag_mesh_copy_spec(mesh, "(x, y)", 2, 0, NULL, 0, &size, &err));
  CHECK_INT(size, 10);
  distag_mesh_release(mesh);
}

static void pictures(void) {
  static const int64_t shape[] = {2, 2}, tensor[] = {4, 6};
  distag_error err = DISTAG_ERROR_INIT;
  distag_mesh *mesh = local_mesh(shape, 2, NULL, 4);
  distag_picture_options options = DISTAG_PICTURE_OPTIONS_INIT;
  char text[2048];
  size_t size = 0;
  CHECK_OK(distag_visualize_sharding(mesh, "('x', None)", NULL, 0, NULL, text, sizeof text, &size, &err));
  CHECK_TEXT(text,
             "{devices=[2,1,2]0,1,2,3 last_tile_dim_replicate}\n"
             "┌────────────┐\n"
             "│ CPU [0, 1] │\n"
             "├────────────┤\n"
             "│ CPU [2, 3] │\n"
             "└────────────┘\n");
  CHECK_INT(size, strlen(text));
  options.label = "<w>";
  CHECK_OK(distag_visualize_sharding(mesh, "(x, y)", tensor, 2, &options, text, sizeof text, &size, &err));
  CHECK_TEXT(text,
             "{devices=[2,2]0,1,2,3}\n"
             "┌──────────┬──────────┐\n"
             "│  <w> 0   │  <w> 1   │\n"
             "│ 0:2, 0:3 │ 0:2, 3:6 │\n"
             "├──────────┼──────────┤\n"
             "│  <w> 2   │  <w> 3   │\n"
             "│ 2:4, 0:3 │ 2:4, 3:6 │\n"
             "└──────────┴──────────┘\n");
  options.format = DISTAG_PICTURE_JSON;
  CHECK_OK(distag_visualize_sharding(mesh, "(None, y)", tensor, 2, &options, text, sizeof text, &size, &err));
  CHECK_TEXT(text,
             "{\"boxes\":[{\"offset\":[0,0],\"extent\":[4,3],\"members\":[0,2]},"
             "{\"offset\":[0,3],\"extent\":[4,3],\"members\":[1,3]}]}");
  char svg[8192];
  options.format = DISTAG_PICTURE_SVG;
  CHECK_OK(distag_visualize_sharding(mesh, "(None, y)", tensor, 2, &options, svg, sizeof svg, &size, &err));
  CHECK(strncmp(svg, "<svg ", 5) == 0 && strcmp(svg + size - 7, "</svg>\n") == 0);
  CHECK(strstr(svg, "<desc>elements: members\n0:4, 0:3: &lt;w&gt; [0, 2]\n") != NULL);
  CHECK(strstr(svg, "<w>") == NULL);
  options.format = DISTAG_PICTURE_TEXT;
  options.label = "TPU";
  CHECK_OK(
      distag_visualize_sharding(NULL, "{devices=[2,2]0,1,2,3}", NULL, 0, &options, text, sizeof text, &size, &err));
  CHECK(strstr(text, "│ TPU 0 │ TPU 1 │\n") != NULL && strstr(text, "│ TPU 2 │ TPU 3 │\n") != NULL);
  options.format = 2;
  CHECK_FAILS(distag_visualize_sharding(mesh, "()", NULL, 0, &options, NULL, 0, &size, &err), DISTAG_E_UNSUPPORTED,
              "format");
  options.format = 0;
  options.width = 5;
  CHECK_FAILS(distag_visualize_sharding(mesh, "()", NULL, 0, &options, NULL, 0, &size, &err), DISTAG_E_INVALID_ARGUMENT,
              "width");
  options.width = 0;
  options.row_dim = 3;
  CHECK_FAILS(distag_visualize_sharding(mesh, "(x, y)", NULL, 0, &options, NULL, 0, &size, &err),
              DISTAG_E_INVALID_ARGUMENT, "dim 3");
  options.row_dim = 0;
  options.color = 2;
  CHECK_FAILS(distag_visualize_sharding(mesh, "(x, y)", NULL, 0, &options, NULL, 0, &size, &err),
              DISTAG_E_INVALID_ARGUMENT, "color");
  CHECK_FAILS(distag_visualize_sharding(NULL, "(x, y)", NULL, 0, NULL, NULL, 0, &size, &err), DISTAG_E_INVALID_ARGUMENT,
              "HLO");
  CHECK_FAILS(distag_visualize_sharding(mesh, "(x, y, z)", NULL, 0, NULL, NULL, 0, &size, &err),
              DISTAG_E_INVALID_ARGUMENT, "no axis z");
  distag_mesh_release(mesh);
}

/* The example of PyTorch/XLA: two granules of four, data parallel across them. */
static void hybrid(void) {
  static const int64_t inner[] = {1, 4}, outer[] = {2, 1}, granules[] = {7, 3, 7, 3, 7, 3, 7, 3};
  static const int32_t ranks[] = {1, 3, 5, 7, 0, 2, 4, 6};
  distag_error err = DISTAG_ERROR_INIT;
  distag_mesh_options options = DISTAG_MESH_OPTIONS_INIT;
  options.name = "hybrid";
  options.outer_shape = outer;
  options.granules = granules;
  distag_mesh *mesh = local_mesh(inner, 2, &options, 8);
  distag_mesh_info info = DISTAG_MESH_INFO_INIT;
  CHECK_OK(distag_mesh_get_info(mesh, &info, &err));
  CHECK_TEXT(info.name, "hybrid");
  CHECK(info.shape[0] == 2 && info.shape[1] == 4);
  for (int i = 0; i < 8; ++i) CHECK(info.ranks[i] == ranks[i] && info.granules[i] == (i < 4 ? 3 : 7));
  distag_mesh_release(mesh);
  static const int64_t wide[] = {1, 8}, three[] = {3, 1}, uneven[] = {0, 0, 0, 1, 1, 1, 1, 1};
  CHECK_FAILS(distag_mesh_create(NULL, NULL, 8, wide, kNames, 2, &options, &mesh, &err), DISTAG_E_INVALID_ARGUMENT,
              "granule");
  options.outer_shape = three;
  CHECK_FAILS(distag_mesh_create(NULL, NULL, 8, inner, kNames, 2, &options, &mesh, &err), DISTAG_E_INVALID_ARGUMENT,
              "outer shape");
  options.outer_shape = outer;
  options.granules = uneven;
  CHECK_FAILS(distag_mesh_create(NULL, NULL, 8, inner, kNames, 2, &options, &mesh, &err), DISTAG_E_INVALID_ARGUMENT,
              "granules of one size");
  CHECK_FAILS(distag_mesh_create(NULL, NULL, 8, NULL, NULL, 0, &options, &mesh, &err), DISTAG_E_INVALID_ARGUMENT,
              "outer_shape");
}

static void refused(distag_worker *worker) {
  static const int64_t pair[] = {2}, zero[] = {0}, open[] = {-1, -1}, odd[] = {3},
                       many[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
  static const int32_t twice[] = {0, 0}, negative[] = {0, -1};
  static const char *const bad[] = {"1x"}, *const same[] = {"x", "x"}, *const none[] = {"None"};
  distag_error err = DISTAG_ERROR_INIT;
  distag_mesh *mesh = NULL;
  distag_mesh_options options = DISTAG_MESH_OPTIONS_INIT;
#define REFUSED(ranks, count, shape, names, ndim, word)                                            \
  CHECK_FAILS(distag_mesh_create(worker, ranks, count, shape, names, ndim, &options, &mesh, &err), \
              DISTAG_E_INVALID_ARGUMENT, word);                                                    \
  CHECK(mesh == NULL)
  REFUSED(twice, 2, pair, kNames, 1, "rank 0 is there twice");
  REFUSED(negative, 2, pair, kNames, 1, "negative");
  REFUSED(twice, 1, zero, kNames, 1, "at least 1");
  REFUSED(twice, 1, open, kNames, 2, "only one may be -1");
  REFUSED(twice, 1, odd, kNames, 1, "does not fit 1 ranks");
  REFUSED(twice, 1, many, NULL, 9, "a mesh has 1 to 8");
  REFUSED(twice, 1, many, bad, 1, "\"1x\"");
  REFUSED(twice, 1, many, same, 2, "two axes are named \"x\"");
  REFUSED(twice, 1, many, none, 1, "None");
  REFUSED(twice, 1, NULL, kNames, 0, "axis_names");
  REFUSED(twice, 1, NULL, kNames, 3, "ndim 3");
  options.check_replicas = 2;
  REFUSED(twice, 1, many, kNames, 1, "check_replicas");
  options.check_replicas = 0;
  options.keep_gathered = 2;
  REFUSED(twice, 1, many, kNames, 1, "keep_gathered");
  options.keep_gathered = 0;
  options.timeout_ns = -5;
  REFUSED(twice, 1, many, kNames, 1, "timeout_ns");
  options.timeout_ns = 0;
  options.name = "";
  REFUSED(twice, 1, many, kNames, 1, "name");
  options.name = NULL;
  options.hidden_moves = 4;
  CHECK_FAILS(distag_mesh_create(worker, twice, 1, many, kNames, 1, &options, &mesh, &err), DISTAG_E_UNSUPPORTED,
              "hidden_moves");
  options.hidden_moves = 0;
  options.struct_size = 8;
  REFUSED(twice, 1, many, kNames, 1, "struct_size");
#undef REFUSED
  CHECK_FAILS(distag_mesh_create(worker, NULL, 0, pair, kNames, 1, NULL, NULL, &err), DISTAG_E_INVALID_ARGUMENT,
              "out_mesh is NULL");
}

static void refused_of_a_mesh(void) {
  static const int64_t shape[] = {2}, tensor[] = {4}, huge[] = {INT64_MAX};
  distag_error err = DISTAG_ERROR_INIT;
  distag_mesh *mesh = local_mesh(shape, 1, NULL, 2), *line = NULL;
  distag_future *future = NULL;
  distag_tensor *x = ones(2), *y = NULL;
  distag_mesh_info info = DISTAG_MESH_INFO_INIT;
  distag_mesh_stats stats = DISTAG_MESH_STATS_INIT;
  int64_t offset[1], extent[1], replica = 5;
  size_t size = 0;
  CHECK_FAILS(distag_mesh_open_line(mesh, "b", &line, &err), DISTAG_E_INVALID_STATE, "without a worker");
  CHECK_FAILS(distag_collective(mesh, DISTAG_ALL_REDUCE, NULL, x, NULL, &y, &err), DISTAG_E_INVALID_STATE,
              "without a worker");
  CHECK_FAILS(distag_collective_async(mesh, DISTAG_ALL_REDUCE, NULL, x, NULL, &future, &err), DISTAG_E_INVALID_STATE,
              "without a worker");
  CHECK_FAILS(distag_mesh_create_async(NULL, NULL, 2, shape, NULL, 1, NULL, &line, &future, &err), DISTAG_E_UNSUPPORTED,
              "distag_mesh_create");
  CHECK_OK(distag_mesh_get_stats(mesh, &stats, &err));
  CHECK_INT(stats.calls, 0);
  CHECK_OK(distag_mesh_copy_report(mesh, NULL, 0, &size, &err));
  CHECK(size > 20);
  CHECK_FAILS(distag_mesh_copy_box(mesh, "('z',)", tensor, 1, 0, offset, extent, &replica, &err),
              DISTAG_E_INVALID_ARGUMENT, "no axis z");
  CHECK_INT(replica, 0);
  CHECK_FAILS(distag_mesh_copy_box(mesh, "('x',)", tensor, 1, 2, offset, extent, &replica, &err),
              DISTAG_E_INVALID_ARGUMENT, "position 2");
  CHECK_FAILS(distag_mesh_copy_box(mesh, "('x',)", huge, 1, 0, offset, extent, &replica, &err),
              DISTAG_E_INVALID_ARGUMENT, "9223372036854775807");
  CHECK_FAILS(distag_mesh_copy_box(mesh, "('x',)", NULL, 1, 0, offset, extent, &replica, &err),
              DISTAG_E_INVALID_ARGUMENT, "shape is NULL");
  CHECK_FAILS(distag_mesh_copy_box(mesh, "('x',)", tensor, 1, 0, NULL, extent, &replica, &err),
              DISTAG_E_INVALID_ARGUMENT, "offset is NULL");
  CHECK_FAILS(distag_mesh_copy_box(mesh, "('x',)", tensor, 1, 0, offset, NULL, &replica, &err),
              DISTAG_E_INVALID_ARGUMENT, "extent is NULL");
  CHECK_FAILS(distag_mesh_copy_box(mesh, "('x',)", tensor, 1, 0, offset, extent, NULL, &err), DISTAG_E_INVALID_ARGUMENT,
              "out_replica is NULL");
  CHECK_FAILS(distag_mesh_copy_box(mesh, NULL, tensor, 1, 0, offset, extent, &replica, &err), DISTAG_E_INVALID_ARGUMENT,
              "spec is NULL");
  CHECK_FAILS(distag_mesh_copy_spec(mesh, "('x', 'x')", 2, 0, NULL, 0, &size, &err), DISTAG_E_INVALID_ARGUMENT,
              "twice");
  CHECK_FAILS(distag_mesh_copy_spec(mesh, "('x',)", 2, 0, NULL, 0, &size, &err), DISTAG_E_INVALID_ARGUMENT,
              "1 items for a tensor of 2 dims");
  CHECK_FAILS(distag_mesh_copy_spec(mesh, "()", 17, 0, NULL, 0, &size, &err), DISTAG_E_INVALID_ARGUMENT, "17 dims");
  CHECK_FAILS(distag_mesh_copy_spec(mesh, "P(max)", 1, 0, NULL, 0, &size, &err), DISTAG_E_UNSUPPORTED, "max");
  CHECK_FAILS(distag_mesh_copy_spec(mesh, "()", 0, 6, NULL, 0, &size, &err), DISTAG_E_UNSUPPORTED, "form");
  CHECK_FAILS(distag_mesh_copy_spec(mesh, "()", 0, 0, NULL, 4, &size, &err), DISTAG_E_INVALID_ARGUMENT, "buffer");
  CHECK_FAILS(distag_mesh_copy_spec(mesh, "()", 0, 0, NULL, 0, NULL, &err), DISTAG_E_INVALID_ARGUMENT, "out_size");
  info.struct_size = 4;
  CHECK_FAILS(distag_mesh_get_info(mesh, &info, &err), DISTAG_E_INVALID_ARGUMENT, "struct_size");
  CHECK_FAILS(distag_mesh_get_info((distag_mesh *)(void *)x, &info, &err), DISTAG_E_INVALID_ARGUMENT,
              "a tensor handle");
  CHECK_FAILS(distag_mesh_get_stats(mesh, NULL, &err), DISTAG_E_INVALID_ARGUMENT, "NULL");
  distag_mesh_release(NULL);
  distag_mesh_retain(NULL);
  distag_tensor_release(x);
  distag_mesh_release(mesh);
}

/* A NULL mesh is refused by name, and passes on a failure that err holds already. */
#define CHAINED(call)                                                                              \
  do {                                                                                             \
    distag_error err = DISTAG_ERROR_INIT;                                                          \
    check_fails(call, DISTAG_E_INVALID_ARGUMENT, &err, "mesh is NULL", __FILE__, __LINE__, #call); \
    distag_error_set(&err, 1999, "kept");                                                          \
    check_fails(call, 1999, &err, "kept", __FILE__, __LINE__, #call);                              \
  } while (0)

static void chains(void) {
  distag_mesh_info info = DISTAG_MESH_INFO_INIT;
  distag_mesh_stats stats = DISTAG_MESH_STATS_INIT;
  distag_mesh *line = NULL;
  distag_tensor *x = ones(1), *y = NULL;
  distag_future *future = NULL;
  int64_t replica = 0;
  size_t size = 0;
  CHAINED(distag_mesh_get_info(NULL, &info, &err));
  CHAINED(distag_mesh_get_stats(NULL, &stats, &err));
  CHAINED(distag_mesh_open_line(NULL, "b", &line, &err));
  CHAINED(distag_mesh_copy_report(NULL, NULL, 0, &size, &err));
  CHAINED(distag_mesh_copy_box(NULL, "()", NULL, 0, 0, NULL, NULL, &replica, &err));
  CHAINED(distag_mesh_copy_spec(NULL, "()", 0, 0, NULL, 0, &size, &err));
  CHAINED(distag_collective(NULL, DISTAG_ALL_REDUCE, NULL, x, NULL, &y, &err));
  CHAINED(distag_collective_async(NULL, DISTAG_ALL_REDUCE, NULL, x, NULL, &future, &err));
  CHECK(line == NULL && y == NULL && future == NULL);
  distag_tensor_release(x);
}

/* ---- with workers ---- */

static void environment(members *group, int32_t rank) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_mesh *mesh = NULL;
  distag_mesh_info info = DISTAG_MESH_INFO_INIT;
  CHECK_OK(distag_mesh_create(group->workers[rank], NULL, 0, NULL, kNames, 2, NULL, &mesh, &err));
  CHECK_OK(distag_mesh_get_info(mesh, &info, &err));
  const char *variable = getenv("DISTAG_AUTO_SPMD_MESH");
  CHECK_INT(info.shape[0], variable == NULL ? 4 : 2);
  CHECK_INT(info.shape[1], variable == NULL ? 1 : 2);
  CHECK_INT(info.position, rank);
  for (int i = 0; i < 4; ++i) CHECK(info.ranks[i] == i && info.granules[i] == 0);
  distag_mesh_release(mesh);
}

static void bad_environment(members *group, int32_t rank) {
  static const char *const texts[] = {
      "", "2,x", "2,,2", "0,4", "-1,4", "2,2 ", "1,1,1,1,1,1,1,1,4", "99999999999999999999"};
  distag_error err = DISTAG_ERROR_INIT;
  distag_mesh *mesh = NULL;
  for (size_t i = 0; i < sizeof texts / sizeof *texts; ++i) {
    setenv("DISTAG_AUTO_SPMD_MESH", texts[i], 1);
    CHECK_FAILS(distag_mesh_create(group->workers[rank], NULL, 0, NULL, NULL, 0, NULL, &mesh, &err),
                DISTAG_E_INVALID_ARGUMENT, "DISTAG_AUTO_SPMD_MESH");
  }
  setenv("DISTAG_AUTO_SPMD_MESH", "3,2", 1);
  CHECK_FAILS(distag_mesh_create(group->workers[rank], NULL, 0, NULL, NULL, 0, NULL, &mesh, &err),
              DISTAG_E_INVALID_ARGUMENT, "makes a mesh of 6 members, but there are 4");
}

/* Ranks in an order of their own, part of the group, granules; two meshes over the same ranks. */
static void others(members *group, int32_t rank) {
  static const int32_t ranks[] = {2, 0};
  static const int64_t shape[] = {-1}, inner[] = {2, 1}, outer[] = {1, 2}, granules[] = {5, 4, 5, 4};
  distag_error err = DISTAG_ERROR_INIT;
  distag_mesh *mesh = NULL, *other = NULL;
  distag_mesh_info info = DISTAG_MESH_INFO_INIT;
  distag_mesh_options options = DISTAG_MESH_OPTIONS_INIT;
  if (rank != 1 && rank != 3) {
    CHECK_OK(distag_mesh_create(group->workers[rank], ranks, 2, shape, NULL, 1, NULL, &mesh, &err));
    CHECK_OK(distag_mesh_get_info(mesh, &info, &err));
    CHECK_INT(info.position, rank == 2 ? 0 : 1);
    CHECK_INT(info.ranks[0], 2);
    CHECK_TEXT(info.axis_names[0], "axis0");
    distag_mesh_release(mesh);
  } else {
    CHECK_FAILS(distag_mesh_create(group->workers[rank], ranks, 2, shape, NULL, 1, NULL, &mesh, &err),
                DISTAG_E_INVALID_ARGUMENT, "rank");
  }
  options.outer_shape = outer;
  options.granules = granules;
  options.hidden_moves = DISTAG_HIDDEN_LOG;
  options.keep_gathered = 1;
  options.bucket_bytes = 1;
  options.timeout_ns = 120 * DISTAG_SECOND;
  CHECK_OK(distag_mesh_create(group->workers[rank], NULL, 0, inner, kNames, 2, &options, &mesh, &err));
  CHECK_OK(distag_mesh_create(group->workers[rank], NULL, 4, inner, kNames, 2, &options, &other, &err));
  CHECK_OK(distag_mesh_get_info(other, &info, &err));
  static const int32_t places[] = {1, 0, 3, 2};
  for (int i = 0; i < 4; ++i) CHECK(info.ranks[i] == places[i] && info.granules[i] == 4 + i % 2);
  distag_mesh_release(mesh);
  distag_mesh_release(other);
  CHECK_FAILS(distag_mesh_create(group->workers[rank], NULL, 3, inner, kNames, 2, NULL, &mesh, &err),
              DISTAG_E_INVALID_ARGUMENT, "4 living members");
}

/* The async twin gives a mesh at once, which answers nothing before it is made. */
static void async(members *group, int32_t rank) {
  static const int64_t shape[] = {2, 2};
  distag_error err = DISTAG_ERROR_INIT;
  distag_mesh *mesh = NULL, *line = NULL;
  distag_future *made = NULL;
  distag_tensor *x = ones(2), *y = NULL;
  distag_mesh_info info = DISTAG_MESH_INFO_INIT;
  distag_mesh_options options = DISTAG_MESH_OPTIONS_INIT;
  options.timeout_ns = 10 * DISTAG_SECOND; /* time to look at it */
  if (rank == 0) {                         /* alone */
    CHECK_OK(distag_mesh_create_async(group->workers[0], NULL, 0, shape, kNames, 2, &options, &mesh, &made, &err));
    CHECK_FAILS(distag_mesh_get_info(mesh, &info, &err), DISTAG_E_INVALID_STATE, "being made");
    CHECK_FAILS(distag_collective(mesh, DISTAG_ALL_REDUCE, NULL, x, NULL, &y, &err), DISTAG_E_INVALID_STATE,
                "being made");
    CHECK_FAILS(distag_mesh_open_line(mesh, "b", &line, &err), DISTAG_E_INVALID_STATE, "being made");
    CHECK_FAILS(distag_future_wait(made, DISTAG_FOREVER, &err), DISTAG_E_DEADLINE,
                "worker \"w1\" (rank 1), worker \"w2\" (rank 2), worker \"w3\" (rank 3)");
    CHECK_FAILS(distag_mesh_get_info(mesh, &info, &err), DISTAG_E_DEADLINE, "w1");
    distag_future_release(made);
    distag_mesh_release(mesh);
  }
  distag_tensor_release(x);
}

static void async_together(members *group, int32_t rank) {
  static const int64_t shape[] = {2, 2};
  distag_error err = DISTAG_ERROR_INIT;
  distag_mesh *mesh = NULL;
  distag_future *made = NULL, *sums[8];
  distag_tensor *x = ones(2), *y = NULL;
  distag_value *value = NULL;
  CHECK_OK(distag_mesh_create_async(group->workers[rank], NULL, 0, shape, kNames, 2, NULL, &mesh, &made, &err));
  CHECK_OK(distag_future_wait(made, 120 * DISTAG_SECOND, &err));
  CHECK_OK(distag_future_get_value(made, &value, &err));
  CHECK_INT(distag_value_get_kind(value), DISTAG_VALUE_NULL);
  for (int i = 0; i < 8; ++i) {
    distag_collective_options options = DISTAG_COLLECTIVE_OPTIONS_INIT;
    options.root = i % 4;
    CHECK_OK(
        distag_collective_async(mesh, i < 4 ? DISTAG_REDUCE : DISTAG_ALL_REDUCE, NULL, x, &options, &sums[i], &err));
  }
  distag_mesh_release(mesh); /* this worker goes out once all are done */
  CHECK_OK(distag_wait_all(sums, 8, 120 * DISTAG_SECOND, &err));
  for (int i = 0; i < 8; ++i) {
    double item[2] = {0, 0};
    CHECK_OK(distag_future_get_value(sums[i], &value, &err));
    if (i < 4 && i != rank) {
      CHECK_INT(distag_value_get_kind(value), DISTAG_VALUE_NULL);
    } else {
      CHECK_OK(distag_value_get_tensor(value, &y, &err));
      CHECK_OK(distag_tensor_copy_data(y, item, sizeof item, &err));
      CHECK_NEAR(item[1], 4);
    }
    distag_future_release(sums[i]);
  }
  distag_future_release(made);
  distag_tensor_release(x);
}

static distag_future *create_of_two(members *group, int32_t rank, int64_t timeout, distag_mesh **out_mesh) {
  static const int32_t both[] = {0, 1};
  static const int64_t shape[] = {2};
  distag_error err = DISTAG_ERROR_INIT;
  distag_mesh_options options = DISTAG_MESH_OPTIONS_INIT;
  distag_future *made = NULL;
  options.timeout_ns = timeout;
  CHECK_OK(distag_mesh_create_async(group->workers[rank], both, 2, shape, NULL, 1, &options, out_mesh, &made, &err));
  return made;
}

static distag_status sum_of_two(distag_mesh *mesh, distag_error *err) {
  distag_collective_options options = DISTAG_COLLECTIVE_OPTIONS_INIT;
  distag_tensor *x = ones(2), *y = NULL;
  options.timeout_ns = 60 * DISTAG_SECOND;
  err->code = DISTAG_OK;
  distag_collective(mesh, DISTAG_ALL_REDUCE, NULL, x, &options, &y, err);
  distag_tensor_release(x);
  distag_tensor_release(y);
  return err->code;
}

static pthread_barrier_t two;

/* A member cancels its creation, and keeps the handle of the future: of the lowest rank, which gathers, or the other.
 */
static int32_t canceller;

/* The other one has come before: it has the mesh, and hears of it with its first call, or its creation says so. */
static void cancelled_together(members *group, int32_t rank) {
  char name[] = "worker \"w0\" (rank 0)";
  distag_error err = DISTAG_ERROR_INIT;
  distag_mesh *mesh = NULL, *next = NULL;
  distag_future *made;
  name[9] = name[18] = (char)('0' + canceller);
  if (rank == canceller) {
    pthread_barrier_wait(&two);
    made = create_of_two(group, rank, 60 * DISTAG_SECOND, &mesh);
    distag_future_cancel(made);
    const distag_status status = distag_future_wait(made, DISTAG_FOREVER, &err);
    CHECK(status == DISTAG_OK || status == DISTAG_E_CANCELLED);
    if (status == DISTAG_E_CANCELLED) CHECK_INT(sum_of_two(mesh, &err), status);
    if (status == DISTAG_OK) sum_of_two(mesh, &err); /* the other may have given up meanwhile */
  } else {
    made = create_of_two(group, rank, 300 * DISTAG_MILLISECOND, &mesh);
    pthread_barrier_wait(&two);
    if (distag_future_wait(made, DISTAG_FOREVER, &err) != DISTAG_OK) {
      CHECK_INT(err.code, DISTAG_E_DEADLINE);
    } else if (sum_of_two(mesh, &err) != DISTAG_OK) {
      CHECK_INT(err.code, DISTAG_E_DISCONNECTED);
    }
    if (err.code != DISTAG_OK && !CHECK(strstr(err.message, name) != NULL)) fprintf(stderr, "  %s\n", err.message);
  }
  pthread_barrier_wait(&two);
  distag_future *again = create_of_two(group, rank, 60 * DISTAG_SECOND, &next);
  CHECK_OK(distag_future_wait(again, DISTAG_FOREVER, &err));
  CHECK_INT(sum_of_two(next, &err), DISTAG_OK);
  distag_future_release(made);
  distag_future_release(again);
  distag_mesh_release(mesh);
  distag_mesh_release(next);
}

/* The other one comes later: it waits for its deadline, or for the next creation of the one that gave up. */
static void cancelled_alone(members *group, int32_t rank) {
  char name[] = "worker \"w0\" (rank 0)";
  distag_error err = DISTAG_ERROR_INIT;
  distag_mesh *mesh = NULL, *late = NULL, *next = NULL;
  distag_future *made = NULL, *again;
  name[9] = name[18] = (char)('0' + canceller);
  if (rank == canceller) {
    made = create_of_two(group, rank, 60 * DISTAG_SECOND, &mesh);
    distag_future_cancel(made);
    char text[96];
    snprintf(text, sizeof text, "mesh \"mesh\": mesh_create by %s: cancelled by the caller", name);
    CHECK_FAILS(distag_future_wait(made, DISTAG_FOREVER, &err), DISTAG_E_CANCELLED, text);
    CHECK_INT(sum_of_two(mesh, &err), DISTAG_E_CANCELLED);
    CHECK(strstr(err.message, text) != NULL);
    distag_tensor *x = ones(1);
    distag_value *const arg = distag_tensor_as_value(x);
    distag_value *answer = NULL; /* once it is there, the other one has heard that this one gave up */
    CHECK_OK(distag_call(group->workers[rank], NULL, rank == 0 ? "w1" : "w0", "neg", &arg, 1, NULL, &answer, &err));
    distag_value_release(answer);
    distag_tensor_release(x);
  }
  pthread_barrier_wait(&two);
  if (rank != canceller) {
    again = create_of_two(group, rank, 200 * DISTAG_MILLISECOND, &late);
    CHECK_FAILS(distag_future_wait(again, DISTAG_FOREVER, &err), DISTAG_E_DEADLINE, name);
    distag_future_release(again);
    again = create_of_two(group, rank, 60 * DISTAG_SECOND, &next);
  }
  pthread_barrier_wait(&two);
  if (rank == canceller) again = create_of_two(group, rank, 60 * DISTAG_SECOND, &next);
  CHECK_OK(distag_future_wait(again, DISTAG_FOREVER, &err));
  CHECK_INT(sum_of_two(next, &err), DISTAG_OK);
  distag_future_release(made);
  distag_future_release(again);
  distag_mesh_release(mesh);
  distag_mesh_release(late);
  distag_mesh_release(next);
}

/* Two lines and the mesh itself in another order on each member: they do not disturb each other. */
static void lines(members *group, int32_t rank) {
  static const int64_t shape[] = {4};
  distag_error err = DISTAG_ERROR_INIT;
  distag_mesh *handles[3] = {NULL, NULL, NULL}, *again = NULL;
  distag_future *sums[3];
  CHECK_OK(distag_mesh_create(group->workers[rank], NULL, 0, shape, kNames, 1, NULL, &handles[0], &err));
  CHECK_OK(distag_mesh_open_line(handles[0], "a", &handles[1], &err));
  CHECK_OK(distag_mesh_open_line(handles[1], "b", &handles[2], &err));
  CHECK_FAILS(distag_mesh_open_line(handles[0], "b", &again, &err), DISTAG_E_INVALID_STATE, "\"b\" is open");
  CHECK_FAILS(distag_mesh_open_line(handles[0], "", &again, &err), DISTAG_E_INVALID_ARGUMENT, "1 to 127");
  CHECK_FAILS(distag_mesh_open_line(handles[0], NULL, &again, &err), DISTAG_E_INVALID_ARGUMENT, "name is NULL");
  CHECK_FAILS(distag_mesh_open_line(handles[0], "\xff", &again, &err), DISTAG_E_INVALID_ARGUMENT, "UTF-8");
  CHECK_FAILS(distag_mesh_open_line(handles[0], "c", NULL, &err), DISTAG_E_INVALID_ARGUMENT, "out_line is NULL");
  for (int32_t i = 0; i < 3; ++i) {
    const int32_t which = (i + rank) % 3;
    distag_tensor *x = ones(which + 1);
    CHECK_OK(distag_collective_async(handles[which], DISTAG_ALL_REDUCE, NULL, x, NULL, &sums[which], &err));
    distag_tensor_release(x);
  }
  CHECK_OK(distag_wait_all(sums, 3, 120 * DISTAG_SECOND, &err));
  for (int32_t i = 0; i < 3; ++i) {
    distag_value *value = NULL;
    distag_tensor *y = NULL;
    CHECK_OK(distag_future_get_value(sums[i], &value, &err));
    CHECK_OK(distag_value_get_tensor(value, &y, &err));
    CHECK_INT(distag_tensor_get_count(y), i + 1);
    distag_future_release(sums[i]);
  }
  distag_mesh_release(handles[2]);
  CHECK_OK(distag_mesh_open_line(handles[0], "b", &again, &err)); /* its name is free again */
  distag_mesh_release(handles[0]);
  distag_mesh_release(handles[1]);
  distag_tensor *x = ones(1), *y = NULL; /* a line alone keeps the mesh */
  CHECK_OK(distag_collective(again, DISTAG_ALL_REDUCE, NULL, x, NULL, &y, &err));
  distag_tensor_release(x);
  distag_tensor_release(y);
  distag_mesh_release(again);
}

/* Failures that are the same on all members end nothing, and are calls of the line. */
static void equal_failures(members *group, int32_t rank) {
  static const int64_t shape[] = {2, 2};
  distag_error err = DISTAG_ERROR_INIT;
  distag_mesh *mesh = NULL;
  distag_tensor *x = ones(4), *leaf = ones(1), *y = NULL;
  distag_future *future = NULL;
  distag_mesh_stats stats = DISTAG_MESH_STATS_INIT;
  distag_collective_options options = DISTAG_COLLECTIVE_OPTIONS_INIT;
  CHECK_OK(distag_tensor_set_requires_grad(leaf, 1, &err));
  CHECK_OK(distag_mesh_create(group->workers[rank], NULL, 0, shape, kNames, 2, NULL, &mesh, &err));
  CHECK_FAILS(distag_collective(mesh, 0, NULL, x, NULL, &y, &err), DISTAG_E_INVALID_ARGUMENT, "kind is 0");
  CHECK_FAILS(distag_collective(mesh, 8, NULL, x, NULL, &y, &err), DISTAG_E_UNSUPPORTED, "kind is 8");
  CHECK_FAILS(distag_collective(mesh, DISTAG_ALL_REDUCE, "z", x, NULL, &y, &err), DISTAG_E_INVALID_ARGUMENT,
              "no axis z");
  CHECK_FAILS(distag_collective(mesh, DISTAG_ALL_REDUCE, "None", x, NULL, &y, &err), DISTAG_E_INVALID_ARGUMENT,
              "no axis");
  CHECK_FAILS(distag_collective(mesh, DISTAG_ALL_REDUCE, NULL, NULL, NULL, &y, &err), DISTAG_E_INVALID_ARGUMENT,
              "x is NULL");
  CHECK_FAILS(distag_collective(mesh, DISTAG_ALL_REDUCE, NULL, leaf, NULL, &y, &err), DISTAG_E_INVALID_ARGUMENT,
              "requires grad");
  options.dim = 1;
  CHECK_FAILS(distag_collective(mesh, DISTAG_ALL_GATHER, NULL, x, &options, &y, &err), DISTAG_E_INVALID_ARGUMENT,
              "dim 1");
  options.dim = 0;
  options.root = 2;
  CHECK_FAILS(distag_collective(mesh, DISTAG_BROADCAST, "x", x, &options, &y, &err), DISTAG_E_INVALID_ARGUMENT,
              "root 2");
  options.root = 0;
  options.reduction = 5;
  CHECK_FAILS(distag_collective(mesh, DISTAG_ALL_REDUCE, NULL, x, &options, &y, &err), DISTAG_E_UNSUPPORTED,
              "reduction");
  options.reduction = 0;
  options.timeout_ns = -2;
  CHECK_FAILS(distag_collective(mesh, DISTAG_ALL_REDUCE, NULL, x, &options, &y, &err), DISTAG_E_INVALID_ARGUMENT,
              "timeout_ns");
  options.timeout_ns = 0;
  options.struct_size = 4;
  CHECK_FAILS(distag_collective_async(mesh, DISTAG_ALL_REDUCE, NULL, x, &options, &future, &err),
              DISTAG_E_INVALID_ARGUMENT, "struct_size");
  CHECK(future == NULL && y == NULL);
  CHECK_FAILS(distag_collective(mesh, DISTAG_ALL_REDUCE, NULL, x, NULL, NULL, &err), DISTAG_E_INVALID_ARGUMENT,
              "out_y is NULL");
  CHECK_FAILS(distag_collective_async(mesh, DISTAG_ALL_REDUCE, NULL, x, NULL, NULL, &err), DISTAG_E_INVALID_ARGUMENT,
              "out_future is NULL");
  CHECK_OK(distag_collective(mesh, DISTAG_ALL_REDUCE, NULL, x, NULL, &y, &err));
  CHECK_OK(distag_mesh_get_stats(mesh, &stats, &err));
  CHECK_INT(stats.calls, 12);
  CHECK_INT(stats.all_reduces, 1);
  distag_tensor_release(x);
  distag_tensor_release(y);
  distag_tensor_release(leaf);
  distag_mesh_release(mesh);
}

/* The third gives up, and the last never comes. */
static void never_coming(members *group, int32_t rank) {
  static const int64_t shape[] = {2, 2};
  distag_error err = DISTAG_ERROR_INIT;
  distag_mesh *mesh = NULL;
  distag_mesh_options options = DISTAG_MESH_OPTIONS_INIT;
  if (rank == 3) return;
  options.timeout_ns = (rank == 2 ? 2 : 6) * DISTAG_SECOND;
  CHECK_FAILS(distag_mesh_create(group->workers[rank], NULL, 0, shape, kNames, 2, &options, &mesh, &err),
              DISTAG_E_DEADLINE, "worker \"w3\" (rank 3)");
  CHECK_INT(err.origin_rank, 3);
}

static void differing(members *group, int32_t rank) {
  static const int64_t shape[] = {2, 2}, other[] = {4, 1};
  distag_error err = DISTAG_ERROR_INIT;
  distag_mesh *mesh = NULL;
  distag_mesh_options options = DISTAG_MESH_OPTIONS_INIT;
  CHECK_FAILS(
      distag_mesh_create(group->workers[rank], NULL, 0, rank == 3 ? other : shape, kNames, 2, NULL, &mesh, &err),
      DISTAG_E_DIVERGED, "[4, 1]");
  if (rank == 2) options.keep_gathered = 1;
  CHECK_FAILS(distag_mesh_create(group->workers[rank], NULL, 0, shape, kNames, 2, &options, &mesh, &err),
              DISTAG_E_DIVERGED, "keep_gathered 1");
  options.keep_gathered = 0;
  options.name = rank == 1 ? "one" : "two";
  CHECK_FAILS(distag_mesh_create(group->workers[rank], NULL, 0, shape, kNames, 2, &options, &mesh, &err),
              DISTAG_E_DIVERGED, "one");
}

/* A mesh still describes itself when it has ended, and when its worker is down. */
static distag_mesh *kept[4];

static void after_the_end(members *group, int32_t rank) {
  static const int64_t shape[] = {4};
  distag_error err = DISTAG_ERROR_INIT;
  distag_mesh *mesh = NULL;
  distag_tensor *x = ones(rank == 2 ? 5 : 4), *y = NULL;
  distag_mesh_stats stats = DISTAG_MESH_STATS_INIT;
  distag_mesh_info info = DISTAG_MESH_INFO_INIT;
  size_t size = 0;
  CHECK_OK(distag_mesh_create(group->workers[rank], NULL, 0, shape, kNames, 1, NULL, &mesh, &err));
  for (int i = 0; i < 3; ++i) {
    CHECK_FAILS(distag_collective(mesh, DISTAG_ALL_REDUCE, NULL, x, NULL, &y, &err), DISTAG_E_DIVERGED,
                "programs differ at call 1");
    CHECK(strstr(err.message, "float64[5]") != NULL && strstr(err.message, "float64[4]") != NULL);
    CHECK(strstr(err.message, "(rank 2)") != NULL);
  }
  CHECK_OK(distag_mesh_get_info(mesh, &info, &err));
  CHECK_INT(info.count, 4);
  CHECK_OK(distag_mesh_get_stats(mesh, &stats, &err));
  CHECK(stats.calls <= 1); /* 0: the others had ended it before */
  CHECK_INT(stats.bytes_held, 0);
  CHECK_OK(distag_mesh_copy_report(mesh, NULL, 0, &size, &err));
  distag_tensor_release(x);
  kept[rank] = mesh;
}

static void after_the_shutdown(void) {
  distag_error err = DISTAG_ERROR_INIT;
  for (int rank = 0; rank < 4; ++rank) {
    distag_tensor *x = ones(1), *y = NULL;
    distag_mesh_stats stats = DISTAG_MESH_STATS_INIT;
    distag_mesh *line = NULL;
    int64_t replica = 0;
    size_t size = 0;
    CHECK_FAILS(distag_collective(kept[rank], DISTAG_ALL_REDUCE, NULL, x, NULL, &y, &err), DISTAG_E_INVALID_STATE,
                "shut down");
    CHECK_FAILS(distag_mesh_open_line(kept[rank], "b", &line, &err), DISTAG_E_INVALID_STATE, "shut down");
    CHECK_FAILS(distag_mesh_copy_report(kept[rank], NULL, 0, &size, &err), DISTAG_E_INVALID_STATE, "shut down");
    CHECK_OK(distag_mesh_get_stats(kept[rank], &stats, &err));
    CHECK_OK(distag_mesh_copy_box(kept[rank], "()", NULL, 0, 3, NULL, NULL, &replica, &err));
    CHECK_INT(replica, 3);
    distag_tensor_release(x);
    distag_mesh_release(kept[rank]);
  }
}

static void not_started(void) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_worker_options options = DISTAG_WORKER_OPTIONS_INIT;
  distag_worker *worker = NULL;
  distag_mesh *mesh = NULL;
  options.world_size = 1;
  options.rendezvous = "inproc://meshes-idle";
  CHECK_OK(distag_worker_create(&options, &worker, &err));
  CHECK_FAILS(distag_mesh_create(worker, NULL, 0, NULL, NULL, 0, NULL, &mesh, &err), DISTAG_E_INVALID_STATE,
              "not started");
  distag_worker_release(worker);
}

int main(void) {
  members group;
  boxes_and_specs();
  pictures();
  hybrid();
  refused(NULL);
  refused_of_a_mesh();
  chains();
  not_started();
  CHECK_INT(members_start(&group, 4, "meshes"), 0);
  refused(group.workers[0]);
  unsetenv("DISTAG_AUTO_SPMD_MESH");
  members_run(&group, 4, environment);
  setenv("DISTAG_AUTO_SPMD_MESH", "2,2", 1);
  members_run(&group, 4, environment);
  members_run(&group, 1, bad_environment);
  unsetenv("DISTAG_AUTO_SPMD_MESH");
  members_run(&group, 4, others);
  members_run(&group, 4, async);
  members_run(&group, 4, async_together);
  pthread_barrier_init(&two, NULL, 2);
  for (canceller = 0; canceller < 2; ++canceller) {
    members_run(&group, 2, cancelled_alone);
    for (int i = 0; i < 3; ++i) members_run(&group, 2, cancelled_together);
  }
  members_run(&group, 4, lines);
  members_run(&group, 4, equal_failures);
  members_run(&group, 4, never_coming);
  members_run(&group, 4, differing);
  members_run(&group, 4, after_the_end);
  CHECK_INT(members_end(&group), 0);
  after_the_shutdown();
  return check_end();
}
