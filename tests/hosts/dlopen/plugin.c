/* A plugin that loads distag by itself, uses nothing but distag_get_api, and unloads it. */
#define _GNU_SOURCE
#include "plugin.h"

#include <distag.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { kCalls = 10, kSize = 1 << 20 };

static void* library;
static const distag_api* api;
static distag_error err;
static distag_worker* workers[2]; /* "frames" runs its functions in poll(), "peer" on a thread */
static distag_future* open_call;
static int calls_served, calls_made;
static char bytes[kSize];
static char folder[sizeof "file:///tmp/distag_plugin.XXXXXX"]; /* of the rendezvous: they meet by sockets */

static int failed(void) {
  if (err.code == DISTAG_OK) return 0;
  printf("plugin: %s\n", err.message);
  return -1;
}

static distag_status square(void* user_data, distag_invocation* invocation, distag_error* error) {
  distag_tensor *x = NULL, *y = NULL;
  (void)user_data;
  api->invocation_get_tensor(invocation, 0, &x, error);
  api->op_mul(x, x, &y, error);
  api->invocation_return(invocation, api->tensor_as_value(y), error);
  api->tensor_release(y);
  return error->code;
}

static distag_status echo(void* user_data, distag_invocation* invocation, distag_error* error) {
  (void)user_data;
  ++calls_served;
  return api->invocation_return(invocation, api->invocation_get_arg(invocation, 0), error);
}

static int begin(const char* path, int flags) {
  static const distag_error none = DISTAG_ERROR_INIT;
  const distag_api* (*get_api)(uint32_t);
  distag_future* starts[2] = {NULL, NULL};
  void* symbol;
  err = none;
  strcpy(folder, "file:///tmp/distag_plugin.XXXXXX");
  if (mkdtemp(folder + strlen("file://")) == NULL) return perror("mkdtemp"), -1;
  library = dlopen(path, RTLD_NOW | flags);
  if (library == NULL) return printf("%s\n", dlerror()), -1;
  symbol = dlsym(library, "distag_get_api");
  memcpy(&get_api, &symbol, sizeof get_api);
  api = get_api(DISTAG_ABI_MAJOR);
  for (int rank = 0; rank < 2; ++rank) {
    distag_worker_options options = DISTAG_WORKER_OPTIONS_INIT;
    options.rank = rank;
    options.world_size = 2;
    options.name = rank == 0 ? "frames" : "peer";
    options.rendezvous = folder;
    options.thread_count = 1;
    options.executor = rank == 0 ? DISTAG_EXECUTOR_HOST : DISTAG_EXECUTOR_POOL;
    api->worker_create(&options, &workers[rank], &err);
    api->worker_register(workers[rank], "square", square, NULL, NULL, NULL, &err);
    api->worker_register(workers[rank], "echo", echo, NULL, NULL, NULL, &err);
    api->worker_start_async(workers[rank], 120 * DISTAG_SECOND, &starts[rank], &err);
  }
  api->wait_all(starts, 2, DISTAG_FOREVER, &err);
  for (int rank = 0; rank < 2; ++rank) api->future_release(starts[rank]);
  return failed();
}

static int train(double gradient[3]) {
  const double data[3] = {1, 2, 3};
  const int64_t shape[1] = {3};
  distag_tensor *x = NULL, *y = NULL, *loss = NULL;
  distag_context* context = NULL;
  distag_value *arg, *answer = NULL;
  distag_gradients* gradients = NULL;
  api->tensor_create(data, sizeof data, DISTAG_FLOAT64, shape, 1, &x, &err);
  api->tensor_set_requires_grad(x, 1, &err);
  api->context_create(workers[0], &context, &err);
  arg = api->tensor_as_value(x);
  api->call(workers[0], context, "peer", "square", &arg, 1, NULL, &answer, &err);
  api->value_get_tensor(answer, &y, &err);
  api->op_sum(y, NULL, 0, 0, &loss, &err);
  api->backward(context, &loss, 1, NULL, &err);
  api->get_gradients(context, &gradients, &err);
  api->tensor_copy_data(api->gradients_find(gradients, x), gradient, 3 * sizeof gradient[0], &err);
  api->gradients_release(gradients);
  api->tensor_release(loss);
  api->value_release(answer);
  api->context_release(context);
  api->tensor_release(x);
  return failed();
}

static int frame(void) {
  if (open_call == NULL) {
    distag_value* sent = NULL;
    api->value_create_bytes(bytes, sizeof bytes, &sent, &err);
    api->call_async(workers[1], NULL, "frames", "echo", &sent, 1, NULL, &open_call, &err);
    api->value_release(sent);
    ++calls_made;
  }
  api->worker_poll(workers[0], 0, DISTAG_MILLISECOND, NULL, &err);
  if (!api->future_poll(open_call)) return failed() != 0 ? -1 : 1;
  api->future_wait(open_call, 0, &err);
  api->future_release(open_call);
  open_call = NULL;
  return failed() != 0 ? -1 : calls_made < kCalls;
}

static int end(void) {
  distag_future* peer_down = NULL;
  const int served = calls_served == calls_made;
  uint64_t handles;
  api->worker_shutdown_async(workers[1], 120 * DISTAG_SECOND, &peer_down, &err);
  api->worker_shutdown(workers[0], 120 * DISTAG_SECOND, NULL, &err);
  api->future_wait(peer_down, 120 * DISTAG_SECOND, &err);
  api->future_release(peer_down);
  for (int rank = 0; rank < 2; ++rank) api->worker_release(workers[rank]);
  handles = api->get_handle_count();
  if (handles != 0) return printf("%d handles are left\n", (int)handles), -1;
  if (rmdir(folder + strlen("file://")) != 0) return perror(folder), -1;
  if (dlclose(library) != 0) return printf("%s\n", dlerror()), -1;
  return failed() != 0 || !served;
}

extern const plugin_functions plugin;
const plugin_functions plugin = {begin, train, frame, end};
