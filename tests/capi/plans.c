/* Plans by rules and for programs: made anywhere, applied by all members in one exchange, and what they refuse. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "capi/check.h"
#include "capi/support/members.h"

enum { kLeaves = 1000, kRows = 6, kReport = 1 << 20 };

static const char *const kAxes[] = {"x"};
static int64_t member_count;

static distag_mesh *make_mesh(distag_worker *worker, int64_t count) {
  const int32_t ranks[] = {0, 1, 2, 3};
  distag_error err = DISTAG_ERROR_INIT;
  distag_mesh *mesh = NULL;
  CHECK_OK(distag_mesh_create(worker, ranks, (size_t)count, &count, kAxes, 1, NULL, &mesh, &err));
  return mesh;
}

/* Elements that encode leaf, row and rank. */
static distag_tensor *make_leaf(int leaf, int32_t rank) {
  const int64_t shape[] = {kRows};
  double numbers[kRows];
  distag_error err = DISTAG_ERROR_INIT;
  distag_tensor *tensor = NULL;
  for (int row = 0; row < kRows; ++row) numbers[row] = 1000.0 * rank + leaf + 0.01 * row;
  CHECK_OK(distag_tensor_create(numbers, sizeof numbers, DISTAG_FLOAT64, shape, 1, &tensor, &err));
  return tensor;
}

typedef struct model {
  char texts[kLeaves][16];
  const char *names[kLeaves];
  distag_tensor *leaves[kLeaves];
  distag_plan_options options;
} model;

static const char *const kPatterns[] = {"l?.weight", "**.weight"};
static const char *const kSpecs[] = {"(None,)", "('x',)"};

static void make_model(model *made, int32_t rank) {
  static const distag_plan_options kInit = DISTAG_PLAN_OPTIONS_INIT;
  for (int i = 0; i < kLeaves; ++i) {
    snprintf(made->texts[i], sizeof made->texts[i], "l%d.%s", i, i % 2 == 0 ? "weight" : "bias");
    made->names[i] = made->texts[i];
    made->leaves[i] = make_leaf(i, rank);
  }
  made->options = kInit;
  made->options.names = made->names;
  made->options.leaves = made->leaves;
  made->options.leaf_count = kLeaves;
  made->options.patterns = kPatterns;
  made->options.specs = kSpecs;
  made->options.rule_count = 2;
}

static void release_model(model *made) {
  for (int i = 0; i < kLeaves; ++i) distag_tensor_release(made->leaves[i]);
}

/* Each leaf lies as planned and has the values of the member at position 1. */
static void check_leaves(model *made, distag_mesh *mesh, distag_plan *plan, int32_t source) {
  distag_error err = DISTAG_ERROR_INIT;
  for (int i = 0; i < kLeaves; i += 37) {
    distag_tensor *whole = NULL;
    double numbers[kRows];
    const char *const spec = i % 2 == 0 && i >= 10 ? "('x',)" : "(None,)";
    CHECK_TEXT(distag_plan_get_spec(plan, made->names[i]), spec);
    CHECK_TEXT(distag_tensor_get_spec(made->leaves[i]), spec);
    CHECK(distag_tensor_get_mesh(made->leaves[i]) != NULL);
    CHECK_OK(distag_tensor_gather(made->leaves[i], -1, DISTAG_FOREVER, &whole, &err));
    CHECK_OK(distag_tensor_copy_data(whole, numbers, sizeof numbers, &err));
    for (int row = 0; row < kRows; ++row) CHECK(numbers[row] == 1000.0 * source + i + 0.01 * row);
    distag_tensor_release(whole);
  }
  (void)mesh;
}

