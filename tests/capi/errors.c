/* Statuses, errors, their sizes, and the rule of chains. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <unistd.h>

#include "capi/check.h"

static void names(void) {
  CHECK_TEXT(distag_status_get_name(DISTAG_OK), "OK");
  CHECK_TEXT(distag_status_get_name(DISTAG_E_INVALID_ARGUMENT), "INVALID_ARGUMENT");
  CHECK_TEXT(distag_status_get_name(DISTAG_E_UNREACHED_SEND), "UNREACHED_SEND");
  CHECK_TEXT(distag_status_get_name(DISTAG_E_USER), "USER");
  CHECK_TEXT(distag_status_get_name(2147483647), "USER");
  CHECK_TEXT(distag_status_get_name(7), "UNKNOWN");
  CHECK_TEXT(distag_status_get_name(-1), "UNKNOWN");
  CHECK_TEXT(distag_get_version(), "0.3.0");
}

static void set(void) {
  distag_error err = DISTAG_ERROR_INIT;
  err.flags = DISTAG_ERROR_MAY_HAVE_RUN;
  CHECK_INT(distag_error_set(&err, 1003, "no such user"), 1003);
  CHECK_INT(err.code, 1003);
  CHECK_INT(err.origin_rank, -1);
  CHECK_INT(err.flags, 0);
  CHECK_TEXT(err.message, "no such user");
  CHECK_INT(distag_error_set(&err, 1004, NULL), 1004);
  CHECK_TEXT(err.message, "");
  CHECK_INT(distag_error_set(NULL, 1005, "nobody listens"), 1005);
}

/* 495 bytes fit; a character that does not fit whole is left out. */
static void truncation(void) {
  distag_error err = DISTAG_ERROR_INIT;
  char text[1001];
  memset(text, 'a', 1000);
  text[1000] = '\0';
  distag_error_set(&err, 1000, text);
  CHECK_INT(strlen(err.message), 495);
  for (size_t shift = 0; shift < 3; ++shift) { /* three-byte characters, cut at each of their bytes */
    size_t size = shift;
    memset(text, 'a', 1000);
    for (; size + 3 <= 1000; size += 3) memcpy(text + size, "\xE2\x82\xAC", 3);
    text[size] = '\0';
    distag_error_set(&err, 1000, text);
    CHECK_INT(strlen(err.message), shift + (495 - shift) / 3 * 3);
    CHECK(memcmp(err.message + strlen(err.message) - 3, "\xE2\x82\xAC", 3) == 0);
  }
  distag_error_set(&err, 1000, "bad \xFF byte");
  CHECK_TEXT(err.message, "bad ? byte");
}

static void sizes(void) {
  distag_error err;
  struct {
    distag_error head;
    unsigned char tail[64];
  } later;

  /* Zeroed memory is an error of 512 bytes. */
  memset(&err, 0, sizeof err);
  CHECK_INT(distag_value_create_text(NULL, NULL, &err), DISTAG_E_INVALID_ARGUMENT);
  CHECK_INT(err.code, DISTAG_E_INVALID_ARGUMENT);
  CHECK(strstr(err.message, "distag_value_create_text") != NULL);

  /* If the error has a size that no version had, nothing in it is used. */
  memset(&err, 0, sizeof err);
  err.struct_size = 100;
  err.code = 77;
  CHECK_INT(distag_value_create_text(NULL, NULL, &err), DISTAG_E_INVALID_ARGUMENT);
  CHECK_INT(err.code, 77);
  CHECK_INT(distag_tensor_set_requires_grad(NULL, 1, &err), DISTAG_E_INVALID_ARGUMENT);

  /* In a later version's error the known fields are filled. */
  memset(&later, 0xAB, sizeof later);
  later.head.struct_size = sizeof later;
  later.head.code = DISTAG_OK;
  CHECK_INT(distag_value_create_text(NULL, NULL, &later.head), DISTAG_E_INVALID_ARGUMENT);
  CHECK_INT(later.head.code, DISTAG_E_INVALID_ARGUMENT);
  CHECK_INT(later.head.struct_size, sizeof later);
  CHECK_INT(later.tail[0], 0xAB);
}

static void success_leaves_the_error_alone(void) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_value *value = NULL;
  distag_error_set(&err, 1234, "from before");
  CHECK_INT(distag_value_create_null(&value, &err), DISTAG_OK);
  CHECK_INT(err.code, 1234);
  CHECK_TEXT(err.message, "from before");
  distag_value_release(value);
}

