/* Sharded tensors on meshes of 1 to 4 members of this process: what they are, training in four ways, every failure. */
#include <stdlib.h>

#include "capi/check.h"
#include "capi/support/members.h"
#include "capi/support/sharded_model.h"

static double alone[4][kWeights];

static distag_mesh *make_mesh(members *group, int32_t rank, const distag_mesh_options *options) {
  static const char *const names[] = {"x"};
  const int64_t shape[] = {-1};
  distag_error err = DISTAG_ERROR_INIT;
  distag_mesh *mesh = NULL;
  CHECK_OK(distag_mesh_create(group->workers[rank], NULL, 0, shape, names, 1, options, &mesh, &err));
  return mesh;
}

static void train_in_all_forms(members *group, int32_t rank) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_mesh *mesh = make_mesh(group, rank, NULL);
  for (size_t form = 0; form < 4; ++form) {
    double weights[kWeights] = {0};
    err.code = DISTAG_OK;
    sharded_train(group->workers[rank], mesh, &kShardedForms[form], weights, &err);
    if (!check_status(err.code, DISTAG_OK, &err, __FILE__, __LINE__, kShardedForms[form].name)) break;
    for (size_t i = 0; i < kWeights; ++i) CHECK(fabs(weights[i] - alone[form][i]) <= 1e-9);
  }
  distag_mesh_release(mesh);
}

static distag_tensor *marked(distag_mesh *mesh, const char *spec) {
  static const int64_t shape[] = {4, 2};
  distag_error err = DISTAG_ERROR_INIT;
  distag_tensor *tensor = sharded_numbers(shape, 2, 1, &err);
  CHECK_OK(distag_tensor_mark_sharding(tensor, mesh, spec, -1, &err));
  return tensor;
}

static void values_and_specs(members *group, int32_t rank) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_mesh *mesh = make_mesh(group, rank, NULL);
  distag_tensor *x = marked(mesh, "('x', None)");
  CHECK_TEXT(distag_tensor_get_spec(x), "('x', None)");
  distag_mesh_info info = DISTAG_MESH_INFO_INIT;
  CHECK_OK(distag_mesh_get_info(distag_tensor_get_mesh(x), &info, &err));
  CHECK_INT(info.count, 2);
  CHECK_INT(distag_tensor_get_shape(x)[0], 4);
  double item = 0;
  double numbers[8];
  CHECK(distag_tensor_get_data(x) == NULL);
  CHECK_FAILS(distag_tensor_copy_data(x, numbers, sizeof numbers, &err), DISTAG_E_INVALID_STATE, "gather");
  distag_tensor *part = NULL;
  CHECK_OK(distag_tensor_to_local(x, NULL, &part, &err));
  CHECK_INT(distag_tensor_get_shape(part)[0], 2);
  CHECK(distag_tensor_get_spec(part) == NULL);
  CHECK(distag_tensor_get_mesh(part) == NULL);
  /* The part and the tensor share memory. */
  const double own[4] = {rank, 1, 2, 3};
  CHECK_OK(distag_tensor_write(x, own, sizeof own, &err));
  CHECK_OK(distag_tensor_copy_data(part, numbers, sizeof own, &err));
  CHECK(numbers[0] == rank && numbers[3] == 3);
  distag_tensor *whole = NULL;
  CHECK_OK(distag_tensor_gather(x, 1, 0, &whole, &err));
  CHECK((whole != NULL) == (rank == 1));
  if (whole != NULL) {
    CHECK_OK(distag_tensor_copy_data(whole, numbers, sizeof numbers, &err));
    CHECK(numbers[0] == 0 && numbers[4] == 1 && numbers[7] == 3);
  }
  distag_tensor_release(whole);
  distag_future *future = NULL;
  distag_value *value = NULL;
  CHECK_OK(distag_tensor_gather_async(x, -1, 0, &future, &err));
  CHECK_OK(distag_future_wait(future, -1, &err));
  CHECK_OK(distag_future_get_value(future, &value, &err));
  CHECK_OK(distag_value_get_tensor(value, &whole, &err));
  CHECK_INT(distag_tensor_get_count(whole), 8);
  distag_future_release(future);
  /* A repeated tensor is whole on each member. */
  distag_tensor *repeated = NULL;
  CHECK_OK(distag_redistribute(x, "(None, None)", 0, &repeated, &err));
  CHECK_OK(distag_tensor_copy_data(repeated, numbers, sizeof numbers, &err));
  CHECK(distag_tensor_get_data(repeated) != NULL);
  distag_tensor *sum = NULL;
  distag_tensor *back = NULL;
  CHECK_OK(distag_sum(repeated, NULL, 0, 0, &sum, &err));
  CHECK_OK(distag_tensor_get_item(sum, &item, &err));
  CHECK(item == 13);
  const int64_t shape[] = {4, 2};
  CHECK_OK(distag_tensor_from_local(mesh, part, "('x', None)", shape, 2, NULL, &back, &err));
  distag_tensor_release(sum);
  CHECK_OK(distag_tensor_from_local(mesh, part, "(None, 'x')", NULL, 0, NULL, &sum, &err));
  CHECK_INT(distag_tensor_get_shape(sum)[1], 4);
  distag_tensor_release(sum);
  distag_tensor_release(back);
  distag_tensor_release(repeated);
  distag_tensor_release(part);
  distag_tensor_release(x);
  distag_mesh_release(mesh);
}

