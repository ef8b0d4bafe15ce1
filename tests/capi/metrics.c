/* Metrics for Prometheus. With a directory as its argument it leaves what it saw there, for check_metrics.py. */
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "capi/check.h"
#include "capi/support/group.h"

static distag_error err = DISTAG_ERROR_INIT;
static const char *directory;

static distag_status answer(void *user_data, distag_invocation *invocation, distag_error *told) {
  (void)user_data;
  (void)invocation;
  (void)told;
  return DISTAG_OK;
}

static void copy(distag_worker *worker, char *text, size_t capacity) {
  size_t size = 0;
  CHECK_OK(distag_worker_copy_metrics(worker, text, capacity, &size, &err));
  CHECK(size < capacity);
  CHECK_INT(strlen(text), size);
}

static void leave(const char *name, distag_worker *worker) {
  static char text[1 << 19];
  char path[1024];
  copy(worker, text, sizeof text);
  if (directory == NULL) return;
  snprintf(path, sizeof path, "%s/%s.prom", directory, name);
  FILE *file = fopen(path, "w");
  if (CHECK(file != NULL)) {
    CHECK(fputs(text, file) >= 0);
    CHECK_INT(fclose(file), 0);
  }
}

static void check_value(distag_worker *worker, const char *name, unsigned long long value) {
  static char text[1 << 19];
  char line[256];
  copy(worker, text, sizeof text);
  snprintf(line, sizeof line, "\n%s{worker=\"%s\"} %llu\n", name, distag_worker_get_name(worker), value);
  if (!CHECK(strstr(text, line) != NULL)) fprintf(stderr, "no %s in\n%s", line, text);
}

/* The count of a histogram of one function; -1: it has none. */
static void check_times(distag_worker *worker, const char *name, const char *function, long long count) {
  static char text[1 << 19];
  char line[256];
  copy(worker, text, sizeof text);
  snprintf(line, sizeof line, "\n%s_count{worker=\"%s\",function=\"%s\"} ", name, distag_worker_get_name(worker),
           function);
  const char *found = strstr(text, line);
  CHECK_INT(found == NULL ? -1 : atoll(found + strlen(line)), count);
}

/* Makes as many names as there are histograms, and more; also of calls that do not find their function. */
static void calls_of_many_functions(distag_worker *worker) {
  char name[32];
  for (int i = 0; i < 70; ++i) {
    snprintf(name, sizeof name, "nothing %d", i);
    CHECK_FAILS(distag_call(worker, NULL, "w1", name, NULL, 0, NULL, NULL, &err), DISTAG_E_NOT_FOUND, name);
  }
}

/* A pass counts where it began; so does a local one. A collective counts at each member. */
static void pass_and_collective(distag_worker *worker) {
  static const int64_t shape[] = {1};
  static const int32_t ranks[] = {0};
  distag_context *context = NULL;
  distag_tensor *x = NULL, *y = NULL, *sum = NULL;
  distag_value *answer = NULL;
  distag_mesh *mesh = NULL;
  CHECK_OK(distag_full(2, DISTAG_FLOAT32, NULL, 0, &x, &err));
  CHECK_OK(distag_tensor_set_requires_grad(x, 1, &err));
  distag_value *const arg = distag_tensor_as_value(x);
  CHECK_OK(distag_context_create(worker, &context, &err));
  CHECK_OK(distag_call(worker, context, "w1", "neg", &arg, 1, NULL, &answer, &err));
  CHECK_OK(distag_value_get_tensor(answer, &y, &err));
  CHECK_OK(distag_backward(context, &y, 1, NULL, &err));
  distag_context_release(context);
  distag_value_release(answer);
  CHECK_OK(distag_context_create(worker, &context, &err));
  CHECK_OK(distag_neg(x, &y, &err));
  CHECK_OK(distag_backward(context, &y, 1, NULL, &err));
  distag_context_release(context);
  distag_tensor_release(y);
  CHECK_OK(distag_mesh_create(worker, ranks, 1, shape, NULL, 1, NULL, &mesh, &err));
  distag_tensor_release(x);
  CHECK_OK(distag_full(1, DISTAG_FLOAT32, NULL, 0, &x, &err));
  CHECK_OK(distag_collective(mesh, DISTAG_ALL_REDUCE, NULL, x, NULL, &sum, &err));
  distag_tensor_release(sum);
  distag_tensor_release(x);
  distag_mesh_release(mesh);
}

