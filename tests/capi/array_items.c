/* A NULL, or a handle of another kind, within an array of pointers is refused by its index, for every such array. */
#include "capi/check.h"
#include "capi/support/group.h"

static distag_error err = DISTAG_ERROR_INIT;
static distag_tensor *t;
static distag_value *v;

static distag_status identity(void *user_data, distag_tensor *const *inputs, size_t input_count,
                              distag_tensor **out_outputs, size_t output_count, distag_error *told) {
  (void)user_data, (void)input_count, (void)output_count;
  return distag_clone(inputs[0], &out_outputs[0], told);
}

static void local_arrays(void) {
  distag_tensor *const tensors[] = {t, t, NULL}, *out = NULL;
  distag_tensor *const others[] = {t, (distag_tensor *)(void *)v};
  distag_value *const values[] = {v, NULL}, *made = NULL;
  const char *const keys[] = {"a", NULL}, *const good[] = {"a", "b"};
  distag_value *const both[] = {v, v};
  distag_custom_op op = DISTAG_CUSTOM_OP_INIT;
  op.name = "identity";
  op.forward = identity;
  CHECK_FAILS(distag_concat(tensors, 3, 0, &out, &err), DISTAG_E_INVALID_ARGUMENT, "xs[2] is NULL");
  CHECK_FAILS(distag_concat(others, 2, 0, &out, &err), DISTAG_E_INVALID_ARGUMENT, "xs[1] is a value handle");
  CHECK_FAILS(distag_apply("concat", tensors, 3, NULL, 0, &out, 1, &err), DISTAG_E_INVALID_ARGUMENT,
              "inputs[2] is NULL");
  CHECK_FAILS(distag_apply("add", others, 2, NULL, 0, &out, 1, &err), DISTAG_E_INVALID_ARGUMENT,
              "inputs[1] is a value handle");
  CHECK_FAILS(distag_apply_custom(&op, tensors, 3, &out, 1, &err), DISTAG_E_INVALID_ARGUMENT, "inputs[2] is NULL");
  CHECK_FAILS(distag_value_create_list(values, 2, &made, &err), DISTAG_E_INVALID_ARGUMENT, "items[1] is NULL");
  CHECK_FAILS(distag_value_create_map(good, values, 2, &made, &err), DISTAG_E_INVALID_ARGUMENT, "items[1] is NULL");
  CHECK_FAILS(distag_value_create_map(keys, both, 2, &made, &err), DISTAG_E_INVALID_ARGUMENT, "keys[1] is NULL");
  CHECK(out == NULL && made == NULL);
}

static void passes_and_optimizers(distag_worker *worker) {
  distag_context *context = NULL;
  distag_optimizer *optimizer = NULL;
  distag_tensor *const roots[] = {t, NULL}, *const two[] = {t, t};
  distag_tensor *const seeds[] = {NULL, (distag_tensor *)(void *)v};
  distag_rref *const references[] = {NULL};
  distag_value *const parameters[] = {distag_tensor_as_value(t), NULL}, *const others[] = {distag_tensor_as_value(t),
                                                                                           v};
  distag_backward_options options = DISTAG_BACKWARD_OPTIONS_INIT;
  CHECK_OK(distag_context_create(worker, &context, &err));
  CHECK_FAILS(distag_backward(context, roots, 2, NULL, &err), DISTAG_E_INVALID_ARGUMENT, "roots[1] is NULL");
  options.seeds = seeds;
  CHECK_FAILS(distag_backward(context, two, 2, &options, &err), DISTAG_E_INVALID_ARGUMENT,
              "seeds[1] is a value handle");
  options.seeds = NULL;
  options.remote_roots = references;
  options.remote_root_count = 1;
  CHECK_FAILS(distag_backward(context, two, 1, &options, &err), DISTAG_E_INVALID_ARGUMENT, "remote_roots[0] is NULL");
  CHECK_FAILS(distag_optimizer_create(NULL, "sgd", parameters, 2, &optimizer, &err), DISTAG_E_INVALID_ARGUMENT,
              "parameters[1] is NULL");
  CHECK_FAILS(distag_optimizer_create(NULL, "sgd", others, 2, &optimizer, &err), DISTAG_E_INVALID_ARGUMENT,
              "parameters[1] is an int64");
  CHECK(optimizer == NULL);
  distag_context_release(context);
}

static void calls_and_futures(distag_worker *worker) {
  distag_value *const args[] = {v, v, NULL}, *answer = NULL;
  distag_future *futures[] = {NULL, NULL};
  distag_value *const pair[] = {distag_tensor_as_value(t), distag_tensor_as_value(t)};
  CHECK_FAILS(distag_call(worker, NULL, "w0", "add", args, 3, NULL, &answer, &err), DISTAG_E_INVALID_ARGUMENT,
              "args[2] is NULL");
  CHECK_OK(distag_call_async(worker, NULL, "w0", "add", pair, 2, NULL, &futures[0], &err));
  CHECK_FAILS(distag_wait_all(futures, 2, DISTAG_FOREVER, &err), DISTAG_E_INVALID_ARGUMENT, "futures[1] is NULL");
  CHECK_OK(distag_wait_all(futures, 1, DISTAG_FOREVER, &err));
  distag_future_release(futures[0]);
  CHECK(answer == NULL);
}

