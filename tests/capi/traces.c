/* Traces. With a directory as its argument it leaves them there, for check_traces.py; else it reads what it can. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "capi/check.h"
#include "capi/support/group.h"

static distag_error err = DISTAG_ERROR_INIT;
static char folder[512];
static int warnings;
static char last_warning[512];
static pthread_mutex_t log_mutex = PTHREAD_MUTEX_INITIALIZER;

static void on_log(void *user_data, int32_t level, const char *message) {
  (void)user_data;
  if (level > DISTAG_LOG_WARNING || strstr(message, "trace") == NULL) return;
  pthread_mutex_lock(&log_mutex);
  ++warnings;
  snprintf(last_warning, sizeof last_warning, "%s", message);
  pthread_mutex_unlock(&log_mutex);
}

static void check_one_warning(const char *word) {
  pthread_mutex_lock(&log_mutex);
  CHECK_INT(warnings, 1);
  if (!CHECK(strstr(last_warning, word) != NULL)) fprintf(stderr, "warning: %s\n", last_warning);
  warnings = 0;
  pthread_mutex_unlock(&log_mutex);
}

static distag_status defer_it(void *user_data, distag_invocation *invocation, distag_error *told) {
  distag_reply *reply = NULL;
  (void)user_data;
  if (distag_invocation_defer(invocation, &reply, told) != DISTAG_OK) return told->code;
  distag_reply_finish(reply, distag_invocation_get_arg(invocation, 0), NULL, told);
  distag_reply_release(reply);
  return DISTAG_OK;
}

static void make_pair(distag_worker **workers, const char *rendezvous) {
  for (int32_t rank = 0; rank < 2; ++rank) {
    distag_worker_options options = group_options(rank, 2, rendezvous);
    options.on_log = on_log;
    CHECK_OK(distag_worker_create(&options, &workers[rank], &err));
    CHECK_OK(distag_worker_register(workers[rank], "triple", group_triple, NULL, NULL, NULL, &err));
    CHECK_OK(distag_worker_register(workers[rank], "defer", defer_it, NULL, NULL, NULL, &err));
  }
}

static void end_pair(distag_worker **workers) {
  CHECK_INT(group_shutdown(workers, 2), 0);
  for (int i = 0; i < 2; ++i) distag_worker_release(workers[i]);
}

static void call(distag_worker *worker, distag_context *context, const char *function, int is_backward) {
  distag_tensor *x = NULL, *y = NULL;
  distag_value *result = NULL;
  CHECK_OK(distag_full(2, DISTAG_FLOAT64, NULL, 0, &x, &err));
  if (is_backward) CHECK_OK(distag_tensor_set_requires_grad(x, 1, &err));
  distag_value *const arg = distag_tensor_as_value(x);
  distag_call_options options = DISTAG_CALL_OPTIONS_INIT;
  if (!is_backward) options.traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
  CHECK_OK(distag_call(worker, context, "w1", function, &arg, 1, &options, &result, &err));
  CHECK_OK(distag_value_get_tensor(result, &y, &err));
  if (is_backward) CHECK_OK(distag_backward(context, &y, 1, NULL, &err));
  distag_value_release(result);
  distag_tensor_release(x);
}

static void train(distag_worker **workers) {
  static const int64_t shape[] = {1}; /* of the first worker alone */
  static const int32_t ranks[] = {0};
  distag_context *context = NULL;
  distag_tensor *w = NULL, *x = NULL, *y = NULL, *loss = NULL;
  distag_mesh *mesh = NULL;
  uint64_t epoch = 0, step = 0;
  CHECK_OK(distag_trace_begin(workers[0], "epoch \"1\" <b>\xc3\xa9", &epoch, &err));
  CHECK(epoch != 0);
  for (int i = 0; i < 3; ++i) {
    CHECK_OK(distag_trace_begin(workers[0], "step", &step, &err));
    CHECK(step != 0 && step != epoch);
    CHECK_OK(distag_context_create(workers[0], &context, &err));
    call(workers[0], context, "triple", 1);
    call(workers[0], context, "defer", 0);
    distag_context_release(context);
    distag_trace_end(workers[0], step);
    distag_trace_end(workers[0], step); /* a second time */
  }
  distag_trace_end(workers[0], epoch);
  distag_trace_end(workers[0], 0);
  distag_trace_end(workers[0], 1 << 20);
  CHECK_OK(distag_mesh_create(workers[0], ranks, 1, shape, NULL, 1, NULL, &mesh, &err));
  CHECK_OK(distag_full(1, DISTAG_FLOAT64, NULL, 0, &x, &err));
  CHECK_OK(distag_collective(mesh, DISTAG_ALL_REDUCE, NULL, x, NULL, &y, &err));
  CHECK_OK(distag_context_create(workers[0], &context, &err));
  CHECK_OK(distag_full(2, DISTAG_FLOAT64, NULL, 0, &w, &err));
  CHECK_OK(distag_tensor_set_requires_grad(w, 1, &err));
  CHECK_OK(distag_mul(w, w, &loss, &err));
  CHECK_OK(distag_backward(context, &loss, 1, NULL, &err));
  distag_context_release(context);
  distag_tensor_release(loss);
  distag_tensor_release(w);
  distag_tensor_release(x);
  distag_tensor_release(y);
  distag_mesh_release(mesh);
  CHECK_FAILS(distag_call(workers[0], NULL, "w1", "nothing", NULL, 0, NULL, NULL, &err), DISTAG_E_NOT_FOUND, "nothing");
}

