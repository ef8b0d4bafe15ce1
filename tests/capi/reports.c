/* Reports in JSON. With a directory as its argument it leaves what it saw there, for a reader of JSON to check. */
#define _GNU_SOURCE
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "capi/check.h"
#include "capi/support/group.h"

static distag_error err = DISTAG_ERROR_INIT;
static distag_worker *w0, *w1;
static _Atomic(distag_reply *) kept_reply;
static const char *directory;

static distag_status deferring(void *user_data, distag_invocation *invocation, distag_error *told) {
  distag_reply *reply = NULL;
  (void)user_data;
  if (distag_invocation_defer(invocation, &reply, told) != DISTAG_OK) return told->code;
  atomic_store(&kept_reply, reply);
  return DISTAG_OK;
}

static distag_value *_Atomic kept_argument;

static distag_status keep(void *user_data, distag_invocation *invocation, distag_error *told) {
  (void)user_data;
  (void)told;
  distag_value *const argument = distag_invocation_get_arg(invocation, 0);
  distag_value_retain(argument);
  atomic_store(&kept_argument, argument);
  return DISTAG_OK;
}

/* The text, to be freed: it may grow between the two calls. */
static char *report(distag_worker *worker, distag_context *context) {
  size_t size = 0, capacity = 0;
  char *text = NULL;
  do {
    capacity = size + 1;
    text = realloc(text, capacity);
    if (context != NULL) {
      CHECK_OK(distag_context_copy_report(context, text, capacity, &size, &err));
    } else {
      CHECK_OK(distag_worker_copy_report(worker, text, capacity, &size, &err));
    }
  } while (size >= capacity);
  CHECK_INT(strlen(text), size);
  return text;
}

static void leave(const char *name, char *text) {
  char path[1024];
  if (directory != NULL) {
    snprintf(path, sizeof path, "%s/%s.json", directory, name);
    FILE *file = fopen(path, "w");
    if (CHECK(file != NULL)) {
      CHECK(fputs(text, file) >= 0);
      CHECK_INT(fclose(file), 0);
    }
  }
  free(text);
}

static void before_the_start(void) {
  char few[8] = "xxxxxxx";
  size_t size = 0;
  char *text = report(w0, NULL);
  CHECK(strstr(text, "\"not started\"") != NULL);
  CHECK_OK(distag_worker_copy_report(w0, few, sizeof few, &size, &err)); /* cut where the room ends */
  CHECK_INT(strlen(few), sizeof few - 1);
  CHECK(strncmp(few, text, sizeof few - 1) == 0);
  CHECK_INT(size, strlen(text));
  leave("not_started", text);
}

static distag_tensor *call_triple(distag_context *context, distag_tensor *x, const char *label) {
  distag_call_options options = DISTAG_CALL_OPTIONS_INIT;
  distag_value *args[1], *result = NULL;
  distag_tensor *y = NULL;
  args[0] = distag_tensor_as_value(x);
  options.label = label;
  CHECK_OK(distag_call(w0, context, "w1", "triple", args, 1, &options, &result, &err));
  CHECK_OK(distag_value_get_tensor(result, &y, &err));
  distag_tensor_retain(y);
  distag_value_release(result);
  return y;
}

