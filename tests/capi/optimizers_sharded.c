/* State of optimizers of sharded parameters: what a checkpoint gives, deferred and whole, goes to where the parameter
 * lies; what does not fit is refused, and nothing has changed. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "capi/check.h"
#include "capi/support/members.h"
#include "capi/support/sharded_model.h"

enum { kTwo = 2, kWeight = 5 * 2, kBias = 2 };

static char folder[64];

/* A weight of [5, 2] and a bias of [2]. */
typedef struct model {
  distag_mesh *mesh;
  distag_tensor *weight, *bias;
  distag_optimizer *adam;
} model;

static distag_mesh *make_mesh(members *group, int32_t rank) {
  static const char *const kX[] = {"x"};
  static const int64_t kCount = kTwo;
  distag_error err = DISTAG_ERROR_INIT;
  distag_mesh *mesh = NULL;
  CHECK_OK(distag_mesh_create(group->workers[rank], NULL, 0, &kCount, kX, 1, NULL, &mesh, &err));
  return mesh;
}

static model make(distag_worker *worker, distag_mesh *mesh, const char *kind, const char *spec) {
  static const int64_t kShape[] = {5, 2};
  distag_error err = DISTAG_ERROR_INIT;
  model made = {mesh, NULL, NULL, NULL};
  made.weight = sharded_numbers(kShape, 2, 1, &err);
  made.bias = sharded_numbers(kShape + 1, 1, 2, &err);
  CHECK_OK(distag_tensor_mark_sharding(made.weight, mesh, spec, -1, &err));
  CHECK_OK(distag_tensor_mark_sharding(made.bias, mesh, "(None,)", -1, &err));
  distag_value *const parameters[] = {distag_tensor_as_value(made.weight), distag_tensor_as_value(made.bias)};
  CHECK_OK(distag_tensor_set_requires_grad(made.weight, 1, &err));
  CHECK_OK(distag_tensor_set_requires_grad(made.bias, 1, &err));
  CHECK_OK(distag_optimizer_create(worker, kind, parameters, 2, &made.adam, &err));
  CHECK_OK(distag_optimizer_set(made.adam, "lr", 0.25, &err));
  return made;
}

static void drop(model *gone) {
  distag_optimizer_release(gone->adam);
  distag_tensor_release(gone->weight);
  distag_tensor_release(gone->bias);
}

/* Each step has other gradients, so moments that lie wrongly show. */
static void step(const model *trained) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_context *context = NULL;
  distag_tensor *shifted = NULL, *square = NULL, *loss = NULL;
  CHECK_OK(distag_context_create_joint(trained->mesh, &context, &err));
  CHECK_OK(distag_add(trained->weight, trained->bias, &shifted, &err));
  CHECK_OK(distag_mul(shifted, shifted, &square, &err));
  CHECK_OK(distag_sum(square, NULL, 0, 0, &loss, &err));
  CHECK_OK(distag_backward(context, &loss, 1, NULL, &err));
  CHECK_OK(distag_optimizer_step(trained->adam, context, NULL, &err));
  distag_tensor_release(loss);
  distag_tensor_release(square);
  distag_tensor_release(shifted);
  distag_context_release(context);
}

static void read_all(distag_tensor *x, double *out, size_t count) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_tensor *whole = NULL;
  CHECK_OK(distag_tensor_gather(x, -1, DISTAG_FOREVER, &whole, &err));
  CHECK_OK(distag_tensor_copy_data(whole, out, count * sizeof *out, &err));
  distag_tensor_release(whole);
}

static void check_equal(const model *a, const model *b) {
  double first[kWeight + kBias], second[kWeight + kBias];
  read_all(a->weight, first, kWeight);
  read_all(a->bias, first + kWeight, kBias);
  read_all(b->weight, second, kWeight);
  read_all(b->bias, second + kWeight, kBias);
  for (int i = 0; i < kWeight + kBias; ++i) CHECK_NEAR(first[i], second[i]);
}

static distag_value *state_of(const model *trained) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_value *state = NULL;
  CHECK_OK(distag_optimizer_save(trained->adam, NULL, &state, &err));
  return state;
}