static void apply(members *group, int32_t rank) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_mesh *const mesh = make_mesh(group->workers[rank], member_count);
  distag_mesh_stats before = DISTAG_MESH_STATS_INIT, after = DISTAG_MESH_STATS_INIT;
  distag_plan *plan = NULL, *again = NULL;
  char *const report = malloc(kReport), *const other = malloc(kReport);
  model *const made = calloc(1, sizeof *made);
  size_t size = 0;
  make_model(made, rank);
  made->options.source = 1;
  CHECK_OK(distag_plan_create(mesh, NULL, 0, &made->options, &plan, &err));
  CHECK_OK(distag_mesh_get_stats(mesh, &before, &err));
  CHECK_OK(distag_plan_apply(plan, mesh, &err));
  CHECK_OK(distag_mesh_get_stats(mesh, &after, &err));
  CHECK_INT((int64_t)(after.broadcasts - before.broadcasts), 1);
  check_leaves(made, mesh, plan, 1);
  CHECK_OK(distag_plan_apply(plan, mesh, &err)); /* changes nothing */
  check_leaves(made, mesh, plan, 1);
  CHECK_OK(distag_plan_copy_report(plan, report, kReport, &size, &err));
  made->options.saved = report;
  made->options.rule_count = 0;
  made->options.source = 1;
  CHECK_OK(distag_plan_create(mesh, NULL, 0, &made->options, &again, &err));
  CHECK_OK(distag_plan_copy_report(again, other, kReport, &size, &err));
  CHECK_TEXT(other, report);
  CHECK_OK(distag_plan_apply(again, mesh, &err));
  distag_plan_retain(again);
  distag_plan_release(again);
  distag_plan_release(again);
  distag_plan_release(plan);
  release_model(made);
  distag_mesh_release(mesh);
  free(report);
  free(other);
  free(made);
}

/* Applies a plan without a source: each member has its own part. */
static void apply_otherwise(members *group, int32_t rank) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_mesh *const mesh = make_mesh(group->workers[rank], member_count);
  model *const made = calloc(1, sizeof *made);
  distag_plan *plan = NULL;
  make_model(made, 0); /* the same on all */
  made->options.source = -1;
  CHECK_OK(distag_plan_create(mesh, NULL, 0, &made->options, &plan, &err));
  CHECK_OK(distag_plan_apply(plan, mesh, &err));
  check_leaves(made, mesh, plan, 0);
  distag_plan_release(plan);
  release_model(made);
  free(made);
  distag_mesh_release(mesh);
}

/* A leaf lies otherwise: none is marked. Then members have different plans: the mesh ends. */
static void refuse_and_diverge(members *group, int32_t rank) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_mesh *mesh = make_mesh(group->workers[rank], member_count);
  model *const made = calloc(1, sizeof *made);
  distag_plan *plan = NULL;
  make_model(made, rank);
  CHECK_OK(distag_tensor_mark_sharding(made->leaves[998], mesh, "(None,)", 0, &err));
  CHECK_OK(distag_plan_create(mesh, NULL, 0, &made->options, &plan, &err));
  CHECK_FAILS(distag_plan_apply(plan, mesh, &err), DISTAG_E_INVALID_STATE, "leaf \"l998.weight\"");
  CHECK(distag_tensor_get_mesh(made->leaves[0]) == NULL);
  err.code = DISTAG_OK;
  distag_plan_release(plan);
  distag_mesh_release(mesh);
  mesh = make_mesh(group->workers[rank], member_count); /* so that all members are done with that */
  made->options.leaf_count = rank == 0 ? 998 : 997;
  CHECK_OK(distag_plan_create(mesh, NULL, 0, &made->options, &plan, &err));
  CHECK_FAILS(distag_plan_apply(plan, mesh, &err), DISTAG_E_DIVERGED, "plan_apply(99");
  CHECK(distag_tensor_get_mesh(made->leaves[0]) == NULL);
  distag_plan_release(plan);
  release_model(made);
  free(made);
  distag_mesh_release(mesh);
}

