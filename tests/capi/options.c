/* Options structs: sizes, members of later versions, enums, and what is refused at creation. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <unistd.h>

#include "capi/check.h"
#include "capi/support/group.h"

static distag_error err = DISTAG_ERROR_INIT;
static distag_worker *worker;
static int destroyed;

static void count_destroy(void *user_data) { ++*(int *)user_data; }

static void *allocate(void *user_data, size_t size, size_t alignment) {
  (void)user_data;
  (void)size;
  (void)alignment;
  return NULL;
}

static void deallocate(void *user_data, void *memory, size_t size, size_t alignment) {
  (void)user_data;
  (void)memory;
  (void)size;
  (void)alignment;
}

static distag_worker_options good(void) {
  distag_worker_options options = group_options(0, 2, "inproc://options");
  options.user_data = &destroyed;
  options.destroy = count_destroy;
  return options;
}

/* A creation that must fail, and end the user data. */
static void refused(const distag_worker_options *options, distag_status status, const char *word, int line) {
  destroyed = 0;
  err.code = DISTAG_OK;
  check_fails(distag_worker_create(options, &worker, &err), status, &err, word, __FILE__, line, "create");
  check_int(destroyed, 1, __FILE__, line, "destroyed");
  check_true(worker == NULL, __FILE__, line, "no worker");
}

#define REFUSED(member, value, status, word) \
  do {                                       \
    distag_worker_options given = good();    \
    given.member = (value);                  \
    refused(&given, status, word, __LINE__); \
  } while (0)

static void worker_options(void) {
  REFUSED(executor, 3, DISTAG_E_UNSUPPORTED, "executor");
  REFUSED(log_level, 5, DISTAG_E_UNSUPPORTED, "log_level");
  REFUSED(log_level, -1, DISTAG_E_UNSUPPORTED, "log_level");
  REFUSED(thread_count, 257, DISTAG_E_UNSUPPORTED, "thread_count");
  REFUSED(rank, 2, DISTAG_E_INVALID_ARGUMENT, "rank");
  REFUSED(rank, -1, DISTAG_E_INVALID_ARGUMENT, "rank");
  REFUSED(world_size, -2, DISTAG_E_INVALID_ARGUMENT, "world_size");
  REFUSED(world_size, -2, DISTAG_E_INVALID_ARGUMENT, "world_size");
  REFUSED(world_size, 65537, DISTAG_E_INVALID_ARGUMENT, "world_size");
  REFUSED(call_timeout_ns, -2, DISTAG_E_INVALID_ARGUMENT, "call_timeout_ns");
  REFUSED(lease_ns, -1, DISTAG_E_INVALID_ARGUMENT, "lease_ns");
  REFUSED(name, "", DISTAG_E_INVALID_ARGUMENT, "name");
  REFUSED(name, "two words", DISTAG_E_INVALID_ARGUMENT, "two words");
  REFUSED(job, "\xFF", DISTAG_E_INVALID_ARGUMENT, "job");
  char long_name[129];
  memset(long_name, 'n', 128);
  long_name[128] = '\0';
  REFUSED(name, long_name, DISTAG_E_INVALID_ARGUMENT, "127");
  long_name[127] = '\0';
  distag_worker_options options = good();
  options.name = long_name;
  destroyed = 0;
  CHECK_OK(distag_worker_create(&options, &worker, &err));
  CHECK_TEXT(distag_worker_get_name(worker), long_name);
  CHECK_INT(distag_worker_get_world_size(worker), 2);
  distag_worker_release(worker); /* never started: ends at once */
  CHECK_INT(destroyed, 1);
}

