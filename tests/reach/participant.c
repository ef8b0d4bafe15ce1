/* A member of a group that spans machines, for check_reach.py. Rank, size and rendezvous come from the environment.
 * usage: participant meet|talk SECONDS [insecure] [bind=ADDRESS] [advertise=ADDRESS] [payload=BYTES] [lease=SECONDS]
 * meet: all members call each other once; talk: again and again, twice at least, until SECONDS have passed or a call
 * fails. With a payload each call goes along with one of a tensor of as many bytes. */
#define _POSIX_C_SOURCE 199309L
#include <distag.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static distag_status twice(void* user_data, distag_invocation* invocation, distag_error* err) {
  int64_t number = 0;
  distag_value* answer = NULL;
  (void)user_data;
  distag_value_get_int64(distag_invocation_get_arg(invocation, 0), &number, err);
  distag_value_create_int64(2 * number, &answer, err);
  distag_invocation_return(invocation, answer, err);
  distag_value_release(answer);
  return err->code;
}

static void print_log(void* user_data, int32_t level, const char* message) {
  (void)user_data;
  printf("log %d: %s\n", (int)level, message);
}

static double seconds_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void call_with_payload(distag_worker* worker, const char* name, int64_t bytes, distag_error* err) {
  const int64_t count = bytes / 4;
  distag_tensor *x = NULL, *y = NULL;
  distag_value *argument = NULL, *answer = NULL;
  distag_full(3, DISTAG_FLOAT32, &count, 1, &x, err);
  argument = distag_tensor_as_value(x);
  distag_call(worker, NULL, name, "neg", &argument, 1, NULL, &answer, err);
  if (err->code == DISTAG_OK && distag_value_get_tensor(answer, &y, err) == DISTAG_OK) {
    const float* elements = distag_tensor_get_data(y);
    if (elements[0] != -3 || elements[count - 1] != -3) distag_error_set(err, DISTAG_E_INTERNAL, "a wrong payload");
  }
  distag_value_release(answer);
  distag_tensor_release(x);
}

/* Calls every other member once; false with the error after the first that fails or answers something else. */
static int call_all(distag_worker* worker, int64_t number, int64_t payload, distag_error* err) {
  const int32_t self = distag_worker_get_rank(worker);
  for (int32_t rank = 0; rank < distag_worker_get_world_size(worker); ++rank) {
    char name[32];
    distag_value *argument = NULL, *answer = NULL;
    int64_t got = 0;
    if (rank == self) continue;
    snprintf(name, sizeof name, "worker%d", (int)rank);
    distag_value_create_int64(number, &argument, err);
    distag_call(worker, NULL, name, "twice", &argument, 1, NULL, &answer, err);
    if (err->code == DISTAG_OK) distag_value_get_int64(answer, &got, err);
    distag_value_release(answer);
    distag_value_release(argument);
    if (err->code == DISTAG_OK && got != 2 * number) distag_error_set(err, DISTAG_E_INTERNAL, "a wrong answer");
    if (err->code == DISTAG_OK && payload > 0) call_with_payload(worker, name, payload, err);
    if (err->code != DISTAG_OK) return 0;
  }
  return 1;
}

static int end(const char* what, const distag_error* err, double since) {
  printf("%s failed: status %d after %.3f s: %s\n", what, (int)err->code, seconds_now() - since, err->message);
  fflush(stdout);
  return err->code == DISTAG_OK ? 1 : (int)err->code;
}

int main(int argc, char** argv) {
  distag_error err = DISTAG_ERROR_INIT, ignored = DISTAG_ERROR_INIT;
  distag_worker_options options = DISTAG_WORKER_OPTIONS_INIT;
  distag_security_options security = DISTAG_SECURITY_OPTIONS_INIT;
  distag_worker* worker = NULL;
  const double seconds = argc > 2 ? atof(argv[2]) : 0;
  int64_t rounds = 0, payload = 0;
  setvbuf(stdout, NULL, _IOLBF, 0);
  options.lease_ns = 5 * DISTAG_SECOND;
  options.on_log = print_log;
  options.log_level = DISTAG_LOG_WARNING;
  for (int i = 3; i < argc; ++i) {
    if (strcmp(argv[i], "insecure") == 0) security.allow_insecure = 1;
    if (strncmp(argv[i], "bind=", 5) == 0) options.bind = argv[i] + 5;
    if (strncmp(argv[i], "advertise=", 10) == 0) options.advertise = argv[i] + 10;
    if (strncmp(argv[i], "payload=", 8) == 0) payload = atoll(argv[i] + 8);
    if (strncmp(argv[i], "lease=", 6) == 0) options.lease_ns = atoll(argv[i] + 6) * DISTAG_SECOND;
  }
  options.security = &security;
  double since = seconds_now();
  if (distag_worker_create(&options, &worker, &err)) return end("create", &err, since);
  distag_worker_register(worker, "twice", twice, NULL, NULL, NULL, &err);
  if (err.code != DISTAG_OK || distag_worker_start(worker, 300 * DISTAG_SECOND, &err) != DISTAG_OK) {
    const int code = end("start", &err, since);
    distag_worker_release(worker);
    return code;
  }
  printf("started after %.3f s\n", seconds_now() - since);
  since = seconds_now();
  do {
    if (!call_all(worker, ++rounds, payload, &err)) break;
  } while (argc > 1 && strcmp(argv[1], "talk") == 0 && (rounds < 2 || seconds_now() - since < seconds));
  const int code = err.code == DISTAG_OK ? 0 : end("call", &err, since);
  distag_worker_shutdown(worker, code == 0 ? 120 * DISTAG_SECOND : 0, NULL, &ignored);
  distag_worker_release(worker);
  if (code == 0) printf("all answered, %lld rounds\n", (long long)rounds);
  return code;
}