static void arguments(void) {
  const distag_status invalid = DISTAG_E_INVALID_ARGUMENT;
  distag_error err = DISTAG_ERROR_INIT;
  distag_plan_options options = DISTAG_PLAN_OPTIONS_INIT;
  distag_plan *plan = NULL;
  const int64_t size = 2;
  distag_mesh *mesh = NULL, *other = NULL;
  distag_tensor *leaf = make_leaf(0, 0);
  const char *name = "w", *pattern = "*", *spec = "('x',)";
  char *const large = malloc(10241);
  char text[8];
  size_t needed = 0;
  const int32_t ranks[] = {0, 1};
  CHECK_OK(distag_mesh_create(NULL, ranks, 2, &size, kAxes, 1, NULL, &mesh, &err));
  CHECK_OK(distag_mesh_create(NULL, ranks, 2, &size, NULL, 1, NULL, &other, &err));
  CHECK_FAILS(distag_plan_create(NULL, NULL, 0, &options, &plan, &err), invalid, "mesh");
  err.code = DISTAG_OK;
  CHECK_FAILS(distag_plan_create((distag_mesh *)(void *)leaf, NULL, 0, &options, &plan, &err), invalid, "mesh");
  CHECK_FAILS(distag_plan_create(mesh, NULL, 0, &options, NULL, &err), invalid, "out_plan");
  CHECK_OK(distag_plan_create(mesh, NULL, 0, NULL, &plan, &err)); /* an empty plan */
  CHECK(distag_plan_get_spec(plan, "w") == NULL && distag_plan_get_spec(plan, NULL) == NULL);
  CHECK(distag_plan_get_spec(NULL, "w") == NULL);
  distag_plan_release(plan);
  options.struct_size = 0;
  CHECK_FAILS(distag_plan_create(mesh, NULL, 0, &options, &plan, &err), invalid, "distag_plan_options");
  CHECK(plan == NULL);
  options = (distag_plan_options)DISTAG_PLAN_OPTIONS_INIT;
  options.leaf_count = 1;
  CHECK_FAILS(distag_plan_create(mesh, NULL, 0, &options, &plan, &err), invalid, "names");
  options.names = &name;
  CHECK_FAILS(distag_plan_create(mesh, NULL, 0, &options, &plan, &err), invalid, "leaves");
  options.leaves = &leaf;
  options.rule_count = (size_t)1 << 62;
  CHECK_FAILS(distag_plan_create(mesh, NULL, 0, &options, &plan, &err), invalid, "rule_count is 4611686018427387904");
  options.rule_count = 1;
  options.patterns = &pattern;
  CHECK_FAILS(distag_plan_create(mesh, NULL, 0, &options, &plan, &err), invalid, "specs");
  options.specs = &spec;
  options.leaf_count = (size_t)-1;
  CHECK_FAILS(distag_plan_create(mesh, NULL, 0, &options, &plan, &err), invalid, "leaf_count");
  options.leaf_count = 1;
  options.mode = DISTAG_PLAN_AUTO;
  CHECK_FAILS(distag_plan_create(mesh, NULL, 0, &options, &plan, &err), invalid, "needs the roots");
  options.mode = 7;
  CHECK_FAILS(distag_plan_create(mesh, NULL, 0, &options, &plan, &err), DISTAG_E_UNSUPPORTED, "mode");
  options.mode = DISTAG_PLAN_COMPLETE;
  CHECK_FAILS(distag_plan_create(mesh, &leaf, 1, &options, &plan, &err), invalid, "roots[0], float64[6], has elements");
  options.inference = 2;
  CHECK_FAILS(distag_plan_create(mesh, NULL, 0, &options, &plan, &err), invalid, "inference");
  options.inference = 0;
  options.source = 2;
  CHECK_FAILS(distag_plan_create(mesh, NULL, 0, &options, &plan, &err), invalid, "source is 2");
  options.source = 0;
  options.costs = "alpha=1";
  CHECK_FAILS(distag_plan_create(mesh, NULL, 0, &options, &plan, &err), invalid, "costs are of a search");
  options.costs = NULL;
  options.memory_bytes = 7;
  CHECK_FAILS(distag_plan_create(mesh, NULL, 0, &options, &plan, &err), DISTAG_E_OUT_OF_MEMORY, "needs 24 bytes");
  options.memory_bytes = 0;
  memset(large, 'w', 10240);
  large[10240] = '\0';
  pattern = large;
  CHECK_FAILS(distag_plan_create(mesh, NULL, 0, &options, &plan, &err), invalid, "fits no leaf");
  name = large;
  CHECK_OK(distag_plan_create(mesh, NULL, 0, &options, &plan, &err));
  CHECK_TEXT(distag_plan_get_spec(plan, large), "('x',)");
  CHECK_OK(distag_plan_copy_report(plan, text, sizeof text, &needed, &err));
  CHECK(needed > 10240 && strlen(text) < sizeof text);
  CHECK_FAILS(distag_plan_copy_report(NULL, text, sizeof text, &needed, &err), invalid, "plan");
  err.code = DISTAG_OK;
  CHECK_FAILS(distag_plan_apply(plan, mesh, &err), DISTAG_E_INVALID_STATE, "without a worker");
  CHECK_FAILS(distag_plan_apply(NULL, mesh, &err), invalid, "plan");
  err.code = DISTAG_OK;
  setenv("DISTAG_AUTO_SPMD", "yes", 1);
  distag_plan_release(plan);
  CHECK_FAILS(distag_plan_create(mesh, NULL, 0, &options, &plan, &err), invalid, "DISTAG_AUTO_SPMD=\"yes\"");
  setenv("DISTAG_AUTO_SPMD", "1", 1); /* without roots, still by rules */
  CHECK_OK(distag_plan_create(mesh, NULL, 0, &options, &plan, &err));
  unsetenv("DISTAG_AUTO_SPMD");
  distag_plan_release(plan);
  distag_plan_release(NULL);
  distag_tensor_release(leaf);
  distag_mesh_release(mesh);
  distag_mesh_release(other);
  free(large);
}