/* A failure passes through the calls that depend on it; those that do not still run. */
static void chain(void) {
  const int64_t shape[] = {2};
  const int64_t other[] = {3};
  distag_error err = DISTAG_ERROR_INIT;
  distag_tensor *a = NULL, *b = NULL, *sum = NULL, *root = (distag_tensor *)&err, *free_one = NULL;
  double item = 1;

  distag_ones(DISTAG_FLOAT32, shape, 1, &a, &err);
  distag_ones(DISTAG_FLOAT32, other, 1, &b, &err);
  CHECK_INT(distag_add(a, b, &sum, &err), DISTAG_E_INVALID_ARGUMENT);
  CHECK(sum == NULL);
  CHECK(strstr(err.message, "add") != NULL && strstr(err.message, "[2]") != NULL);
  CHECK_INT(distag_sqrt(sum, &root, &err), DISTAG_E_INVALID_ARGUMENT);
  CHECK(root == NULL);
  CHECK(strstr(err.message, "[2]") != NULL);
  distag_error_set(&err, 1010, "the first");
  CHECK_INT(distag_mul(a, root, &sum, &err), 1010);
  CHECK_INT(distag_mul(root, a, NULL, &err), 1010); /* the handle decides, whatever else is wrong */
  CHECK_INT(distag_tensor_get_item(root, &item, &err), 1010);
  CHECK_NEAR(item, 0);
  CHECK_TEXT(err.message, "the first");
  CHECK_INT(distag_neg(a, &free_one, &err), DISTAG_OK);
  CHECK_INT(err.code, 1010);
  distag_tensor_release(free_one);
  distag_tensor_release(a);
  distag_tensor_release(b);
  distag_tensor_release(NULL);
}

/* A worker that did not start acts as a handle that was not made: calls that need it leave the reason as it is. */
static void chain_behind_start(void) {
  char folder[] = "/tmp/distag-errors-XXXXXX", meeting[64];
  const char *const meetings[] = {"inproc://nobody_comes", meeting};
  distag_error err = DISTAG_ERROR_INIT;
  CHECK(mkdtemp(folder) != NULL);
  snprintf(meeting, sizeof meeting, "file://%s", folder);
  for (int i = 0; i < 2; ++i) {
    distag_worker_options options = DISTAG_WORKER_OPTIONS_INIT;
    distag_trace_options trace = DISTAG_TRACE_OPTIONS_INIT;
    distag_worker *worker = NULL;
    distag_context *context = NULL;
    distag_mesh *mesh = NULL;
    distag_value *result = NULL;
    options.world_size = 2;
    options.rendezvous = meetings[i];
    trace.folder = "/tmp";
    CHECK_OK(distag_worker_create(&options, &worker, &err));
    CHECK_FAILS(distag_worker_start(worker, 0, &err), DISTAG_E_DEADLINE, "rank 1");
    CHECK_INT(distag_context_create(worker, &context, &err), DISTAG_E_DEADLINE);
    CHECK_INT(distag_worker_start_trace(worker, &trace, &err), DISTAG_E_DEADLINE);
    CHECK_INT(distag_mesh_create(worker, NULL, 0, NULL, NULL, 0, NULL, &mesh, &err), DISTAG_E_DEADLINE);
    CHECK_INT(distag_call(worker, NULL, "worker1", "f", NULL, 0, NULL, &result, &err), DISTAG_E_DEADLINE);
    CHECK(context == NULL && mesh == NULL && result == NULL);
    CHECK(strstr(err.message, "rank 1") != NULL);
    CHECK_FAILS(distag_context_create(worker, &context, &err), DISTAG_E_INVALID_STATE, "not started");
    distag_worker_shutdown(worker, DISTAG_SECOND, NULL, NULL);
    distag_worker_release(worker);
  }
  CHECK(rmdir(folder) == 0);
}

/* An error of an argument names its function or op. */
static void who_failed(void) {
  const int64_t negative[] = {2, -3}, two_unknown[] = {-1, -1}, one[] = {1, 1}, huge[] = {INT64_MAX, 0};
  const int64_t image[] = {1, 1, 2, 2};
  distag_error err = DISTAG_ERROR_INIT;
  distag_tensor *x = NULL, *y = NULL;
  distag_value *value = NULL;
  double item = 0;
  CHECK_FAILS(distag_zeros(DISTAG_FLOAT32, negative, 2, &y, &err), DISTAG_E_INVALID_ARGUMENT, "distag_zeros: shape");
  CHECK_FAILS(distag_rand(1, DISTAG_FLOAT32, negative, 2, &y, &err), DISTAG_E_INVALID_ARGUMENT, "distag_rand: shape");
  CHECK_FAILS(distag_zeros(77, NULL, 0, &y, &err), DISTAG_E_UNSUPPORTED, "distag_zeros: dtype");
  CHECK_FAILS(distag_tensor_create(&item, 8, DISTAG_FLOAT64, negative, 2, &y, &err), DISTAG_E_INVALID_ARGUMENT,
              "distag_tensor_create: ");
  CHECK_FAILS(distag_tensor_create_borrowed(&item, 8, DISTAG_FLOAT64, image, image, 4, NULL, NULL, &y, &err),
              DISTAG_E_INVALID_ARGUMENT, "distag_tensor_create_borrowed: ");
  CHECK_FAILS(distag_value_create_text("\xff", &value, &err), DISTAG_E_INVALID_ARGUMENT, "distag_value_create_text: ");
  CHECK_OK(distag_ones(DISTAG_FLOAT32, image, 4, &x, &err));
  CHECK_FAILS(distag_reshape(x, two_unknown, 2, &y, &err), DISTAG_E_INVALID_ARGUMENT, "reshape: ");
  CHECK_FAILS(distag_reshape(x, negative, 2, &y, &err), DISTAG_E_INVALID_ARGUMENT, "reshape: ");
  CHECK_FAILS(distag_tensor_get_item(x, &item, &err), DISTAG_E_INVALID_ARGUMENT, "item: ");
  CHECK_FAILS(distag_conv2d(x, x, NULL, one, huge, &y, &err), DISTAG_E_INVALID_ARGUMENT,
              "conv2d: padding [9223372036854775807, 0] must be two numbers (rows, columns) from 0 to 1073741824");
  CHECK_FAILS(distag_conv2d(x, x, NULL, huge, one, &y, &err), DISTAG_E_INVALID_ARGUMENT, "conv2d: stride");
  CHECK_FAILS(distag_max_pool2d(x, one, one, huge, &y, &err), DISTAG_E_INVALID_ARGUMENT, "max_pool2d: padding");
  CHECK(y == NULL && value == NULL);
  distag_tensor_release(x);
}