static distag_trace_options into(const char *name) {
  static char path[1024];
  distag_trace_options options = DISTAG_TRACE_OPTIONS_INIT;
  snprintf(path, sizeof path, "%s/%s", folder, name);
  options.folder = path;
  return options;
}

static void make_in(const char *name, mode_t mode) {
  const distag_trace_options options = into(name);
  CHECK_INT(mkdir(options.folder, mode), 0);
}

/* The number of times that the text is in a file; -1: there is no such file. */
static int count_in(const char *path, const char *text) {
  FILE *file = fopen(path, "r");
  if (file == NULL) return -1;
  static char line[4096];
  int count = 0;
  while (fgets(line, sizeof line, file) != NULL) count += strstr(line, text) != NULL;
  fclose(file);
  return count;
}

static int count_in_trace(const char *name, const char *file, const char *text) {
  char path[2048];
  const distag_trace_options options = into(name);
  snprintf(path, sizeof path, "%s/%s", options.folder, file);
  return count_in(path, text);
}

static void a_traced_pair(void) {
  distag_worker *workers[2] = {NULL, NULL};
  make_in("pair", 0700);
  const distag_trace_options options = into("pair");
  make_pair(workers, "inproc://traced");
  CHECK_FAILS(distag_worker_start_trace(workers[0], &options, &err), DISTAG_E_INVALID_STATE, "not started");
  CHECK_INT(group_start(workers, 2), 0);
  for (int i = 0; i < 2; ++i) CHECK_OK(distag_worker_start_trace(workers[i], &options, &err));
  CHECK_FAILS(distag_worker_start_trace(workers[0], &options, &err), DISTAG_E_INVALID_STATE, "stop it first");
  train(workers);
  CHECK_OK(distag_worker_stop_trace(workers[0], &err));
  CHECK_OK(distag_worker_stop_trace(workers[0], &err)); /* nothing is written */
  uint64_t span = 1;
  CHECK_OK(distag_trace_begin(workers[0], "later", &span, &err));
  CHECK_INT(span, 0);
  end_pair(workers); /* ends that of w1 */
  CHECK_INT(count_in_trace("pair", "w0.trace.json", "\"ph\":\"b\",\"cat\":\"call\",\"name\":\"triple\""), 3);
  CHECK_INT(count_in_trace("pair", "w1.trace.json", "\"cat\":\"run\",\"name\":\"triple\""), 3);
  CHECK_INT(count_in_trace("pair", "w0.trace.json", "later"), 0);
}

static void bad_options(void) {
  distag_worker *workers[2] = {NULL, NULL};
  uint64_t span = 7;
  make_pair(workers, "inproc://options");
  CHECK_INT(group_start(workers, 2), 0);
  make_in("file", 0700);
  distag_trace_options options = into("missing");
  CHECK_FAILS(distag_worker_start_trace(workers[0], &options, &err), DISTAG_E_INVALID_STATE, "missing");
  options = into("file");
  CHECK_INT(rmdir(options.folder), 0);
  FILE *const file = fopen(options.folder, "w");
  CHECK(file != NULL && fclose(file) == 0);
  CHECK_FAILS(distag_worker_start_trace(workers[0], &options, &err), DISTAG_E_INVALID_STATE, "no folder");
  options.detail = 1;
  CHECK_FAILS(distag_worker_start_trace(workers[0], &options, &err), DISTAG_E_UNSUPPORTED, "detail");
  options.detail = 0;
  options.max_bytes = 100;
  CHECK_FAILS(distag_worker_start_trace(workers[0], &options, &err), DISTAG_E_INVALID_ARGUMENT, "max_bytes");
  options.max_bytes = 0;
  options.folder = "";
  CHECK_FAILS(distag_worker_start_trace(workers[0], &options, &err), DISTAG_E_INVALID_ARGUMENT, "DISTAG_TRACE");
  CHECK_FAILS(distag_worker_start_trace(workers[0], NULL, &err), DISTAG_E_INVALID_ARGUMENT, "DISTAG_TRACE");
  options = into("pair");
  options.struct_size = 3;
  CHECK_FAILS(distag_worker_start_trace(workers[0], &options, &err), DISTAG_E_INVALID_ARGUMENT, "struct_size");
  char label[200];
  memset(label, 'x', sizeof label);
  label[128] = '\0';
  CHECK_FAILS(distag_trace_begin(workers[0], label, &span, &err), DISTAG_E_INVALID_ARGUMENT, "128");
  CHECK_INT(span, 0);
  if (geteuid() != 0) {
    make_in("read_only", 0500);
    options = into("read_only");
    CHECK_FAILS(distag_worker_start_trace(workers[0], &options, &err), DISTAG_E_INVALID_STATE, "read_only");
  }
  end_pair(workers);
  CHECK_INT(warnings, 0);
}

