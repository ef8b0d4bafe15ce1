#include "callbacks.h"

#include "_cgo_export.h"

/* The type that every object of Go has for distag; Go knows its own types. */
static const char kObjectType[] = "go";

static distag_call_options options_of(int64_t timeout_ns, const char* label) {
  distag_call_options options = DISTAG_CALL_OPTIONS_INIT;
  options.timeout_ns = timeout_ns;
  options.label = label;
  return options;
}

distag_status distag_go_call_blocking(distag_worker* worker, distag_context* context, const char* to,
                                      const char* function, distag_value** args, size_t arg_count, int64_t timeout_ns,
                                      const char* label, distag_value** out_result, distag_error* err) {
  const distag_call_options options = options_of(timeout_ns, label);
  return distag_call(worker, context, to, function, args, arg_count, &options, out_result, err);
}

distag_status distag_go_call_async(distag_worker* worker, distag_context* context, const char* to, const char* function,
                                   distag_value** args, size_t arg_count, int64_t timeout_ns, const char* label,
                                   distag_future** out_future, distag_error* err) {
  const distag_call_options options = options_of(timeout_ns, label);
  return distag_call_async(worker, context, to, function, args, arg_count, &options, out_future, err);
}

distag_status distag_go_remote(distag_worker* worker, distag_context* context, const char* to, const char* function,
                               distag_value** args, size_t arg_count, int64_t timeout_ns, const char* label,
                               distag_rref** out_rref, distag_error* err) {
  const distag_call_options options = options_of(timeout_ns, label);
  return distag_remote(worker, context, to, function, args, arg_count, &options, out_rref, err);
}

distag_status distag_go_fetch(distag_rref* rref, distag_context* context, int64_t timeout_ns, const char* label,
                              distag_future** out_future, distag_error* err) {
  const distag_call_options options = options_of(timeout_ns, label);
  return distag_rref_fetch_async(rref, context, &options, out_future, err);
}

distag_status distag_go_backward(distag_context* context, distag_tensor** roots, size_t root_count,
                                 distag_backward_mode_type mode, uint32_t retain_graph, uint32_t create_graph,
                                 int64_t timeout_ns, distag_tensor** seeds, distag_rref** remote_roots,
                                 size_t remote_root_count, distag_future** out_future, distag_error* err) {
  distag_backward_options options = DISTAG_BACKWARD_OPTIONS_INIT;
  options.mode = mode;
  options.retain_graph = retain_graph;
  options.create_graph = create_graph;
  options.timeout_ns = timeout_ns;
  options.seeds = seeds;
  options.remote_roots = remote_root_count > 0 ? remote_roots : NULL;
  options.remote_root_count = remote_root_count;
  if (out_future != NULL) return distag_backward_async(context, roots, root_count, &options, out_future, err);
  return distag_backward(context, roots, root_count, &options, err);
}

distag_status distag_go_step(distag_optimizer* optimizer, distag_context* context, int64_t timeout_ns,
                             distag_future** out_future, distag_error* err) {
  const distag_call_options options = options_of(timeout_ns, NULL);
  if (out_future != NULL) return distag_optimizer_step_async(optimizer, context, &options, out_future, err);
  return distag_optimizer_step(optimizer, context, &options, err);
}

distag_status distag_go_clip(distag_optimizer* optimizer, distag_context* context, double max_norm, int64_t timeout_ns,
                             distag_future** out_future, double* out_norm, distag_error* err) {
  const distag_call_options options = options_of(timeout_ns, NULL);
  if (out_future != NULL) return distag_optimizer_clip_async(optimizer, context, max_norm, &options, out_future, err);
  return distag_optimizer_clip(optimizer, context, max_norm, &options, out_norm, err);
}

distag_status distag_go_save(distag_optimizer* optimizer, int64_t timeout_ns, distag_future** out_future,
                             distag_value** out_state, distag_error* err) {
  const distag_call_options options = options_of(timeout_ns, NULL);
  if (out_future != NULL) return distag_optimizer_save_async(optimizer, &options, out_future, err);
  return distag_optimizer_save(optimizer, &options, out_state, err);
}

distag_status distag_go_load(distag_optimizer* optimizer, distag_value* state, int64_t timeout_ns,
                             distag_future** out_future, distag_error* err) {
  const distag_call_options options = options_of(timeout_ns, NULL);
  if (out_future != NULL) return distag_optimizer_load_async(optimizer, state, &options, out_future, err);
  return distag_optimizer_load(optimizer, state, &options, err);
}

static void destroy(void* user_data) { distagGoDelete((uintptr_t)user_data); }

static distag_status invoke(void* user_data, distag_invocation* invocation, distag_error* err) {
  return distagGoInvoke((uintptr_t)user_data, invocation, err);
}