static void sizes(void) {
  struct {
    distag_worker_options head;
    uint64_t tail[2];
  } later;
  distag_worker_options options = good();
  options.struct_size = 0;
  destroyed = 0;
  worker = NULL;
  CHECK_FAILS(distag_worker_create(&options, &worker, &err), DISTAG_E_INVALID_ARGUMENT, "struct_size");
  options.struct_size = sizeof options - 8;
  CHECK_FAILS(distag_worker_create(&options, &worker, &err), DISTAG_E_INVALID_ARGUMENT, "struct_size");
  options.struct_size = 1u << 30;
  CHECK_FAILS(distag_worker_create(&options, &worker, &err), DISTAG_E_INVALID_ARGUMENT, "struct_size");
  CHECK_INT(destroyed, 0); /* nothing of it is used */

  /* A program that was compiled against 0.2: behind its struct is memory of something else. */
  memset(&later, 0, sizeof later);
  later.head = good();
  later.head.struct_size = (uint32_t)offsetof(distag_worker_options, no_lane);
  later.head.no_lane = 77;
  CHECK_OK(distag_worker_create(&later.head, &worker, &err));
  distag_worker_release(worker);
  worker = NULL;

  memset(&later, 0, sizeof later);
  later.head = good();
  later.head.struct_size = sizeof later;
  later.tail[1] = 1;
  refused(&later.head, DISTAG_E_UNSUPPORTED, "not know", __LINE__);
  later.tail[1] = 0;
  CHECK_OK(distag_worker_create(&later.head, &worker, &err));
  distag_worker_release(worker);
  worker = NULL;
}

/* Starts alone at a folder, and returns the status; the report has `engine`. */
static distag_status start_with(uint32_t engine, const char *environment, const char *in_report) {
  char folder[] = "/tmp/distag-options-XXXXXX", uri[64];
  static char report[65536];
  size_t size = 0;
  if (environment == NULL) {
    unsetenv("DISTAG_SOCKET_ENGINE");
  } else {
    setenv("DISTAG_SOCKET_ENGINE", environment, 1);
  }
  CHECK(mkdtemp(folder) != NULL);
  snprintf(uri, sizeof uri, "file://%s", folder);
  distag_worker_options options = DISTAG_WORKER_OPTIONS_INIT;
  options.world_size = 1;
  options.rendezvous = uri;
  options.socket_engine = engine;
  CHECK_OK(distag_worker_create(&options, &worker, &err));
  const distag_status status = distag_worker_start(worker, 120 * DISTAG_SECOND, &err);
  if (status == DISTAG_OK) {
    CHECK_OK(distag_worker_copy_report(worker, report, sizeof report, &size, &err));
    CHECK(strstr(report, in_report) != NULL);
    CHECK_OK(distag_worker_shutdown(worker, 120 * DISTAG_SECOND, NULL, &err));
  } else {
    CHECK(strstr(err.message, in_report) != NULL);
    err = (distag_error)DISTAG_ERROR_INIT;
  }
  distag_worker_release(worker);
  worker = NULL;
  rmdir(folder);
  return status;
}

static void socket_engine(void) {
  REFUSED(socket_engine, 3, DISTAG_E_INVALID_ARGUMENT, "socket_engine is 3");
  const char *const given = getenv("DISTAG_SOCKET_ENGINE");
  CHECK_INT(start_with(0, NULL, "\"engine\": \"zmq\""), DISTAG_OK);
  CHECK_INT(start_with(0, "zmtp", "\"engine\": \"zmtp\""), DISTAG_OK);
  CHECK_INT(start_with(0, "zmq", "\"version\": \"4."), DISTAG_OK);
  CHECK_INT(start_with(DISTAG_SOCKET_ENGINE_ZMTP, "zmq", "\"engine\": \"zmtp\""), DISTAG_OK);
  CHECK_INT(start_with(DISTAG_SOCKET_ENGINE_ZMQ, "zmtp", "\"engine\": \"zmq\""), DISTAG_OK);
  CHECK_INT(start_with(0, "tcp", "\"tcp\": set it to zmq or zmtp"), DISTAG_E_INVALID_ARGUMENT);
  CHECK_INT(start_with(DISTAG_SOCKET_ENGINE_ZMQ, "tcp", "\"engine\": \"zmq\""), DISTAG_OK);
  if (given == NULL) unsetenv("DISTAG_SOCKET_ENGINE");
}