/* Two layers, by the names of their leaves: what a program on shapes is made of, and one that is run. */
enum { kNamed = 5, kHidden = 8 };
static const char *const kNames[kNamed] = {"x", "up.weight", "up.bias", "down.weight", "down.bias"};

static distag_tensor *deferred(uint32_t init, uint64_t seed, int64_t rows, int64_t columns) {
  const int64_t shape[] = {rows, columns};
  distag_error err = DISTAG_ERROR_INIT;
  distag_deferred_options options = DISTAG_DEFERRED_OPTIONS_INIT;
  distag_tensor *tensor = NULL;
  options.init = init;
  options.seed = init == DISTAG_INIT_RANDN ? seed : 0;
  CHECK_OK(distag_tensor_create_deferred(DISTAG_FLOAT64, shape, columns == 0 ? 1 : 2, &options, &tensor, &err));
  return tensor;
}

static void make_layers(distag_tensor **leaves) {
  distag_error err = DISTAG_ERROR_INIT;
  leaves[1] = deferred(DISTAG_INIT_RANDN, 1, kHidden, kRows);
  leaves[2] = deferred(DISTAG_INIT_RANDN, 2, kHidden, 0);
  leaves[3] = deferred(DISTAG_INIT_RANDN, 3, 3, kHidden);
  leaves[4] = deferred(DISTAG_INIT_RANDN, 4, 3, 0);
  for (int i = 1; i < kNamed; ++i) CHECK_OK(distag_tensor_set_requires_grad(leaves[i], 1, &err));
}

static distag_tensor *forward(distag_tensor *const *leaves) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_tensor *up = NULL, *wide = NULL, *down = NULL, *loss = NULL;
  CHECK_OK(distag_linear(leaves[0], leaves[1], leaves[2], &up, &err));
  CHECK_OK(distag_relu(up, &wide, &err));
  CHECK_OK(distag_linear(wide, leaves[3], leaves[4], &down, &err));
  CHECK_OK(distag_mean(down, NULL, 0, 0, &loss, &err));
  distag_tensor_release(up);
  distag_tensor_release(wide);
  distag_tensor_release(down);
  return loss;
}