/* A call with a label is open, and a pass has used one of two recorded calls. */
static void in_the_middle(void) {
  distag_backward_options retain = DISTAG_BACKWARD_OPTIONS_INIT;
  distag_call_options options = DISTAG_CALL_OPTIONS_INIT;
  distag_context *context = NULL;
  distag_future *future = NULL;
  distag_reply *reply = NULL;
  distag_tensor *x = NULL, *used = NULL, *unused = NULL;
  size_t size = 0;

  CHECK_OK(distag_full(2, DISTAG_FLOAT64, NULL, 0, &x, &err));
  CHECK_OK(distag_tensor_set_requires_grad(x, 1, &err));
  CHECK_OK(distag_context_create(w0, &context, &err));
  used = call_triple(context, x, "used layer");
  unused = call_triple(context, x, "unused layer");
  retain.retain_graph = 1;
  CHECK_OK(distag_backward(context, &used, 1, &retain, &err));
  options.label = "the slow one";
  options.timeout_ns = 120 * DISTAG_SECOND;
  CHECK_OK(distag_call_async(w0, context, "w1", "deferring", NULL, 0, &options, &future, &err));
  while ((reply = atomic_load(&kept_reply)) == NULL) {
  }
  leave("caller", report(w0, NULL));
  leave("callee", report(w1, NULL));
  leave("context", report(NULL, context));
  distag_reply_release(reply);
  CHECK_INT(distag_future_wait(future, DISTAG_FOREVER, NULL), DISTAG_E_REMOTE);
  distag_future_release(future);
  distag_tensor_release(x);
  distag_tensor_release(used);
  distag_tensor_release(unused);
  distag_context_release(context);

  CHECK_OK(distag_context_create(NULL, &context, &err));
  leave("local_context", report(NULL, context));
  distag_context_release(context);
  CHECK_OK(distag_context_create(w0, &context, &err));
  distag_worker *both[2];
  both[0] = w0;
  both[1] = w1;
  CHECK_INT(group_shutdown(both, 2), 0);
  CHECK_FAILS(distag_context_copy_report(context, NULL, 0, &size, &err), DISTAG_E_INVALID_STATE, "down");
  distag_context_release(context);
  leave("shut_down", report(w0, NULL));
}

/* Workers with ipc:// endpoints, one of which has lent a tensor of 4 MiB that the other keeps. */
static void over_lanes(void) {
  char folder[] = "/tmp/distag-reports-XXXXXX", rendezvous[64];
  const int64_t elements = 1 << 20;
  distag_worker *both[2] = {NULL, NULL};
  distag_tensor *x = NULL;
  CHECK(unsetenv("DISTAG_LANE") == 0);
  CHECK(mkdtemp(folder) != NULL);
  snprintf(rendezvous, sizeof rendezvous, "file://%s", folder);
  for (int32_t rank = 0; rank < 2; ++rank) {
    const distag_worker_options options = group_options(rank, 2, rendezvous);
    CHECK_OK(distag_worker_create(&options, &both[rank], &err));
    CHECK_OK(distag_worker_register(both[rank], "keep", keep, NULL, NULL, NULL, &err));
  }
  CHECK_INT(group_start(both, 2), 0);
  CHECK_OK(distag_full(1, DISTAG_FLOAT32, &elements, 1, &x, &err));
  distag_value *const args[] = {distag_tensor_as_value(x)};
  CHECK_OK(distag_call(both[0], NULL, "w1", "keep", args, 1, NULL, NULL, &err));
  leave("lender", report(both[0], NULL));
  leave("borrower", report(both[1], NULL));
  distag_value_release(atomic_load(&kept_argument));
  distag_tensor_release(x);
  CHECK_INT(group_shutdown(both, 2), 0);
  for (int i = 0; i < 2; ++i) distag_worker_release(both[i]);
  char command[96];
  snprintf(command, sizeof command, "rm -rf '%s'", folder);
  CHECK(system(command) == 0);
}

int main(int count, char **arguments) {
  distag_worker *both[2];
  distag_worker_options options = group_options(0, 2, "inproc://reports");
  directory = count > 1 ? arguments[1] : NULL;
  CHECK_OK(distag_worker_create(&options, &w0, &err));
  options = group_options(1, 2, "inproc://reports");
  CHECK_OK(distag_worker_create(&options, &w1, &err));
  CHECK_OK(distag_worker_register(w1, "deferring", deferring, NULL, NULL, NULL, &err));
  CHECK_OK(distag_worker_register(w1, "triple", group_triple, NULL, NULL, NULL, &err));
  before_the_start();
  both[0] = w0;
  both[1] = w1;
  CHECK_INT(group_start(both, 2), 0);
  in_the_middle();
  distag_worker_release(w0);
  distag_worker_release(w1);
  over_lanes();
  return check_end();
}