static void failures(members *group, int32_t rank) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_mesh_options options = DISTAG_MESH_OPTIONS_INIT;
  options.hidden_moves = DISTAG_HIDDEN_REFUSE;
  distag_mesh *mesh = make_mesh(group, rank, &options);
  distag_tensor *x = marked(mesh, "('x', None)");
  distag_tensor *y = marked(mesh, "(None, 'x')");
  const int64_t shape[] = {4, 2};
  distag_tensor *plain = sharded_numbers(shape, 2, 2, &err);
  distag_tensor *out = NULL;
  distag_context *context = NULL;
  distag_future *future = NULL;
  CHECK_FAILS(distag_tensor_mark_sharding(NULL, mesh, "()", -1, &err), DISTAG_E_INVALID_ARGUMENT, "tensor");
  CHECK_FAILS(distag_tensor_mark_sharding(plain, NULL, "()", -1, &err), DISTAG_E_INVALID_ARGUMENT, "mesh");
  CHECK_FAILS(distag_tensor_mark_sharding(plain, mesh, "('q', None)", -1, &err), DISTAG_E_INVALID_ARGUMENT, "q");
  CHECK_FAILS(distag_tensor_mark_sharding(plain, mesh, "('x', None)", 77, &err), DISTAG_E_INVALID_ARGUMENT, "source");
  CHECK_FAILS(distag_tensor_mark_sharding(x, mesh, "(None, None)", -1, &err), DISTAG_E_INVALID_STATE, "already");
  CHECK_FAILS(distag_redistribute(plain, "(None, None)", 0, &out, &err), DISTAG_E_INVALID_ARGUMENT, "not sharded");
  CHECK_FAILS(distag_redistribute(x, "(None, None)", 8, &out, &err), DISTAG_E_UNSUPPORTED, "flags");
  CHECK_FAILS(distag_redistribute(x, "(None,", 0, &out, &err), DISTAG_E_INVALID_ARGUMENT, "(None,");
  CHECK_FAILS(distag_tensor_to_local(plain, NULL, &out, &err), DISTAG_E_INVALID_ARGUMENT, "not sharded");
  CHECK_FAILS(distag_tensor_to_local(x, "(None, 'x')", &out, &err), DISTAG_E_INVALID_ARGUMENT, "gradient_spec");
  CHECK_FAILS(distag_tensor_from_local(mesh, x, "('x', None)", shape, 2, NULL, &out, &err), DISTAG_E_INVALID_ARGUMENT,
              "already");
  CHECK_FAILS(distag_tensor_gather(x, 77, 0, &out, &err), DISTAG_E_INVALID_ARGUMENT, "is not among the 2 members");
  CHECK_FAILS(distag_tensor_gather_async(plain, -1, 0, &future, &err), DISTAG_E_INVALID_ARGUMENT, "not sharded");
  CHECK_FAILS(distag_mul(x, y, &out, &err), DISTAG_E_INVALID_STATE, "redistribute");
  CHECK_FAILS(distag_tensor_assign(x, y, &err), DISTAG_E_INVALID_ARGUMENT, "redistribute it first");
  CHECK(out == NULL && future == NULL);
  /* Neither calls nor contexts of one worker take a sharded tensor. */
  distag_value *args[] = {distag_tensor_as_value(x)};
  distag_value *answer = NULL;
  CHECK_FAILS(distag_call(group->workers[rank], NULL, rank == 0 ? "w1" : "w0", "f", args, 1, NULL, &answer, &err),
              DISTAG_E_INVALID_ARGUMENT, "to_local");
  CHECK_OK(distag_context_create(group->workers[rank], &context, &err));
  CHECK_FAILS(distag_backward(context, &x, 1, NULL, &err), DISTAG_E_INVALID_ARGUMENT, "joint");
  distag_context_release(context);
  context = NULL;
  distag_mesh *line = NULL;
  CHECK_OK(distag_mesh_open_line(mesh, "b", &line, &err));
  CHECK_FAILS(distag_context_create_joint(line, &context, &err), DISTAG_E_INVALID_ARGUMENT, "line");
  distag_mesh_release(line);
  CHECK_OK(distag_context_create_joint(mesh, &context, &err));
  char report[512];
  size_t report_size = 0;
  CHECK_OK(distag_context_copy_report(context, report, sizeof report, &report_size, &err));
  CHECK(report[0] == '{' && report_size > 2);
  CHECK_FAILS(distag_backward(context, &x, 1, NULL, &err), DISTAG_E_INVALID_ARGUMENT, "no history");
  CHECK_FAILS(distag_backward_async(context, &x, 1, NULL, &future, &err), DISTAG_E_UNSUPPORTED, "joint");
  CHECK_FAILS(distag_call(group->workers[rank], context, "w0", "f", NULL, 0, NULL, &answer, &err), DISTAG_E_NOT_FOUND,
              "no function \"f\"");
  CHECK(distag_tensor_get_spec(NULL) == NULL);
  CHECK(distag_tensor_get_mesh(NULL) == NULL);
  /* None of these failures ended anything. */
  CHECK_OK(distag_tensor_gather(x, -1, 0, &out, &err));
  distag_tensor_release(out);
  distag_context_release(context);
  distag_tensor_release(plain);
  distag_tensor_release(y);
  distag_tensor_release(x);
  distag_mesh_release(mesh);
}