static double loss_of(distag_tensor *const *leaves) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_tensor *loss = forward(leaves), *whole = loss;
  double item = 0;
  if (distag_tensor_get_mesh(loss) != NULL) {
    CHECK_OK(distag_tensor_gather(loss, -1, DISTAG_FOREVER, &whole, &err));
    distag_tensor_release(loss);
  }
  CHECK_OK(distag_tensor_get_item(whole, &item, &err));
  distag_tensor_release(whole);
  return item;
}

/* A single rule; the rest follows. Then the parameters are made where they are planned, and the loss is that of one. */
static void run_as_planned(members *group, int32_t rank) {
  static const char *const kPattern[] = {"up.weight"};
  static const char *const kSpec[] = {"('x', None)"};
  distag_error err = DISTAG_ERROR_INIT;
  distag_mesh *const mesh = make_mesh(group->workers[rank], member_count);
  distag_plan_options options = DISTAG_PLAN_OPTIONS_INIT;
  distag_mesh_stats stats = DISTAG_MESH_STATS_INIT;
  distag_tensor *leaves[kNamed], *same[kNamed], *root = NULL;
  distag_plan *plan = NULL;
  make_layers(leaves);
  make_layers(same);
  leaves[0] = deferred(DISTAG_INIT_SHAPE, 0, 4, kRows);
  same[0] = deferred(DISTAG_INIT_RANDN, 5, 4, kRows);
  root = forward(leaves);
  options.names = kNames;
  options.leaves = leaves;
  options.leaf_count = kNamed;
  options.patterns = kPattern;
  options.specs = kSpec;
  options.rule_count = 1;
  CHECK_OK(distag_plan_create(mesh, &root, 1, &options, &plan, &err));
  CHECK_TEXT(distag_plan_get_spec(plan, "x"), "(None, None)");
  CHECK_TEXT(distag_plan_get_spec(plan, "up.bias"), "('x',)");
  CHECK_TEXT(distag_plan_get_spec(plan, "down.weight"), "(None, 'x')");
  CHECK_TEXT(distag_plan_get_spec(plan, "down.bias"), "(None,)");
  CHECK_OK(distag_plan_apply(plan, mesh, &err)); /* x is a shape, and stays one */
  CHECK_TEXT(distag_tensor_get_spec(leaves[3]), "(None, 'x')");
  distag_tensor_release(leaves[0]);
  leaves[0] = same[0];
  CHECK_NEAR(loss_of(leaves), loss_of(same));
  CHECK_OK(distag_mesh_get_stats(mesh, &stats, &err));
  CHECK_INT(stats.hidden_moves, 0);
  distag_tensor_release(root);
  distag_plan_release(plan);
  for (int i = 0; i < kNamed; ++i) distag_tensor_release(same[i]);
  for (int i = 1; i < kNamed; ++i) distag_tensor_release(leaves[i]);
  distag_mesh_release(mesh);
}

