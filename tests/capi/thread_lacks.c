/* A process may make only a given number of threads, from none on: the start of a worker, and its first call, each
 * succeed, or fail soon with OUT_OF_MEMORY and the limit that is to be raised; nothing waits, however long it may, and
 * nothing ends the process. Once there is room the same worker starts, and works. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "capi/check.h"
#include "capi/support/group.h"

#if !defined(__has_feature)
#define __has_feature(name) 0
#endif
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__) || __has_feature(thread_sanitizer) || \
    __has_feature(address_sanitizer)
enum { kCounts = 0 }; /* pthread_create is that of the sanitizer */
#else
enum { kCounts = 1 };
#endif
enum { kMostThreads = 8, kPlenty = 4 /* as libzmq is tried with */, kUnlimited = 1 << 20, kSeconds = 60 };

static distag_error err = DISTAG_ERROR_INIT;

#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__) && !__has_feature(thread_sanitizer) && \
    !__has_feature(address_sanitizer)
static atomic_int threads_left = kUnlimited;

struct body {
  void *(*run)(void *);
  void *argument;
};

/* Counts until it ends. */
static void *run_counted(void *data) {
  const struct body body = *(struct body *)data;
  free(data);
  void *const result = body.run(body.argument);
  atomic_fetch_add(&threads_left, 1);
  return result;
}

/* The pthread_create of everything in this process: it fails as at the limit of `ulimit -u`. */
__attribute__((visibility("default"))) int pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                                                          void *(*run)(void *), void *argument) {
  int (*make)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
  struct body *const body = malloc(sizeof *body);
  int failure = body == NULL ? EAGAIN : 0;
  *(void **)&make = dlsym(RTLD_NEXT, "pthread_create");
  if (failure == 0) *body = (struct body){run, argument};
  if (atomic_fetch_sub(&threads_left, 1) <= 0) failure = EAGAIN;
  if (failure == 0) failure = make(thread, attributes, run_counted, body);
  if (failure != 0) {
    free(body);
    atomic_fetch_add(&threads_left, 1);
  }
  return failure;
}
static void allow_threads(int count) { atomic_store(&threads_left, count); }
static int has_plenty(void) { return atomic_load(&threads_left) >= kPlenty; }
#else
static void allow_threads(int count) { (void)count; }
static int has_plenty(void) { return 0; }
#endif

static distag_status serve(void *user_data, distag_invocation *invocation, distag_error *told) {
  (void)user_data, (void)invocation, (void)told;
  return DISTAG_OK;
}

static distag_status call(distag_worker *worker, const char *to) {
  distag_call_options options = DISTAG_CALL_OPTIONS_INIT;
  options.timeout_ns = DISTAG_FOREVER;
  err.code = DISTAG_OK;
  return distag_call(worker, NULL, to, "serve", NULL, 0, &options, NULL, &err);
}

/* Whether a call succeeded; if not, it failed for lack of threads. */
static int is_done(distag_status status, const char *what) {
  if (status == DISTAG_OK) return 1;
  const int is_told = status == DISTAG_E_OUT_OF_MEMORY && strstr(err.message, "ulimit -u") != NULL;
  if (!CHECK(is_told && !has_plenty())) fprintf(stderr, "%s: %s\n", what, err.message);
  err.code = DISTAG_OK;
  return 0;
}

static distag_worker *create(int32_t rank, distag_worker_options options) {
  static const char *const names[] = {"w0", "w1"};
  distag_worker *worker = NULL;
  options.rank = rank;
  options.name = names[rank];
  while (!is_done(distag_worker_create(&options, &worker, &err), "create")) allow_threads(kUnlimited);
  CHECK_OK(distag_worker_register(worker, "serve", serve, NULL, NULL, NULL, &err));
  return worker;
}