distag_status distag_go_register(distag_worker* worker, const char* name, uintptr_t function, const char** callers,
                                 size_t caller_count, distag_error* err) {
  distag_function_options options = DISTAG_FUNCTION_OPTIONS_INIT;
  options.callers = callers;
  options.caller_count = caller_count;
  return distag_worker_register(worker, name, invoke, (void*)function, destroy, &options, err);
}

static void done(void* user_data, distag_future* future) {
  (void)future;
  distagGoDone((uintptr_t)user_data);
}

distag_status distag_go_on_done(distag_future* future, uintptr_t handle, distag_error* err) {
  return distag_future_on_done(future, done, (void*)handle, destroy, err);
}

static distag_status forward(void* user_data, distag_tensor* const* inputs, size_t input_count,
                             distag_tensor** out_outputs, size_t output_count, distag_error* err) {
  return distagGoForward((uintptr_t)user_data, (distag_tensor**)inputs, input_count, out_outputs, output_count, err);
}

static distag_status backward(void* user_data, distag_tensor* const* output_gradients, size_t output_count,
                              distag_tensor** out_input_gradients, size_t input_count, distag_error* err) {
  return distagGoBackward((uintptr_t)user_data, (distag_tensor**)output_gradients, output_count, out_input_gradients,
                          input_count, err);
}

distag_status distag_go_apply_custom(const char* name, uintptr_t handle, distag_tensor** inputs, size_t input_count,
                                     distag_tensor** out_outputs, size_t output_count, distag_error* err) {
  distag_custom_op op = DISTAG_CUSTOM_OP_INIT;
  op.name = name;
  op.forward = forward;
  op.backward = backward;
  op.user_data = (void*)handle;
  op.destroy = destroy;
  return distag_apply_custom(&op, inputs, input_count, out_outputs, output_count, err);
}

static distag_status hook(void* user_data, distag_tensor* gradient, distag_tensor** out_gradient, distag_error* err) {
  return distagGoHook((uintptr_t)user_data, gradient, out_gradient, err);
}

distag_status distag_go_add_hook(distag_tensor* tensor, uintptr_t handle, uint64_t* out_hook_id, distag_error* err) {
  return distag_tensor_add_hook(tensor, hook, (void*)handle, destroy, out_hook_id, err);
}

distag_status distag_go_create_object(uintptr_t object, distag_value** out_value, distag_error* err) {
  return distag_value_create_object(kObjectType, (void*)object, destroy, out_value, err);
}

distag_status distag_go_get_object(distag_value* value, uintptr_t* out_object, distag_error* err) {
  void* object = NULL;
  const distag_status status = distag_value_get_object(value, kObjectType, &object, err);
  *out_object = (uintptr_t)object;
  return status;
}

static void give_back(void* user_data) { distagGoGiveBack((uintptr_t)user_data); }

distag_status distag_go_borrow(void* memory, size_t size, distag_dtype dtype, const int64_t* shape, size_t ndim,
                               uintptr_t release, distag_tensor** out_tensor, distag_error* err) {
  return distag_tensor_create_borrowed(memory, size, dtype, shape, NULL, ndim, (void*)release, give_back, out_tensor,
                                       err);
}

static void log_record(void* user_data, int32_t level, const char* message) {
  distagGoLog((uintptr_t)user_data, level, (char*)message);
}

static void member(void* user_data, distag_worker* worker, const distag_member* seen) {
  (void)worker;
  distagGoMember((uintptr_t)user_data, (distag_member*)seen);
}

void distag_go_set_callbacks(distag_worker_options* options, uintptr_t callbacks, int32_t logs, int32_t members) {
  options->user_data = (void*)callbacks;
  options->destroy = destroy;
  options->on_log = logs ? log_record : NULL;
  options->on_member = members ? member : NULL;
}

distag_status distag_go_start_trace(distag_worker* worker, const char* folder, uint64_t max_bytes, distag_error* err) {
  distag_trace_options options = DISTAG_TRACE_OPTIONS_INIT;
  options.folder = folder;
  options.max_bytes = max_bytes;
  return distag_worker_start_trace(worker, &options, err);
}

distag_status distag_go_visualize(distag_mesh* mesh, const char* spec, const int64_t* shape, size_t ndim,
                                  uint32_t format, uint32_t color, uint32_t width, uint32_t row_dim,
                                  uint32_t column_dim, const char* label, char* buffer, size_t capacity,
                                  size_t* out_size, distag_error* err) {
  distag_picture_options options = DISTAG_PICTURE_OPTIONS_INIT;
  options.format = format;
  options.color = color;
  options.width = width;
  options.row_dim = row_dim;
  options.column_dim = column_dim;
  options.label = label;
  return distag_visualize_sharding(mesh, spec, shape, ndim, &options, buffer, capacity, out_size, err);
}
