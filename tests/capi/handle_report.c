/* The report of live handles, by kind; with DISTAG_VALIDATE=1 in the environment also one by one. */
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "capi/check.h"

enum { kRounds = 300, kThreads = 2, kMade = 3000 };

static distag_error err = DISTAG_ERROR_INIT;
static int validates;

static const char *report(void) {
  static char text[4096];
  size_t size = 0;
  CHECK_OK(distag_copy_handle_report(text, sizeof text, &size, &err));
  CHECK_INT(size, strlen(text));
  return text;
}

static void nothing_lives(void) {
  CHECK_TEXT(report(), validates ? "{\"live\":0,\"kinds\":{},\"handles\":[]}" : "{\"live\":0,\"kinds\":{}}");
}

static size_t times(const char *text, const char *part) {
  size_t count = 0;
  while ((text = strstr(text, part)) != NULL) ++count, ++text;
  return count;
}

/* A worker that the host has released, while a future of it lives, is listed as released. */
static void released(void) {
  distag_worker_options options = DISTAG_WORKER_OPTIONS_INIT;
  distag_worker *worker = NULL;
  distag_future *started = NULL;
  options.world_size = 1;
  options.rendezvous = "inproc://released";
  CHECK_OK(distag_worker_create(&options, &worker, &err));
  CHECK_OK(distag_worker_start_async(worker, DISTAG_FOREVER, &started, &err));
  CHECK_OK(distag_future_wait(started, DISTAG_FOREVER, &err));
  CHECK_OK(distag_worker_shutdown(worker, DISTAG_FOREVER, NULL, &err));
  CHECK_INT(times(report(), "\"released\":true"), 0);
  distag_worker_release(worker);
  CHECK(strstr(report(), "\"worker\":1") != NULL && strstr(report(), "\"future\":1") != NULL);
  CHECK_INT(times(report(), "\"released\":true"), validates);
  CHECK_INT(times(report(), "{\"kind\":\"worker\",\"made_by\":\"distag_worker_create\""), validates);
  distag_future_release(started);
  nothing_lives();
}

static void by_kind(void) {
  distag_tensor *x = NULL, *y = NULL;
  distag_value *number = NULL, *list = NULL;
  distag_context *context = NULL;
  CHECK_OK(distag_zeros(DISTAG_FLOAT32, NULL, 0, &x, &err));
  CHECK_OK(distag_exp(x, &y, &err));
  CHECK_OK(distag_value_create_int64(1, &number, &err));
  CHECK_OK(distag_value_create_list(&number, 1, &list, &err));
  CHECK_OK(distag_context_create(NULL, &context, &err));
  CHECK(strstr(report(), "{\"live\":5,\"kinds\":{\"value\":2,\"tensor\":2,\"context\":1}") == report());
  CHECK(distag_value_get_item(list, 0) != NULL); /* what is lent counts, too */
  CHECK(strstr(report(), "{\"live\":6,\"kinds\":{\"value\":3,") == report());
  if (validates) {
    CHECK_INT(times(report(), "{\"kind\":\"tensor\",\"made_by\":\"distag_zeros\",\"age_ms\":"), 1);
    CHECK_INT(times(report(), "{\"kind\":\"tensor\",\"made_by\":\"distag_exp\",\"age_ms\":"), 1);
    CHECK_INT(times(report(), "\"made_by\":\"distag_context_create\""), 1);
    CHECK_INT(times(report(), "\"lent\":true"), 1);
    CHECK_INT(times(report(), "\"kind\":"), 6);
  } else {
    CHECK_INT(times(report(), "\"kind\":"), 0);
  }
  distag_context_release(context);
  distag_value_release(list);
  distag_value_release(number);
  distag_tensor_release(y);
  CHECK(strstr(report(), "{\"live\":1,\"kinds\":{\"tensor\":1}") == report());
  distag_tensor_release(x);
}

/* Room for a part only, for none, and what is refused. */
static void room(void) {
  char text[8] = "-------";
  size_t size = 0;
  const size_t whole = strlen(report());
  CHECK_OK(distag_copy_handle_report(NULL, 0, &size, &err));
  CHECK_INT(size, whole);
  CHECK_OK(distag_copy_handle_report(text, 4, &size, &err));
  CHECK_INT(size, whole);
  CHECK_TEXT(text, "{\"l");
  CHECK(text[4] == '-');
  CHECK_FAILS(distag_copy_handle_report(text, 4, NULL, &err), DISTAG_E_INVALID_ARGUMENT, "out_size is NULL");
  CHECK_TEXT(text, "");
  CHECK_FAILS(distag_copy_handle_report(NULL, 4, &size, &err), DISTAG_E_INVALID_ARGUMENT, "buffer is NULL");
  CHECK_INT(size, 0);
}

/* A forked child has handles of its own only. */
static void in_a_child(void) {
  distag_tensor *x = NULL, *mine = NULL;
  int status = 0;
  CHECK_OK(distag_zeros(DISTAG_FLOAT32, NULL, 0, &x, &err));
  const pid_t child = fork();
  if (child == 0) {
    nothing_lives();
    CHECK_OK(distag_ones(DISTAG_FLOAT32, NULL, 0, &mine, &err));
    CHECK(strstr(report(), "{\"live\":1,\"kinds\":{\"tensor\":1}") == report());
    distag_tensor_release(mine);
    distag_tensor_release(x);
    nothing_lives();
    _exit(check_failures != 0);
  }
  waitpid(child, &status, 0);
  CHECK_INT(status, 0);
  distag_tensor_release(x);
}

static void *make_and_release(void *unused) {
  for (int i = 0; i < kMade; ++i) { /* with DISTAG_VALIDATE=1 each stays in the report's list */
    distag_value *value = NULL;
    distag_value_create_null(&value, NULL);
    distag_value_release(value);
  }
  return unused;
}

static void beside_others(void) {
  static char text[1 << 20];
  pthread_t threads[kThreads];
  for (int i = 0; i < kThreads; ++i) CHECK_INT(pthread_create(&threads[i], NULL, make_and_release, NULL), 0);
  for (int i = 0; i < kRounds; ++i) {
    size_t size = 0;
    CHECK_OK(distag_copy_handle_report(text, sizeof text, &size, &err));
    CHECK(text[0] == '{' && text[size - 1] == '}');
  }
  for (int i = 0; i < kThreads; ++i) pthread_join(threads[i], NULL);
}

int main(void) {
  const char *set = getenv("DISTAG_VALIDATE");
  validates = set != NULL && strcmp(set, "1") == 0;
  nothing_lives();
  by_kind();
  released();
  room();
  in_a_child();
  beside_others();
  nothing_lives();
  return check_end();
}