static void security(void) {
  distag_security_options limits = DISTAG_SECURITY_OPTIONS_INIT;
  limits.allow_insecure = 2;
  REFUSED(security, &limits, DISTAG_E_INVALID_ARGUMENT, "allow_insecure");
  limits.allow_insecure = 0;
  limits.group_key = "0123456789012345678901234567890";
  REFUSED(security, &limits, DISTAG_E_INVALID_ARGUMENT, "31 characters");
  limits.group_key = NULL;
  limits.public_key = "key";
  REFUSED(security, &limits, DISTAG_E_INVALID_ARGUMENT, "public_key");
  limits.public_key = NULL;
  limits.peer_count = 1;
  REFUSED(security, &limits, DISTAG_E_INVALID_ARGUMENT, "peer_names");
  limits.peer_count = 0;
  limits.struct_size = (uint32_t)offsetof(distag_security_options, group_key); /* that of 0.2 */
  limits.group_key = (const char *)1;
  distag_worker_options old = good();
  old.security = &limits;
  CHECK_OK(distag_worker_create(&old, &worker, &err));
  distag_worker_release(worker);
  worker = NULL;
  limits.struct_size = 4;
  REFUSED(security, &limits, DISTAG_E_INVALID_ARGUMENT, "distag_security_options");
}

static void allocators(void) {
  distag_allocator allocator = DISTAG_ALLOCATOR_INIT;
  distag_worker_options options = good();
  int ended = 0;
  allocator.user_data = &ended;
  allocator.destroy = count_destroy;
  REFUSED(allocator, &allocator, DISTAG_E_INVALID_ARGUMENT, "allocate");
  CHECK_INT(ended, 1); /* exactly once, also when the creation fails */
  allocator.allocate = allocate;
  REFUSED(allocator, &allocator, DISTAG_E_INVALID_ARGUMENT, "deallocate");
  allocator.deallocate = deallocate;
  allocator.reserved = 1;
  REFUSED(allocator, &allocator, DISTAG_E_UNSUPPORTED, "reserved");
  allocator.reserved = 0;
  CHECK_INT(ended, 3);
  options.allocator = &allocator;
  options.rank = 5;
  refused(&options, DISTAG_E_INVALID_ARGUMENT, "rank", __LINE__);
  CHECK_INT(ended, 4);
  options.rank = 0;
  CHECK_OK(distag_worker_create(&options, &worker, &err));
  CHECK_INT(ended, 4);
  distag_worker_release(worker);
  worker = NULL;
  CHECK_INT(ended, 5);
}

static distag_status nothing(void *user_data, distag_invocation *invocation, distag_error *told) {
  (void)user_data;
  (void)invocation;
  (void)told;
  return DISTAG_OK;
}