/* The error of a NULL handle names the function that makes one. */
static void missing_handles(void) {
  distag_error err = DISTAG_ERROR_INIT;
  CHECK_FAILS(distag_worker_start(NULL, 0, &err), DISTAG_E_INVALID_ARGUMENT,
              "worker is NULL: distag_worker_create makes one (in C++ distag::worker with its options");
  CHECK_FAILS(distag_get_gradients(NULL, (distag_gradients *[1]){NULL}, &err), DISTAG_E_INVALID_ARGUMENT,
              "context is NULL: distag_context_create makes one");
  CHECK_FAILS(distag_future_wait(NULL, 0, &err), DISTAG_E_INVALID_ARGUMENT,
              "future is NULL: calls whose names end in _async");
  CHECK_FAILS(distag_optimizer_set(NULL, "lr", 1, &err), DISTAG_E_INVALID_ARGUMENT,
              "optimizer is NULL: distag_optimizer_create makes one");
}

/* A worker whose start has failed passes that failure on, as a handle that could not be made does. */
static void failed_start(void) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_worker_options options = DISTAG_WORKER_OPTIONS_INIT;
  distag_worker *worker = NULL;
  distag_value *answer = NULL;
  distag_mesh *mesh = NULL;
  distag_member member = DISTAG_MEMBER_INIT;
  options.rank = 1;
  options.world_size = 2;
  options.rendezvous = "tcp://127.0.0.1:70000";
  CHECK(distag_worker_create(&options, &worker, &err) == DISTAG_OK);
  CHECK(distag_worker_start(worker, DISTAG_SECOND, &err) == DISTAG_E_INVALID_ARGUMENT);
  CHECK(distag_call(worker, NULL, "worker0", "neg", NULL, 0, NULL, &answer, &err) == DISTAG_E_INVALID_ARGUMENT);
  CHECK(distag_mesh_create(worker, NULL, 0, (int64_t[]){2}, NULL, 1, NULL, &mesh, &err) == DISTAG_E_INVALID_ARGUMENT);
  CHECK(distag_worker_get_member(worker, 0, &member, &err) == DISTAG_E_INVALID_ARGUMENT);
  CHECK(strstr(err.message, "port \"70000\"") != NULL);
  CHECK_FAILS(distag_call(worker, NULL, "worker0", "neg", NULL, 0, NULL, &answer, &err), DISTAG_E_INVALID_STATE,
              "the worker is not started");
  CHECK_FAILS(distag_worker_get_member(worker, 0, &member, &err), DISTAG_E_NOT_FOUND, "the worker is not started");
  distag_worker_shutdown(worker, DISTAG_SECOND, NULL, NULL);
  distag_worker_release(worker);
}

static distag_status lack(void *user_data, distag_invocation *invocation, distag_error *error) {
  (void)user_data, (void)invocation;
  return distag_error_set(error, DISTAG_E_OUT_OF_MEMORY, "out of memory");
}

/* The text of a refused allocation is short, as there is no memory for more: its remedy comes with the error. */
static void remedy(void) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_worker_options options = DISTAG_WORKER_OPTIONS_INIT;
  distag_worker *worker = NULL;
  distag_value *answer = NULL;
  options.rank = 0;
  options.world_size = 1;
  options.rendezvous = "inproc://errors";
  CHECK_OK(distag_worker_create(&options, &worker, &err));
  CHECK_OK(distag_worker_register(worker, "lack", lack, NULL, NULL, NULL, &err));
  CHECK_OK(distag_worker_start(worker, DISTAG_FOREVER, &err));
  CHECK_FAILS(distag_call(worker, NULL, "worker0", "lack", NULL, 0, NULL, &answer, &err), DISTAG_E_OUT_OF_MEMORY,
              "out of memory: free some, or raise the limit of memory (ulimit -v), or of mappings (vm.max_map_count)");
  CHECK_OK(distag_worker_shutdown(worker, DISTAG_FOREVER, NULL, &err));
  distag_worker_release(worker);
}

int main(void) {
  remedy();
  missing_handles();
  failed_start();
  names();
  who_failed();
  set();
  truncation();
  sizes();
  success_leaves_the_error_alone();
  chain();
  chain_behind_start();
  return check_end();
}