static distag_status no_batch(void *user_data, uint64_t number, const int64_t *rows, size_t row_count,
                              distag_value **out_batch, distag_error *told) {
  (void)user_data, (void)number, (void)rows, (void)row_count, (void)out_batch, (void)told;
  return DISTAG_OK;
}

static void meshes(distag_worker *worker) {
  const int64_t shape[] = {1, 1};
  const char *const names[] = {"x", NULL}, *const rules[] = {"*", NULL}, *const specs[] = {"(None,)", NULL};
  const char *const both[] = {"a", "b"};
  distag_tensor *const leaves[] = {t, NULL}, *const two[] = {t, t};
  distag_mesh *mesh = NULL;
  distag_loader *loader = NULL;
  distag_plan *plan = NULL;
  distag_loader_options loading = DISTAG_LOADER_OPTIONS_INIT;
  distag_plan_options planning = DISTAG_PLAN_OPTIONS_INIT;
  CHECK_FAILS(distag_mesh_create(worker, NULL, 0, shape, names, 2, NULL, &mesh, &err), DISTAG_E_INVALID_ARGUMENT,
              "axis_names[1] is NULL");
  CHECK_OK(distag_mesh_create(worker, NULL, 0, shape, both, 2, NULL, &mesh, &err));
  loading.keys = both;
  loading.specs = specs;
  loading.spec_count = 2;
  CHECK_FAILS(distag_loader_create(mesh, no_batch, NULL, NULL, &loading, &loader, &err), DISTAG_E_INVALID_ARGUMENT,
              "specs[1] is NULL");
  planning.leaf_count = 2;
  planning.names = both;
  planning.leaves = leaves;
  CHECK_FAILS(distag_plan_create(mesh, NULL, 0, &planning, &plan, &err), DISTAG_E_INVALID_ARGUMENT,
              "leaves[1] is NULL");
  planning.leaves = two;
  planning.names = names;
  CHECK_FAILS(distag_plan_create(mesh, NULL, 0, &planning, &plan, &err), DISTAG_E_INVALID_ARGUMENT, "names[1] is NULL");
  planning.names = both;
  planning.rule_count = 2;
  planning.patterns = rules;
  planning.specs = both;
  CHECK_FAILS(distag_plan_create(mesh, NULL, 0, &planning, &plan, &err), DISTAG_E_INVALID_ARGUMENT,
              "patterns[1] is NULL");
  planning.patterns = both;
  planning.specs = specs;
  CHECK_FAILS(distag_plan_create(mesh, NULL, 0, &planning, &plan, &err), DISTAG_E_INVALID_ARGUMENT, "specs[1] is NULL");
  CHECK(loader == NULL && plan == NULL);
  distag_mesh_release(mesh);
}

static void names_and_keys(void) {
  distag_key_pair pair = DISTAG_KEY_PAIR_INIT, other = DISTAG_KEY_PAIR_INIT;
  CHECK_OK(distag_security_create_keys(&pair, &err));
  CHECK_OK(distag_security_create_keys(&other, &err));
  const char *const names[] = {"w1", NULL}, *const keys[] = {other.public_key, other.public_key};
  const char *const no_name[] = {"w1", "no name"};
  distag_security_options security = DISTAG_SECURITY_OPTIONS_INIT;
  security.secret_key = pair.secret_key;
  security.peer_names = names;
  security.peer_keys = keys;
  security.peer_count = 2;
  distag_worker_options options = group_options(0, 2, "inproc://array_items_keys");
  options.security = &security;
  distag_worker *worker = NULL;
  CHECK_FAILS(distag_worker_create(&options, &worker, &err), DISTAG_E_INVALID_ARGUMENT, "peer_names[1] is NULL");
  security.peer_count = 1;
  security.initiators = names;
  security.initiator_count = 2;
  CHECK_FAILS(distag_worker_create(&options, &worker, &err), DISTAG_E_INVALID_ARGUMENT, "initiators[1] is NULL");
  security.initiators = NULL;
  security.initiator_count = 0;
  CHECK_OK(distag_worker_create(&options, &worker, &err));
  CHECK_FAILS(distag_worker_set_peers(worker, names, keys, 2, &err), DISTAG_E_INVALID_ARGUMENT, "names[1] is NULL");
  distag_function_options calls = DISTAG_FUNCTION_OPTIONS_INIT;
  calls.callers = no_name;
  calls.caller_count = 2;
  CHECK_FAILS(distag_worker_register(worker, "triple", group_triple, NULL, NULL, &calls, &err),
              DISTAG_E_INVALID_ARGUMENT, "callers[1] \"no name\" is not");
  distag_worker_release(worker);
}

int main(void) {
  distag_worker *worker = NULL;
  const distag_worker_options options = group_options(0, 1, "inproc://array_items");
  const int64_t shape = 1;
  CHECK_OK(distag_zeros(DISTAG_FLOAT32, &shape, 1, &t, &err));
  CHECK_OK(distag_value_create_int64(1, &v, &err));
  CHECK_OK(distag_worker_create(&options, &worker, &err));
  CHECK_OK(distag_worker_start(worker, DISTAG_FOREVER, &err));
  local_arrays();
  passes_and_optimizers(worker);
  calls_and_futures(worker);
  meshes(worker);
  names_and_keys();
  CHECK_OK(distag_worker_shutdown(worker, DISTAG_FOREVER, NULL, &err));
  distag_worker_release(worker);
  distag_value_release(v);
  distag_tensor_release(t);
  return check_end();
}