static distag_value *map_of(const model *trained, distag_value *state) {
  distag_error err = DISTAG_ERROR_INIT;
  static const char *const kKeys[] = {"adam", "bias", "weight"};
  distag_value *const items[] = {state, distag_tensor_as_value(trained->bias), distag_tensor_as_value(trained->weight)};
  distag_value *map = NULL;
  CHECK_OK(distag_value_create_map(kKeys, items, 3, &map, &err));
  return map;
}

/* Two steps, a save; then the same two steps by the first and by one that loads, wherever its weight lies. */
static void go_on(distag_worker *worker, distag_mesh *mesh, const char *from, const char *to, int is_alone) {
  distag_error err = DISTAG_ERROR_INIT;
  model first = make(worker, mesh, "adam", from), second = make(worker, mesh, "adam", to);
  step(&first);
  step(&first);
  distag_value *state = state_of(&first), *map = map_of(&first, state), *own = NULL, *loaded = NULL;
  CHECK_OK(distag_checkpoint_save(mesh, folder, map, 0, &err));
  static const char *const kKeys[] = {"bias", "weight"};
  distag_value *const tensors[] = {distag_tensor_as_value(second.bias), distag_tensor_as_value(second.weight)};
  CHECK_OK(distag_value_create_map(kKeys, tensors, 2, &own, &err));
  CHECK_OK(distag_checkpoint_load(mesh, folder, own, 0, &loaded, &err));
  distag_value *deferred = NULL;
  if (is_alone) { /* whole elements */
    CHECK_OK(distag_checkpoint_load(NULL, folder, NULL, 0, &deferred, &err));
  } else {
    distag_value_retain(deferred = loaded);
  }
  distag_value *const saved = distag_value_get_entry(deferred, "adam");
  if (is_alone) {
    distag_value *const kept =
        distag_value_get_item(distag_value_get_item(distag_value_get_entry(saved, "parameters"), 0), 0);
    distag_tensor *moments = NULL;
    double elements[kWeight];
    CHECK_OK(distag_value_get_tensor(distag_value_get_entry(kept, "exp_avg"), &moments, &err));
    CHECK_OK(distag_tensor_copy_data(moments, elements, sizeof elements, &err));
  }
  CHECK_OK(distag_optimizer_load(second.adam, saved, NULL, &err));
  step(&first);
  step(&second);
  step(&first);
  step(&second);
  check_equal(&first, &second);
  distag_value_release(deferred);
  distag_value_release(loaded);
  distag_value_release(own);
  distag_value_release(map);
  distag_value_release(state);
  drop(&second);
  drop(&first);
}

static void loads(members *group, int32_t rank) {
  static const char *const kSpecs[] = {"('x', None)", "(None, 'x')", "(None, None)"};
  distag_mesh *mesh = make_mesh(group, rank);
  for (int with_worker = 0; with_worker < 2; ++with_worker) {
    distag_worker *const worker = with_worker ? group->workers[rank] : NULL;
    for (int i = 0; i < 3; ++i) go_on(worker, mesh, kSpecs[0], kSpecs[i], i == 1);
  }
  distag_mesh_release(mesh);
}

/* The map with another item for this key; NULL: without it. */
static distag_value *replaced(distag_value *map, const char *key, distag_value *item) {
  distag_error err = DISTAG_ERROR_INIT;
  const char *keys[16];
  distag_value *items[16], *made = NULL;
  size_t count = 0;
  for (size_t i = 0; i < distag_value_get_count(map); ++i) {
    const char *const name = distag_value_get_key(map, i);
    const int is_it = strcmp(name, key) == 0;
    if (is_it && item == NULL) continue;
    keys[count] = name;
    items[count++] = is_it ? item : distag_value_get_item(map, i);
  }
  CHECK_OK(distag_value_create_map(keys, items, count, &made, &err));
  return made;
}

