/* Compiled under every standard, as C and as C++: the header stands alone, can be included twice, and its macros work.
 */
#include <distag.h>

typedef char check_error_size[sizeof(distag_error) == 512 ? 1 : -1];

static uint32_t sizes(void) {
  const distag_error error = DISTAG_ERROR_INIT;
  const distag_op_info op = DISTAG_OP_INFO_INIT;
  const distag_tensor_info tensor = DISTAG_TENSOR_INFO_INIT;
  const distag_custom_op custom = DISTAG_CUSTOM_OP_INIT;
  const distag_member member = DISTAG_MEMBER_INIT;
  const distag_allocator allocator = DISTAG_ALLOCATOR_INIT;
  const distag_security_options security = DISTAG_SECURITY_OPTIONS_INIT;
  const distag_worker_options worker = DISTAG_WORKER_OPTIONS_INIT;
  const distag_function_options function = DISTAG_FUNCTION_OPTIONS_INIT;
  const distag_call_options call = DISTAG_CALL_OPTIONS_INIT;
  const distag_backward_options backward = DISTAG_BACKWARD_OPTIONS_INIT;
  const distag_context_info context = DISTAG_CONTEXT_INFO_INIT;
  const distag_event event = DISTAG_EVENT_INIT;
  const distag_stats stats = DISTAG_STATS_INIT;
  return error.struct_size + event.struct_size + tensor.struct_size + op.struct_size + custom.struct_size +
         member.struct_size + allocator.struct_size + security.struct_size + worker.struct_size + function.struct_size +
         call.struct_size + backward.struct_size + context.struct_size + stats.struct_size;
}

/* Each slot has the type of its function. */
static int slots(const distag_api *api) {
  distag_status (*call)(distag_worker *, distag_context *, const char *, const char *, distag_value *const *, size_t,
                        const distag_call_options *, distag_value **, distag_error *) = distag_call;
  return DISTAG_API_HAS(api, gradients_find) && api->call == call && api->op_matmul == distag_matmul &&
         DISTAG_FOREVER == -1 && DISTAG_SECOND == 1000 * DISTAG_MILLISECOND;
}

int main(void) { return sizes() == 0 || !slots(distag_get_api(DISTAG_ABI_MAJOR)); }