static void copied_by_the_rule_of_reports(distag_worker *worker) {
  static char text[1 << 19];
  char few[8] = "xxxxxxx";
  size_t size = 1, whole = 0;
  copy(worker, text, sizeof text);
  CHECK_OK(distag_worker_copy_metrics(worker, NULL, 0, &whole, &err));
  CHECK_INT(whole, strlen(text));
  CHECK_OK(distag_worker_copy_metrics(worker, few, sizeof few, &size, &err));
  CHECK_INT(size, whole);
  CHECK_TEXT(few, "# HELP ");
  few[0] = 'x';
  CHECK_FAILS(distag_worker_copy_metrics(NULL, few, sizeof few, &size, &err), DISTAG_E_INVALID_ARGUMENT, "worker");
  CHECK_TEXT(few, "");
  CHECK_INT(size, 0);
}

static void in_a_forked_child(distag_worker *worker) {
  const pid_t child = fork();
  if (child == 0) {
    char text[64];
    size_t size = 1;
    const distag_status status = distag_worker_copy_metrics(worker, text, sizeof text, &size, NULL);
    _exit(status == DISTAG_E_INVALID_STATE && size == 0 && text[0] == '\0' ? 0 : 1);
  }
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(int count, char **arguments) {
  distag_worker *both[2] = {NULL, NULL}, *unnamed = NULL;
  directory = count > 1 ? arguments[1] : NULL;
  for (int32_t rank = 0; rank < 2; ++rank) {
    const distag_worker_options options = group_options(rank, 2, "inproc://metrics");
    CHECK_OK(distag_worker_create(&options, &both[rank], &err));
    CHECK_OK(distag_worker_register(both[rank], "answer", answer, NULL, NULL, NULL, &err));
    CHECK_OK(distag_worker_register(both[rank], "odd \"\\\n", answer, NULL, NULL, NULL, &err));
  }
  distag_worker_options options = group_options(0, -1, "inproc://metrics-open");
  options.rank = -1;
  options.name = NULL;
  CHECK_OK(distag_worker_create(&options, &unnamed, &err));
  leave("unnamed", unnamed);
  distag_worker_release(unnamed);
  leave("not_started", both[0]);
  copied_by_the_rule_of_reports(both[0]);
  CHECK_INT(group_start(both, 2), 0);
  for (int i = 0; i < 3; ++i) CHECK_OK(distag_call(both[0], NULL, "w1", "answer", NULL, 0, NULL, NULL, &err));
  CHECK_FAILS(distag_call(both[0], NULL, "w1", "nothing", NULL, 0, NULL, NULL, &err), DISTAG_E_NOT_FOUND, "nothing");
  check_value(both[0], "distag_calls_made_total", 4);
  check_value(both[0], "distag_calls_failed_total", 1);
  check_value(both[0], "distag_calls_open", 0);
  check_value(both[1], "distag_calls_served_total", 4);
  check_value(both[0], "distag_peers_connected", 1);
  check_times(both[0], "distag_call_seconds", "answer", 3);
  check_times(both[0], "distag_call_seconds", "nothing", 1);
  check_times(both[0], "distag_served_seconds", "answer", 0);
  check_times(both[1], "distag_served_seconds", "answer", 3);
  check_times(both[1], "distag_queue_seconds", "answer", 3);
  check_times(both[1], "distag_served_seconds", "nothing", -1); /* a name from a caller is no name here */
  CHECK_OK(distag_call(both[0], NULL, "w1", "odd \"\\\n", NULL, 0, NULL, NULL, &err));
  check_times(both[0], "distag_call_seconds", "odd \\\"\\\\\\n", 1);
  check_times(both[0], "distag_call_seconds", "other", -1);
  leave("started", both[0]);
  leave("served", both[1]);
  copied_by_the_rule_of_reports(both[0]);
  in_a_forked_child(both[0]);
  pass_and_collective(both[0]);
  check_value(both[0], "distag_passes_run_total", 2);
  check_value(both[0], "distag_pass_seconds_count", 2);
  check_value(both[0], "distag_collective_seconds_count", 1);
  check_value(both[1], "distag_pass_seconds_count", 0);
  check_value(both[1], "distag_collective_seconds_count", 0);
  check_times(both[1], "distag_served_seconds", "neg", 1); /* an op that is built in is a function too */
  calls_of_many_functions(both[0]);
  check_times(both[0], "distag_call_seconds", "nothing 0", 1);
  check_times(both[0], "distag_call_seconds", "nothing 69", -1);
  CHECK_INT(group_shutdown(both, 2), 0);
  leave("shut_down", both[0]);
  copied_by_the_rule_of_reports(both[0]);
  for (int i = 0; i < 2; ++i) distag_worker_release(both[i]);
  return check_end();
}