/* Planned with shapes and applied to real tensors, by the report: without roots, which only shapes have. */
static void run_as_saved(members *group, int32_t rank) {
  static const char *const kPattern[] = {"up.weight"};
  static const char *const kSpec[] = {"('x', None)"};
  distag_error err = DISTAG_ERROR_INIT;
  distag_mesh *const mesh = make_mesh(group->workers[rank], member_count);
  distag_plan_options options = DISTAG_PLAN_OPTIONS_INIT;
  distag_tensor *leaves[kNamed], *same[kNamed], *root = NULL;
  distag_plan *plan = NULL, *real = NULL;
  char *const report = malloc(kReport), *const other = malloc(kReport);
  size_t size = 0;
  leaves[0] = deferred(DISTAG_INIT_SHAPE, 0, 4, kRows);
  leaves[1] = deferred(DISTAG_INIT_SHAPE, 0, kHidden, kRows);
  leaves[2] = deferred(DISTAG_INIT_SHAPE, 0, kHidden, 0);
  leaves[3] = deferred(DISTAG_INIT_SHAPE, 0, 3, kHidden);
  leaves[4] = deferred(DISTAG_INIT_SHAPE, 0, 3, 0);
  for (int i = 1; i < kNamed; ++i) CHECK_OK(distag_tensor_set_requires_grad(leaves[i], 1, &err));
  root = forward(leaves);
  options.names = kNames;
  options.leaves = leaves;
  options.leaf_count = kNamed;
  options.patterns = kPattern;
  options.specs = kSpec;
  options.rule_count = 1;
  CHECK_OK(distag_plan_create(mesh, &root, 1, &options, &plan, &err));
  CHECK_OK(distag_plan_copy_report(plan, report, kReport, &size, &err));
  distag_plan_release(plan);
  distag_tensor_release(root);
  for (int i = 1; i < kNamed; ++i) distag_tensor_release(leaves[i]);
  make_layers(leaves);
  make_layers(same);
  same[0] = deferred(DISTAG_INIT_RANDN, 5, 4, kRows);
  options.saved = report;
  options.rule_count = 0;
  CHECK_OK(distag_plan_create(mesh, NULL, 0, &options, &real, &err));
  CHECK_OK(distag_plan_copy_report(real, other, kReport, &size, &err));
  CHECK_TEXT(other, report);
  CHECK_OK(distag_plan_apply(real, mesh, &err));
  CHECK_TEXT(distag_tensor_get_spec(leaves[2]), "('x',)");
  CHECK_TEXT(distag_tensor_get_spec(leaves[3]), "(None, 'x')");
  distag_tensor_release(leaves[0]);
  leaves[0] = same[0];
  CHECK_NEAR(loss_of(leaves), loss_of(same));
  distag_plan_release(real);
  for (int i = 0; i < kNamed; ++i) distag_tensor_release(same[i]);
  for (int i = 1; i < kNamed; ++i) distag_tensor_release(leaves[i]);
  distag_mesh_release(mesh);
  free(report);
  free(other);
}

/* Leaves that lie on another mesh, and on this one: by rules alone as with roots. */
static void plan_marked(members *group, int32_t rank) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_mesh *const mesh = make_mesh(group->workers[rank], member_count);
  const int64_t sizes[] = {1, member_count};
  const int32_t ranks[] = {0, 1, 2};
  static const char *const kTwo[] = {"y", "x"};
  distag_plan_options options = DISTAG_PLAN_OPTIONS_INIT;
  distag_mesh *other = NULL;
  distag_tensor *leaves[kNamed], *root = NULL;
  distag_plan *plan = NULL;
  CHECK_OK(distag_mesh_create(group->workers[rank], ranks, (size_t)member_count, sizes, kTwo, 2, NULL, &other, &err));
  make_layers(leaves);
  leaves[0] = deferred(DISTAG_INIT_SHAPE, 0, 4, kRows);
  CHECK_OK(distag_tensor_mark_sharding(leaves[1], mesh, "('x', None)", -1, &err));
  root = forward(leaves);
  options.names = kNames;
  options.leaves = leaves;
  options.leaf_count = kNamed;
  CHECK_OK(distag_plan_create(mesh, &root, 1, &options, &plan, &err));
  CHECK_TEXT(distag_plan_get_spec(plan, "up.weight"), "('x', None)");
  CHECK_TEXT(distag_plan_get_spec(plan, "down.weight"), "(None, 'x')");
  distag_plan_release(plan);
  CHECK_FAILS(distag_plan_create(other, &root, 1, &options, &plan, &err), DISTAG_E_INVALID_ARGUMENT, "another mesh");
  err.code = DISTAG_OK;
  CHECK_OK(distag_plan_create(mesh, NULL, 0, &options, &plan, &err));
  CHECK_TEXT(distag_plan_get_spec(plan, "up.weight"), "('x', None)");
  CHECK_TEXT(distag_plan_get_spec(plan, "down.weight"), "(None, None)");
  CHECK_OK(distag_plan_apply(plan, mesh, &err));
  CHECK_TEXT(distag_tensor_get_spec(leaves[1]), "('x', None)");
  distag_plan_release(plan);
  CHECK_FAILS(distag_plan_create(other, NULL, 0, &options, &plan, &err), DISTAG_E_INVALID_ARGUMENT, "another mesh");
  distag_tensor_release(root);
  for (int i = 0; i < kNamed; ++i) distag_tensor_release(leaves[i]);
  distag_mesh_release(mesh);
  distag_mesh_release(other);
}