/* A file that another run has written stays. */
static void a_second_run_takes_another_name(void) {
  distag_worker *workers[2] = {NULL, NULL};
  make_pair(workers, "inproc://second");
  CHECK_INT(group_start(workers, 2), 0);
  const distag_trace_options options = into("pair");
  for (int i = 0; i < 2; ++i) {
    CHECK_OK(distag_worker_start_trace(workers[0], &options, &err));
    CHECK_OK(distag_worker_stop_trace(workers[0], &err));
  }
  end_pair(workers);
  CHECK_INT(count_in_trace("pair", "w0.2.trace.json", "process_name"), 1);
  CHECK_INT(count_in_trace("pair", "w0.3.trace.json", "process_name"), 1);
  CHECK_INT(count_in_trace("pair", "w0.trace.json", "\"name\":\"step\""), 6);
}

static long size_in_trace(const char *name, const char *file) {
  char path[2048];
  struct stat status;
  const distag_trace_options options = into(name);
  snprintf(path, sizeof path, "%s/%s", options.folder, file);
  return stat(path, &status) == 0 ? (long)status.st_size : -1;
}

static void a_full_file_counts_what_it_drops(void) {
  distag_worker *workers[2] = {NULL, NULL};
  make_in("small", 0700);
  distag_trace_options options = into("small");
  options.max_bytes = 65536;
  make_pair(workers, "inproc://small");
  CHECK_INT(group_start(workers, 2), 0);
  CHECK_OK(distag_worker_start_trace(workers[0], &options, &err));
  for (int i = 0; i < 500; ++i) call(workers[0], NULL, "triple", 0);
  end_pair(workers);
  CHECK(size_in_trace("small", "w0.trace.json") <= 65536);
  CHECK(count_in_trace("small", "w0.trace.json", "dropped events") >= 1);
  check_one_warning("max_bytes");
}

/* A disk that is full is one that takes no more bytes. */
static void a_limit_of_file_sizes(void) {
  distag_worker *workers[2] = {NULL, NULL};
  struct rlimit before, limit;
  make_in("limited", 0700);
  const distag_trace_options options = into("limited");
  make_pair(workers, "inproc://limited");
  CHECK_INT(group_start(workers, 2), 0);
  CHECK_INT(getrlimit(RLIMIT_FSIZE, &before), 0);
  limit = before;
  limit.rlim_cur = 20000;
  CHECK_INT(setrlimit(RLIMIT_FSIZE, &limit), 0);
  CHECK_OK(distag_worker_start_trace(workers[0], &options, &err));
  for (int i = 0; i < 500; ++i) call(workers[0], NULL, "triple", 0);
  CHECK_OK(distag_worker_stop_trace(workers[0], &err));
  CHECK_INT(setrlimit(RLIMIT_FSIZE, &before), 0);
  CHECK(size_in_trace("limited", "w0.trace.json") <= 20000);
  end_pair(workers);
  check_one_warning("ulimit -f");
}

static void by_the_environment(void) {
  distag_worker *workers[2] = {NULL, NULL};
  make_in("by_environment", 0700);
  distag_trace_options options = into("by_environment");
  CHECK_INT(setenv("DISTAG_TRACE", options.folder, 1), 0);
  make_pair(workers, "inproc://environment");
  CHECK_INT(group_start(workers, 2), 0);
  CHECK_FAILS(distag_worker_start_trace(workers[0], NULL, &err), DISTAG_E_INVALID_STATE, "stop it first");
  call(workers[0], NULL, "triple", 0);
  end_pair(workers);
  CHECK_INT(count_in_trace("by_environment", "w0.trace.json", "\"ph\":\"b\",\"cat\":\"call\",\"name\":\"triple\""), 1);
  CHECK_INT(count_in_trace("by_environment", "w1.trace.json", "\"cat\":\"run\",\"name\":\"triple\""), 1);
  options = into("nowhere");
  CHECK_INT(setenv("DISTAG_TRACE", options.folder, 1), 0);
  make_pair(workers, "inproc://nowhere");
  CHECK_INT(group_start(workers, 2), 0);
  call(workers[0], NULL, "triple", 0);
  end_pair(workers);
  pthread_mutex_lock(&log_mutex);
  CHECK_INT(warnings, 2); /* one of each worker */
  CHECK(strstr(last_warning, "nowhere") != NULL);
  warnings = 0;
  pthread_mutex_unlock(&log_mutex);
  CHECK_INT(unsetenv("DISTAG_TRACE"), 0);
}