static distag_value *list_of(const int64_t *numbers, size_t count) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_value *list = NULL;
  CHECK_OK(distag_value_create_int64_list(numbers, count, &list, &err));
  return list;
}

typedef struct sharding_op {
  int64_t ranks[2], sizes[3];
  size_t size_count;
  const char *names, *spec;
} sharding_op;

/* The attributes of op "mark_sharding". */
static distag_value *attributes_of(const sharding_op *op) {
  static const char *const keys[] = {"device_ids", "mesh_shape", "axis_names", "partition_spec"};
  distag_error err = DISTAG_ERROR_INIT;
  distag_value *items[] = {list_of(op->ranks, 2), list_of(op->sizes, op->size_count), NULL, NULL}, *map = NULL;
  CHECK_OK(distag_value_create_text(op->names, &items[2], &err));
  CHECK_OK(distag_value_create_text(op->spec, &items[3], &err));
  CHECK_OK(distag_value_create_map(keys, items, 4, &map, &err));
  for (size_t i = 0; i < 4; ++i) distag_value_release(items[i]);
  return map;
}

static void op_refused(distag_tensor *x, sharding_op op, distag_status status, const char *word, int line) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_value *attributes = attributes_of(&op);
  distag_tensor *y = NULL;
  check_fails(distag_apply("mark_sharding", &x, 1, attributes, 0, &y, 1, &err), status, &err, word, __FILE__, line,
              "apply");
  check_true(y == NULL, __FILE__, line, "nothing is given");
  distag_value_release(attributes);
}