/* A leaf of which each member holds a part of the sum: no report could say how it lies. */
static void plan_sum(members *group, int32_t rank) {
  static const char *const kName = "sum";
  distag_error err = DISTAG_ERROR_INIT;
  distag_mesh *const mesh = make_mesh(group->workers[rank], member_count);
  distag_plan_options options = DISTAG_PLAN_OPTIONS_INIT;
  distag_tensor *const part = deferred(DISTAG_INIT_FULL, 0, 4, 4);
  distag_tensor *sum = NULL;
  distag_plan *plan = NULL;
  CHECK_OK(distag_tensor_from_local(mesh, part, "(None, None) sum('x')", NULL, 0, NULL, &sum, &err));
  options.names = &kName;
  options.leaves = &sum;
  options.leaf_count = 1;
  CHECK_FAILS(distag_plan_create(mesh, NULL, 0, &options, &plan, &err), DISTAG_E_INVALID_ARGUMENT,
              "leaf \"sum\" is a sum of what members hold, (None, None) sum('x'): redistribute it first");
  CHECK(plan == NULL);
  distag_tensor_release(sum);
  distag_tensor_release(part);
  distag_mesh_release(mesh);
}

/* Specs that are searched for: by the mode, and by the variable. */
static void search(distag_mesh *mesh, distag_tensor **roots, distag_plan_options *options, char *report) {
  const distag_status invalid = DISTAG_E_INVALID_ARGUMENT;
  distag_error err = DISTAG_ERROR_INIT;
  distag_plan *plan = NULL;
  size_t needed = 0;
  static const struct {
    const char *costs, *named;
  } refused[] = {{"alpha=1", "costs: invalid JSON"},
                 {"{\"alpha\": -1}", "costs: alpha"},
                 {"{\"speed\": 1}", "\"speed\""},
                 {"{\"axes\": {\"z\": {\"beta\": 1}}}", "costs: axes.z"}};
  options->mode = DISTAG_PLAN_AUTO;
  for (size_t i = 0; i < sizeof refused / sizeof *refused; ++i) {
    options->costs = refused[i].costs;
    CHECK_FAILS(distag_plan_create(mesh, roots, 1, options, &plan, &err), invalid, refused[i].named);
  }
  options->costs = "{\"alpha\": 0, \"rate\": 1e6}"; /* so that it is worth to share the work */
  options->timeout_ns = -5;
  CHECK_FAILS(distag_plan_create(mesh, roots, 1, options, &plan, &err), invalid, "timeout_ns");
  options->timeout_ns = 1;
  CHECK_FAILS(distag_plan_create(mesh, roots, 1, options, &plan, &err), DISTAG_E_DEADLINE, "timeout_ns");
  options->timeout_ns = 0;
  options->memory_bytes = 1;
  CHECK_FAILS(distag_plan_create(mesh, roots, 1, options, &plan, &err), DISTAG_E_OUT_OF_MEMORY, "the least that would");
  options->memory_bytes = 0;
  for (int by_variable = 0; by_variable < 2; ++by_variable) {
    options->mode = by_variable ? 0 : DISTAG_PLAN_AUTO;
    if (by_variable) setenv("DISTAG_AUTO_SPMD", "1", 1);
    CHECK_OK(distag_plan_create(mesh, roots, 1, options, &plan, &err));
    CHECK_OK(distag_plan_copy_report(plan, report, kReport, &needed, &err));
    CHECK(strstr(report, "\"mode\":\"auto\",\"seconds\":") != NULL && strstr(report, "\"all_reduces\":") != NULL);
    CHECK(strstr(report, "of a step, over repeated") != NULL);
    distag_plan_release(plan);
  }
  unsetenv("DISTAG_AUTO_SPMD");
  options->costs = NULL;
}