/* A state whose weight was kept with another entry. */
static distag_value *with_weight(distag_value *state, const char *key, distag_value *item) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_value *const parameters = distag_value_get_entry(state, "parameters");
  distag_value *kept = replaced(distag_value_get_item(distag_value_get_item(parameters, 0), 0), key, item);
  distag_value *one = NULL, *list = NULL;
  CHECK_OK(distag_value_create_list(&kept, 1, &one, &err));
  distag_value *const both[] = {one, distag_value_get_item(parameters, 1)};
  CHECK_OK(distag_value_create_list(both, 2, &list, &err));
  distag_value *made = replaced(state, "parameters", list);
  distag_value_release(list);
  distag_value_release(one);
  distag_value_release(kept);
  return made;
}

static void refuse(distag_optimizer *optimizer, distag_value *state, const char *part) {
  distag_error err = DISTAG_ERROR_INIT;
  CHECK_FAILS(distag_optimizer_load(optimizer, state, NULL, &err), DISTAG_E_INVALID_ARGUMENT, part);
  distag_value_release(state);
}

static distag_value *marked(distag_mesh *mesh, const int64_t *shape, const char *spec, distag_tensor **out_tensor) {
  distag_error err = DISTAG_ERROR_INIT;
  CHECK_OK(distag_ones(DISTAG_FLOAT64, shape, 2, out_tensor, &err));
  if (spec != NULL) CHECK_OK(distag_tensor_mark_sharding(*out_tensor, mesh, spec, -1, &err));
  return distag_tensor_as_value(*out_tensor);
}

/* After a refused load, an optimizer goes on like its twin without one. */
static void refusals(members *group, int32_t rank) {
  distag_mesh *mesh = make_mesh(group, rank);
  static const int64_t kOther[] = {2, 5}, kSame[] = {5, 2};
  for (int with_worker = 0; with_worker < 2; ++with_worker) {
    distag_worker *const worker = with_worker ? group->workers[rank] : NULL;
    model first = make(worker, mesh, "adam", "('x', None)"), twin = make(worker, mesh, "adam", "('x', None)");
    model sgd = make(worker, mesh, "sgd", "('x', None)");
    step(&first);
    step(&twin);
    distag_value *state = state_of(&first), *foreign = state_of(&sgd);
    distag_tensor *wrong[3] = {NULL, NULL, NULL};
    refuse(first.adam, foreign, "sgd");
    refuse(first.adam, with_weight(state, "step", NULL), "\"step\"");
    distag_value *settings = replaced(distag_value_get_entry(state, "settings"), "beta1", NULL);
    refuse(first.adam, replaced(state, "settings", settings), "no setting \"beta1\"");
    refuse(first.adam, with_weight(state, "exp_avg", marked(mesh, kOther, NULL, &wrong[0])), "\"exp_avg\"");
    refuse(first.adam, with_weight(state, "exp_avg_sq", marked(mesh, kOther, "('x', None)", &wrong[1])),
           "\"exp_avg_sq\"");
    refuse(first.adam, with_weight(state, "exp_avg", marked(mesh, kSame, "(None, 'x')", &wrong[2])), "redistribute it");
    refuse(first.adam, with_weight(state, "exp_avg", settings), "tensor");
    step(&first);
    step(&twin);
    check_equal(&first, &twin);
    for (int i = 0; i < 3; ++i) distag_tensor_release(wrong[i]);
    distag_value_release(settings);
    distag_value_release(state);
    drop(&sgd);
    drop(&twin);
    drop(&first);
  }
  distag_mesh_release(mesh);
}

int main(void) {
  members group = {0};
  char command[96];
  snprintf(folder, sizeof folder, "/tmp/distag-optimizers-XXXXXX");
  if (!CHECK(mkdtemp(folder) != NULL)) return 1;
  if (!CHECK(members_start(&group, kTwo, "optimizers_sharded") == 0)) return 1;
  members_run(&group, kTwo, loads);
  members_run(&group, kTwo, refusals);
  CHECK(members_end(&group) == 0);
  snprintf(command, sizeof command, "rm -r %s", folder);
  CHECK(system(command) == 0);
  return check_end();
}