/* The spec of activations by the name of an op, with the mesh in plain attributes. */
static void marked_by_an_op(members *group, int32_t rank) {
  static const sharding_op good = {{0, 1}, {2, 0, 0}, 1, "('x',)", "(None, 'x')"};
  distag_error err = DISTAG_ERROR_INIT;
  distag_mesh *mesh = make_mesh(group, rank, NULL);
  distag_tensor *x = marked(mesh, "('x', None)"), *y = NULL, *plain = NULL, *loss = NULL;
  distag_value *attributes = attributes_of(&good);
  distag_context *context = NULL;
  CHECK_OK(distag_tensor_set_requires_grad(x, 1, &err));
  CHECK_OK(distag_context_create_joint(mesh, &context, &err));
  CHECK_OK(distag_apply("mark_sharding", &x, 1, attributes, 0, &y, 1, &err));
  CHECK_TEXT(distag_tensor_get_spec(y), "(None, 'x')");
  CHECK_TEXT(distag_tensor_get_spec(x), "('x', None)");
  CHECK_OK(distag_sum(y, NULL, 0, 0, &loss, &err));
  distag_backward_options twice = DISTAG_BACKWARD_OPTIONS_INIT;
  twice.create_graph = 1;
  CHECK_FAILS(distag_backward(context, &loss, 1, &twice, &err), DISTAG_E_UNSUPPORTED, "joint context");
  CHECK_OK(distag_backward(context, &loss, 1, NULL, &err));
  distag_gradients *gradients = NULL;
  CHECK_OK(distag_get_gradients(context, &gradients, &err));
  CHECK_TEXT(distag_tensor_get_spec(distag_gradients_find(gradients, x)), "('x', None)");
  distag_gradients_release(gradients);
  distag_tensor_release(y);
  CHECK_OK(distag_apply("mark_sharding", &x, 1, attributes, DISTAG_APPLY_NO_GRAD, &y, 1, &err));
  CHECK_INT(distag_tensor_get_requires_grad(y), 0);
  distag_tensor_release(y);
  y = NULL;
  sharding_op bad = good;
  bad.ranks[0] = 1;
  op_refused(x, bad, DISTAG_E_NOT_FOUND, "2 members", __LINE__);
  bad = good;
  bad.names = "('y',)";
  op_refused(x, bad, DISTAG_E_NOT_FOUND, "axis_names", __LINE__);
  bad = (sharding_op){{0, 1}, {2, 1, 0}, 2, "('x', 'y')", "(None, 'x')"};
  op_refused(x, bad, DISTAG_E_NOT_FOUND, "sizes [2]", __LINE__);
  bad = (sharding_op){{0, 1}, {2, 1, 1}, 3, "('x', 'y')", "(None, 'x')"};
  op_refused(x, bad, DISTAG_E_INVALID_ARGUMENT, "2 names, mesh_shape 3 sizes", __LINE__);
  bad = good;
  bad.spec = "('x',)";
  op_refused(x, bad, DISTAG_E_INVALID_ARGUMENT, "1 item", __LINE__);
  CHECK_OK(distag_zeros(DISTAG_FLOAT32, NULL, 0, &plain, &err));
  op_refused(plain, good, DISTAG_E_INVALID_ARGUMENT, "not sharded", __LINE__);
  CHECK_FAILS(distag_apply("mark_sharding", &x, 1, NULL, 0, &y, 1, &err), DISTAG_E_INVALID_ARGUMENT, "partition_spec");
  CHECK_FAILS(distag_apply("mark_sharding", &x, 0, attributes, 0, &y, 1, &err), DISTAG_E_INVALID_ARGUMENT, "1 input");
  distag_value *odd = NULL;
  static const char *const odd_keys[] = {"mesh"};
  CHECK_OK(distag_value_create_map(odd_keys, &attributes, 1, &odd, &err));
  CHECK_FAILS(distag_apply("mark_sharding", &x, 1, odd, 0, &y, 1, &err), DISTAG_E_NOT_FOUND, "\"mesh\"");
  distag_value_release(odd);
  /* Refusals that are alike on all members end nothing. */
  CHECK_OK(distag_apply("mark_sharding", &x, 1, attributes, 0, &y, 1, &err));
  distag_value_release(attributes);
  distag_tensor_release(plain);
  distag_tensor_release(loss);
  distag_tensor_release(y);
  distag_tensor_release(x);
  distag_context_release(context);
  distag_mesh_release(mesh);
}

/* The tensor keeps the mesh, which the others can go on with. */
static void mesh_outlived(members *group, int32_t rank) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_mesh *mesh = make_mesh(group, rank, NULL);
  distag_tensor *x = marked(mesh, "('x', None)");
  distag_mesh_release(mesh);
  distag_tensor *whole = NULL;
  CHECK_OK(distag_tensor_gather(x, -1, 0, &whole, &err));
  distag_mesh_info info = DISTAG_MESH_INFO_INIT;
  CHECK_OK(distag_mesh_get_info(distag_tensor_get_mesh(x), &info, &err));
  distag_tensor_release(whole);
  distag_tensor_release(x);
}

int main(void) {
  distag_error err = DISTAG_ERROR_INIT;
  for (size_t form = 0; form < 4; ++form) {
    sharded_train(NULL, NULL, &kShardedForms[form], alone[form], &err);
    CHECK_INT(err.code, DISTAG_OK);
  }
  for (int32_t count = 1; count <= 4; ++count) {
    members group = {0};
    char name[32];
    snprintf(name, sizeof name, "sharded%d", (int)count);
    if (!CHECK(members_start(&group, count, name) == 0)) return 1;
    members_run(&group, count, train_in_all_forms);
    if (count == 2) {
      members_run(&group, count, values_and_specs);
      members_run(&group, count, failures);
      members_run(&group, count, mesh_outlived);
      members_run(&group, count, marked_by_an_op);
    }
    CHECK(members_end(&group) == 0);
  }
  return check_end();
}
