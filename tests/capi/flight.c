/* The last calls, passes and collectives of a worker: in its report and, after a DEADLINE, in its log. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "capi/check.h"
#include "capi/support/group.h"

static distag_error err = DISTAG_ERROR_INIT;
static distag_worker *workers[2];
static _Atomic(distag_reply *) kept_reply;

static pthread_mutex_t log_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t log_written = PTHREAD_COND_INITIALIZER;
static int blocks;
static char last_block[32768];

static void on_log(void *user_data, int32_t level, const char *message) {
  (void)user_data;
  if (strstr(message, "ended here, the latest first:") == NULL) return;
  pthread_mutex_lock(&log_mutex);
  CHECK_INT(level, DISTAG_LOG_WARNING);
  CHECK(strlen(message) < 16384);
  ++blocks;
  snprintf(last_block, sizeof last_block, "%s", message);
  pthread_cond_signal(&log_written);
  pthread_mutex_unlock(&log_mutex);
}

static distag_status keep(void *user_data, distag_invocation *invocation, distag_error *told) {
  distag_reply *reply = NULL;
  (void)user_data;
  if (distag_invocation_defer(invocation, &reply, told) != DISTAG_OK) return told->code;
  distag_reply_release(atomic_exchange(&kept_reply, reply));
  return DISTAG_OK;
}

static char *report_of(distag_worker *worker) {
  size_t size = 0, capacity = 0;
  char *text = NULL;
  do {
    capacity = size + 1;
    text = realloc(text, capacity);
    CHECK_OK(distag_worker_copy_report(worker, text, capacity, &size, &err));
  } while (size >= capacity);
  return text;
}

static int count_in(const char *text, const char *word) {
  int count = 0;
  for (; (text = strstr(text, word)) != NULL; ++text) ++count;
  return count;
}

static void call(const char *function, int64_t timeout_ns, distag_status expected) {
  distag_call_options options = DISTAG_CALL_OPTIONS_INIT;
  options.timeout_ns = timeout_ns;
  distag_value *arg = NULL, *result = NULL;
  distag_tensor *x = NULL;
  CHECK_OK(distag_full(1, DISTAG_FLOAT32, NULL, 0, &x, &err));
  arg = distag_tensor_as_value(x);
  CHECK_INT(distag_call(workers[0], NULL, "w1", function, &arg, 1, &options, &result, &err), expected);
  distag_value_release(result);
  distag_tensor_release(x);
}

static void a_deadline_is_told(void) {
  call("triple", 0, DISTAG_OK);
  call("keep", 20 * DISTAG_MILLISECOND, DISTAG_E_DEADLINE);
  pthread_mutex_lock(&log_mutex);
  while (blocks == 0) pthread_cond_wait(&log_written, &log_mutex);
  CHECK_INT(blocks, 1);
  CHECK(strncmp(last_block, "call \"keep\" to \"w1\" ended with DEADLINE after 0.0", 47) == 0);
  CHECK(strstr(last_block, "ago: call \"triple\" to \"w1\", OK after ") != NULL);
  pthread_mutex_unlock(&log_mutex);
  char *text = report_of(workers[0]);
  CHECK_INT(count_in(text,
                     "\"kind\": \"call\",\n      \"name\": \"triple\",\n      \"peer\": \"w1\",\n"
                     "      \"state\": \"done\",\n      \"error\": null"),
            1);
  CHECK_INT(count_in(text,
                     "\"name\": \"keep\",\n      \"peer\": \"w1\",\n      \"state\": \"failed\",\n"
                     "      \"error\": \"DEADLINE\""),
            1);
  free(text);
  text = report_of(workers[1]);
  CHECK_INT(count_in(text, "\"kind\": \"served\",\n      \"name\": \"triple\",\n      \"peer\": \"w0\""), 1);
  free(text);
}

static void the_report_has_the_last_hundred(void) {
  for (int i = 0; i < 1200; ++i) call("triple", 0, DISTAG_OK);
  char *text = report_of(workers[0]);
  CHECK_INT(count_in(text, "\"duration_ms\""), 100);
  CHECK_INT(count_in(text, "\"keep\""), 0);
  free(text);
}

/* Events from before the end can still be read. */
static void a_worker_that_is_shut_down(void) {
  CHECK_INT(group_shutdown(workers, 2), 0);
  char *text = report_of(workers[0]);
  CHECK(count_in(text, "\"name\": \"triple\"") > 90);
  free(text);
}

int main(void) {
  for (int32_t rank = 0; rank < 2; ++rank) {
    distag_worker_options options = group_options(rank, 2, "inproc://flight");
    if (rank == 0) options.on_log = on_log;
    CHECK_OK(distag_worker_create(&options, &workers[rank], &err));
    CHECK_OK(distag_worker_register(workers[rank], "triple", group_triple, NULL, NULL, NULL, &err));
    CHECK_OK(distag_worker_register(workers[rank], "keep", keep, NULL, NULL, NULL, &err));
  }
  char *text = report_of(workers[0]);
  CHECK_INT(count_in(text, "\"last\": []"), 1);
  free(text);
  CHECK_INT(group_start(workers, 2), 0);
  a_deadline_is_told();
  the_report_has_the_last_hundred();
  distag_reply_release(atomic_exchange(&kept_reply, NULL));
  a_worker_that_is_shut_down();
  CHECK_INT(blocks, 1);
  for (int i = 0; i < 2; ++i) distag_worker_release(workers[i]);
  return check_end();
}