/* Options of functions, calls and passes. */
static void other_options(void) {
  const char *const names[] = {"w0"};
  distag_function_options function = DISTAG_FUNCTION_OPTIONS_INIT;
  distag_call_options call = DISTAG_CALL_OPTIONS_INIT;
  distag_backward_options backward = DISTAG_BACKWARD_OPTIONS_INIT;
  distag_context_info info = DISTAG_CONTEXT_INFO_INIT;
  distag_context *context = NULL;
  distag_tensor *x = NULL, *y = NULL;
  const distag_worker_options options = group_options(0, 1, "inproc://other_options");

  CHECK_OK(distag_worker_create(&options, &worker, &err));
  function.callers = names;
  CHECK_FAILS(distag_worker_register(worker, "f", nothing, NULL, NULL, &function, &err), DISTAG_E_UNSUPPORTED,
              "callers");
  function.callers = NULL;
  function.caller_count = 1;
  CHECK_FAILS(distag_worker_register(worker, "f", nothing, NULL, NULL, &function, &err), DISTAG_E_UNSUPPORTED,
              "caller");
  function.caller_count = 0;
  CHECK_OK(distag_worker_register(worker, "f", nothing, NULL, NULL, &function, &err));
  CHECK_FAILS(distag_worker_start(worker, -3, &err), DISTAG_E_INVALID_ARGUMENT, "timeout_ns");
  CHECK_OK(distag_worker_start(worker, 120 * DISTAG_SECOND, &err));

  char label[130] = "";
  call.label = "a label";
  CHECK_FAILS(distag_call(worker, NULL, "w0", "nobody", NULL, 0, &call, NULL, &err), DISTAG_E_NOT_FOUND,
              "call \"nobody\" (\"a label\") on \"w0\" (rank 0)");
  call.label = memset(label, 'x', 127);
  CHECK_FAILS(distag_call(worker, NULL, "w0", "nobody", NULL, 0, &call, NULL, &err), DISTAG_E_NOT_FOUND, label);
  call.label = memset(label, 'x', 128);
  CHECK_FAILS(distag_call(worker, NULL, "w0", "f", NULL, 0, &call, NULL, &err), DISTAG_E_INVALID_ARGUMENT, "128 bytes");
  call.label = "\xff";
  CHECK_FAILS(distag_call(worker, NULL, "w0", "f", NULL, 0, &call, NULL, &err), DISTAG_E_INVALID_ARGUMENT, "UTF-8");
  call.label = NULL;
  call.reserved = 1;
  CHECK_FAILS(distag_call(worker, NULL, "w0", "f", NULL, 0, &call, NULL, &err), DISTAG_E_UNSUPPORTED, "reserved");
  call.reserved = 0;
  call.timeout_ns = -7;
  CHECK_FAILS(distag_call(worker, NULL, "w0", "f", NULL, 0, &call, NULL, &err), DISTAG_E_INVALID_ARGUMENT, "timeout");
  call.timeout_ns = DISTAG_FOREVER;
  CHECK_OK(distag_call(worker, NULL, "w0", "f", NULL, 0, &call, NULL, &err));

  CHECK_OK(distag_context_create(NULL, &context, &err));
  CHECK_FAILS(distag_call(worker, context, "w0", "f", NULL, 0, NULL, NULL, &err), DISTAG_E_INVALID_ARGUMENT, "worker");
  CHECK_OK(distag_full(1, DISTAG_FLOAT32, NULL, 0, &x, &err));
  CHECK_OK(distag_tensor_set_requires_grad(x, 1, &err));
  CHECK_OK(distag_neg(x, &y, &err));
  backward.mode = 3;
  CHECK_FAILS(distag_backward(context, &y, 1, &backward, &err), DISTAG_E_UNSUPPORTED, "mode");
  backward.mode = UINT32_MAX;
  CHECK_FAILS(distag_backward(context, &y, 1, &backward, &err), DISTAG_E_UNSUPPORTED, "mode");
  backward.mode = DISTAG_BACKWARD_FAST;
  backward.create_graph = 2;
  CHECK_FAILS(distag_backward(context, &y, 1, &backward, &err), DISTAG_E_INVALID_ARGUMENT, "create_graph");
  backward.create_graph = 0;
  backward.remote_root_count = 1;
  CHECK_FAILS(distag_backward(context, &y, 1, &backward, &err), DISTAG_E_INVALID_ARGUMENT, "remote_root");
  backward.remote_root_count = 0;
  backward.retain_graph = 2;
  CHECK_FAILS(distag_backward(context, &y, 1, &backward, &err), DISTAG_E_INVALID_ARGUMENT, "retain_graph");
  backward.retain_graph = 0;
  CHECK_OK(distag_backward(context, &y, 1, &backward, &err));
  info.struct_size = 1;
  CHECK_FAILS(distag_context_get_info(context, &info, &err), DISTAG_E_INVALID_ARGUMENT, "distag_context_info");
  distag_tensor_release(x);
  distag_tensor_release(y);
  distag_context_release(context);
  CHECK_OK(distag_worker_shutdown(worker, 120 * DISTAG_SECOND, NULL, &err));
  distag_worker_release(worker);
}

int main(void) {
  worker_options();
  sizes();
  security();
  socket_engine();
  allocators();
  other_options();
  return check_end();
}