/* The child writes nothing, and its parent goes on. */
static void a_fork(void) {
  distag_worker *workers[2] = {NULL, NULL};
  make_in("forked", 0700);
  const distag_trace_options options = into("forked");
  make_pair(workers, "inproc://forked");
  CHECK_INT(group_start(workers, 2), 0);
  CHECK_OK(distag_worker_start_trace(workers[0], &options, &err));
  call(workers[0], NULL, "triple", 0);
  uint64_t span = 0;
  CHECK_OK(distag_trace_begin(workers[0], "over the fork", &span, &err));
  const pid_t child = fork();
  if (child == 0) {
    uint64_t none = 1;
    int right = distag_trace_begin(workers[0], "child", &none, NULL) == DISTAG_E_INVALID_STATE && none == 0;
    distag_trace_end(workers[0], span);
    right = right && distag_worker_stop_trace(workers[0], NULL) == DISTAG_E_INVALID_STATE;
    right = right && distag_worker_start_trace(workers[0], &options, NULL) == DISTAG_E_INVALID_STATE;
    for (int i = 0; i < 2; ++i) distag_worker_release(workers[i]);
    _exit(right ? 0 : 1);
  }
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
  call(workers[0], NULL, "triple", 0);
  distag_trace_end(workers[0], span);
  end_pair(workers);
  CHECK_INT(count_in_trace("forked", "w0.trace.json", "\"ph\":\"b\",\"cat\":\"call\",\"name\":\"triple\""), 2);
  CHECK_INT(count_in_trace("forked", "w0.trace.json", "over the fork"), 2);
}

/* A killed process leaves whole events in its file; each is written within a second. */
static void a_killed_process(void) {
  make_in("killed", 0700);
  const distag_trace_options options = into("killed");
  const pid_t child = fork();
  if (child == 0) {
    distag_worker *workers[2] = {NULL, NULL};
    make_pair(workers, "inproc://killed");
    group_start(workers, 2);
    distag_worker_start_trace(workers[0], &options, NULL);
    for (;;) call(workers[0], NULL, "triple", 0);
  }
  while (count_in_trace("killed", "w0.trace.json", "\"ph\":\"e\"") < 100) {
  }
  CHECK_INT(kill(child, SIGKILL), 0);
  CHECK(waitpid(child, NULL, 0) == child);
}

static void a_worker_that_is_only_released(void) {
  distag_worker *workers[2] = {NULL, NULL};
  make_in("released", 0700);
  const distag_trace_options options = into("released");
  make_pair(workers, "inproc://released");
  CHECK_INT(group_start(workers, 2), 0);
  CHECK_OK(distag_worker_start_trace(workers[0], &options, &err));
  call(workers[0], NULL, "triple", 0);
  CHECK_INT(group_shutdown(workers, 2), 0);
  CHECK_FAILS(distag_worker_start_trace(workers[0], &options, &err), DISTAG_E_INVALID_STATE, "shut down");
  CHECK_OK(distag_worker_stop_trace(workers[0], &err));
  for (int i = 0; i < 2; ++i) distag_worker_release(workers[i]);
  CHECK_FAILS(distag_worker_start_trace(NULL, &options, &err), DISTAG_E_INVALID_ARGUMENT, "worker");
}

int main(int count, char **arguments) {
  if (count > 1) {
    snprintf(folder, sizeof folder, "%s", arguments[1]);
  } else {
    snprintf(folder, sizeof folder, "/tmp/distag-traces-XXXXXX");
    CHECK(mkdtemp(folder) != NULL);
  }
  CHECK_INT(unsetenv("DISTAG_TRACE"), 0);
  a_killed_process(); /* forks before there are threads */
  a_traced_pair();
  bad_options();
  a_second_run_takes_another_name();
  a_full_file_counts_what_it_drops();
  a_limit_of_file_sizes();
  by_the_environment();
  a_fork();
  a_worker_that_is_only_released();
  if (count == 1) {
    char command[600];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    CHECK(system(command) == 0);
  }
  return check_end();
}