/* Roots and modes that are refused. A mesh without a worker plans programs too. */
static void programs(void) {
  const distag_status invalid = DISTAG_E_INVALID_ARGUMENT;
  const int64_t size = 2;
  const int32_t ranks[] = {0, 1};
  distag_error err = DISTAG_ERROR_INIT;
  distag_plan_options options = DISTAG_PLAN_OPTIONS_INIT;
  distag_plan *plan = NULL;
  distag_mesh *mesh = NULL;
  distag_tensor *leaves[kNamed], *roots[2] = {NULL, NULL};
  char *const report = malloc(kReport);
  size_t needed = 0;
  CHECK_OK(distag_mesh_create(NULL, ranks, 2, &size, kAxes, 1, NULL, &mesh, &err));
  make_layers(leaves);
  leaves[0] = deferred(DISTAG_INIT_SHAPE, 0, 4, kRows);
  roots[0] = forward(leaves);
  options.names = kNames;
  options.leaves = leaves;
  options.leaf_count = kNamed;
  CHECK_OK(distag_plan_create(mesh, roots, 1, &options, &plan, &err));
  CHECK_OK(distag_plan_copy_report(plan, report, kReport, &needed, &err));
  CHECK(strstr(report, "\"program\":\"") != NULL && strstr(report, "\"mode\":\"complete\"") != NULL);
  CHECK(strstr(report, "{\"name\":\"relu\",\"spec\":\"(None, None)\",\"why\":\"nothing moves\"}") != NULL);
  distag_plan_release(plan);
  CHECK_OK(distag_plan_create(mesh, roots, 1, NULL, &plan, &err)); /* of no leaf with a name */
  distag_plan_release(plan);
  CHECK_FAILS(distag_plan_create(mesh, roots, 2, &options, &plan, &err), invalid, "roots[1]");
  CHECK_FAILS(distag_plan_create(mesh, NULL, 1, &options, &plan, &err), invalid, "roots");
  CHECK_FAILS(distag_plan_create(mesh, roots, (size_t)1 << 62, &options, &plan, &err), invalid, "root_count");
  CHECK_FAILS(distag_plan_create(mesh, leaves, 1, &options, &plan, &err), invalid, "is no result of an op");
  search(mesh, roots, &options, report);
  options.leaves = roots;
  options.leaf_count = 1;
  CHECK_FAILS(distag_plan_create(mesh, roots, 1, &options, &plan, &err), invalid, "uses none of the 1 leaves");
  for (int i = 0; i < kNamed; ++i) distag_tensor_release(leaves[i]);
  distag_tensor_release(roots[0]);
  distag_mesh_release(mesh);
  free(report);
}

static void in_groups(void) {
  for (member_count = 2; member_count <= 3; ++member_count) {
    members group = {0};
    if (members_start(&group, (int32_t)member_count, member_count == 2 ? "plans_2" : "plans_3") != 0) return;
    members_run(&group, (int32_t)member_count, apply);
    members_run(&group, (int32_t)member_count, apply_otherwise);
    setenv("DISTAG_AUTO_USE_GROUP_SHARDING", "0", 1);
    members_run(&group, (int32_t)member_count, apply_otherwise);
    unsetenv("DISTAG_AUTO_USE_GROUP_SHARDING");
    members_run(&group, (int32_t)member_count, run_as_planned);
    members_run(&group, (int32_t)member_count, run_as_saved);
    members_run(&group, (int32_t)member_count, plan_marked);
    members_run(&group, (int32_t)member_count, plan_sum);
    members_run(&group, (int32_t)member_count, refuse_and_diverge);
    CHECK_INT(members_end(&group), 0);
  }
}

int main(void) {
  arguments();
  programs();
  in_groups();
  return check_end();
}
