/* The C side of Go. A handle of Go's own table crosses as uintptr_t, never as a pointer, and the pointers to functions
 * of C are made here. */
#ifndef DISTAG_GO_CALLBACKS_H
#define DISTAG_GO_CALLBACKS_H

#include <distag.h>

distag_status distag_go_call_blocking(distag_worker* worker, distag_context* context, const char* to,
                                      const char* function, distag_value** args, size_t arg_count, int64_t timeout_ns,
                                      const char* label, distag_value** out_result, distag_error* err);
distag_status distag_go_call_async(distag_worker* worker, distag_context* context, const char* to, const char* function,
                                   distag_value** args, size_t arg_count, int64_t timeout_ns, const char* label,
                                   distag_future** out_future, distag_error* err);
distag_status distag_go_remote(distag_worker* worker, distag_context* context, const char* to, const char* function,
                               distag_value** args, size_t arg_count, int64_t timeout_ns, const char* label,
                               distag_rref** out_rref, distag_error* err);
distag_status distag_go_fetch(distag_rref* rref, distag_context* context, int64_t timeout_ns, const char* label,
                              distag_future** out_future, distag_error* err);

/* Each of these makes a future if there is an out_future, and else runs at once. */
distag_status distag_go_backward(distag_context* context, distag_tensor** roots, size_t root_count,
                                 distag_backward_mode_type mode, uint32_t retain_graph, uint32_t create_graph,
                                 int64_t timeout_ns, distag_tensor** seeds, distag_rref** remote_roots,
                                 size_t remote_root_count, distag_future** out_future, distag_error* err);
distag_status distag_go_step(distag_optimizer* optimizer, distag_context* context, int64_t timeout_ns,
                             distag_future** out_future, distag_error* err);
distag_status distag_go_clip(distag_optimizer* optimizer, distag_context* context, double max_norm, int64_t timeout_ns,
                             distag_future** out_future, double* out_norm, distag_error* err);
distag_status distag_go_save(distag_optimizer* optimizer, int64_t timeout_ns, distag_future** out_future,
                             distag_value** out_state, distag_error* err);
distag_status distag_go_load(distag_optimizer* optimizer, distag_value* state, int64_t timeout_ns,
                             distag_future** out_future, distag_error* err);

distag_status distag_go_register(distag_worker* worker, const char* name, uintptr_t function, const char** callers,
                                 size_t caller_count, distag_error* err);
distag_status distag_go_on_done(distag_future* future, uintptr_t done, distag_error* err);
distag_status distag_go_apply_custom(const char* name, uintptr_t op, distag_tensor** inputs, size_t input_count,
                                     distag_tensor** out_outputs, size_t output_count, distag_error* err);
distag_status distag_go_add_hook(distag_tensor* tensor, uintptr_t hook, uint64_t* out_hook_id, distag_error* err);
distag_status distag_go_create_object(uintptr_t object, distag_value** out_value, distag_error* err);
distag_status distag_go_get_object(distag_value* value, uintptr_t* out_object, distag_error* err);
distag_status distag_go_borrow(void* memory, size_t size, distag_dtype dtype, const int64_t* shape, size_t ndim,
                               uintptr_t release, distag_tensor** out_tensor, distag_error* err);
void distag_go_set_callbacks(distag_worker_options* options, uintptr_t callbacks, int32_t logs, int32_t members);

distag_status distag_go_start_trace(distag_worker* worker, const char* folder, uint64_t max_bytes, distag_error* err);
distag_status distag_go_visualize(distag_mesh* mesh, const char* spec, const int64_t* shape, size_t ndim,
                                  uint32_t format, uint32_t color, uint32_t width, uint32_t row_dim,
                                  uint32_t column_dim, const char* label, char* buffer, size_t capacity,
                                  size_t* out_size, distag_error* err);

#endif