/* Has `count` threads until it has started and called, or has failed at that. The other member has all it needs. */
static int lack(const distag_worker_options *options, int count) {
  const char *const last = options->world_size == 1 ? "w0" : "w1";
  distag_worker *const worker = create(0, *options);
  allow_threads(count);
  const int is_started = is_done(distag_worker_start(worker, DISTAG_FOREVER, &err), "start");
  const int is_called = is_started && is_done(call(worker, "w0"), "call") && is_done(call(worker, last), "call");
  allow_threads(kUnlimited);
  if (!is_started) CHECK_OK(distag_worker_start(worker, DISTAG_FOREVER, &err));
  CHECK_OK(call(worker, "w0"));
  CHECK_OK(call(worker, last));
  CHECK_OK(distag_worker_shutdown(worker, DISTAG_FOREVER, NULL, &err));
  distag_worker_release(worker);
  printf("%d threads: %s\n", count, is_called ? "enough" : is_started ? "for the start" : "too few");
  return check_failures != 0;
}

static int stand_by(const distag_worker_options *options) {
  distag_worker *const worker = create(1, *options);
  CHECK_OK(distag_worker_start(worker, DISTAG_FOREVER, &err));
  CHECK_OK(distag_worker_shutdown(worker, DISTAG_FOREVER, NULL, &err));
  distag_worker_release(worker);
  return check_failures != 0;
}

static void note_end(void *data) { atomic_fetch_add((atomic_int *)data, 1); }

/* A worker that is released while no thread can be made ends all the same: one whose start has failed for that, and one
 * that runs. */
static void release_without_threads(const distag_worker_options *options) {
  for (int is_started = 0; is_started < 2; ++is_started) {
    static atomic_int ended;
    const uint64_t before = distag_get_handle_count();
    distag_worker *worker = NULL;
    atomic_store(&ended, 0);
    CHECK_OK(distag_worker_create(options, &worker, &err));
    CHECK_OK(distag_worker_register(worker, "serve", serve, &ended, note_end, NULL, &err));
    if (is_started) CHECK_OK(distag_worker_start(worker, DISTAG_FOREVER, &err));
    if (is_started) CHECK_OK(call(worker, "w0"));
    allow_threads(0);
    if (!is_started) CHECK_INT(distag_worker_start(worker, DISTAG_FOREVER, &err), DISTAG_E_OUT_OF_MEMORY);
    distag_worker_release(worker);
    CHECK_INT(atomic_load(&ended), 1);
    CHECK_INT(distag_get_handle_count(), before);
    allow_threads(kUnlimited);
  }
}

static void try_all(const distag_worker_options *options, const char *way) {
  for (int count = 0; count <= kMostThreads; ++count) {
    printf("%s, ", way);
    fflush(NULL);
    for (int rank = 0; rank < options->world_size; ++rank) {
      const pid_t pid = fork();
      CHECK(pid >= 0);
      if (pid != 0) continue;
      alarm(kSeconds); /* a wait is a failure */
      check_failures = 0;
      const int failed = rank == 0 ? lack(options, count) : stand_by(options);
      fflush(NULL);
      _exit(failed);
    }
    for (int status = 0; wait(&status) > 0;) {
      if (!CHECK_INT(status, 0)) fprintf(stderr, "  %s, %d threads\n", way, count);
    }
  }
}

int main(void) {
  char folder[] = "/tmp/distag-thread-lacks-XXXXXX", place[64];
  if (!kCounts) return check_end();
  distag_worker_options options = group_options(0, 1, "inproc://thread-lacks");
  options.thread_count = 2;
  options.name = "w0";
  release_without_threads(&options);
  try_all(&options, "inproc");
  CHECK(mkdtemp(folder) != NULL);
  snprintf(place, sizeof place, "file://%s", folder);
  options.rendezvous = place;
  options.world_size = 2;
  options.no_lane = 1;
  options.socket_engine = DISTAG_SOCKET_ENGINE_ZMTP;
  try_all(&options, "zmtp");
  options.socket_engine = DISTAG_SOCKET_ENGINE_ZMQ;
  try_all(&options, "zmq");
  rmdir(folder);
  return check_end();
}
