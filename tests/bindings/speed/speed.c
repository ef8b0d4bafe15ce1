/* The baseline that a language is compared with: see README.md. usage: speed ROLE FOLDER */
#define _POSIX_C_SOURCE 200809L
#include <distag.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { kFlight = 1000 };

static void check(const distag_error* err, const char* what) {
  if (err->code == DISTAG_OK) return;
  fprintf(stderr, "%s: %s\n", what, err->message);
  exit(1);
}

static double now_seconds(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static distag_status echo(void* user_data, distag_invocation* invocation, distag_error* err) {
  (void)user_data;
  return distag_invocation_return(invocation, distag_invocation_get_arg(invocation, 0), err);
}

static void call(distag_worker* worker, distag_tensor* x, distag_error* err) {
  distag_value *arg = distag_tensor_as_value(x), *answer = NULL;
  distag_call(worker, NULL, "b", "echo", &arg, 1, NULL, &answer, err);
  distag_value_release(answer);
}

static void fly(distag_worker* worker, distag_tensor* x, distag_error* err) {
  static distag_future* futures[kFlight];
  distag_value* arg = distag_tensor_as_value(x);
  for (int i = 0; i < kFlight; ++i) distag_call_async(worker, NULL, "b", "echo", &arg, 1, NULL, &futures[i], err);
  distag_wait_all(futures, kFlight, 240 * DISTAG_SECOND, err);
  for (int i = 0; i < kFlight; ++i) distag_future_release(futures[i]);
}

static void add(distag_tensor* x, distag_error* err) {
  distag_tensor* y = NULL;
  distag_add(x, x, &y, err);
  distag_tensor_release(y);
}

static double measure(const char* name, int rounds, distag_worker* worker, distag_error* err) {
  const float numbers[4] = {1, 2, 3, 4};
  const int64_t one = 1, four = 4;
  const double begin = now_seconds();
  distag_tensor *small = NULL, *x = NULL;
  distag_tensor_create(numbers, 4, DISTAG_FLOAT32, &one, 1, &small, err);
  distag_tensor_create(numbers, 16, DISTAG_FLOAT32, &four, 1, &x, err);
  for (int i = 0; i < rounds; ++i) {
    if (strcmp(name, "call") == 0) call(worker, small, err);
    if (strcmp(name, "op") == 0) add(x, err);
    if (strcmp(name, "flight") == 0 && i % kFlight == 0) fly(worker, small, err);
  }
  distag_tensor_release(small);
  distag_tensor_release(x);
  return (now_seconds() - begin) / rounds;
}

int main(int argc, char** argv) {
  distag_worker_options options = DISTAG_WORKER_OPTIONS_INIT;
  distag_error err = DISTAG_ERROR_INIT;
  distag_worker* worker = NULL;
  char rendezvous[1024], name[32];
  int rounds;

  if (argc != 3) return 2;
  options.rank = strcmp(argv[1], "serve") == 0;
  options.name = options.rank == 1 ? "b" : "a";
  options.world_size = 2;
  snprintf(rendezvous, sizeof rendezvous, "file://%s", argv[2]);
  options.rendezvous = rendezvous;
  distag_worker_create(&options, &worker, &err);
  distag_worker_register(worker, "echo", echo, NULL, NULL, NULL, &err);
  distag_worker_start(worker, 120 * DISTAG_SECOND, &err);
  check(&err, "start");
  while (options.rank == 0 && scanf("%31s %d", name, &rounds) == 2) {
    printf("%.9f\n", measure(name, rounds, worker, &err));
    fflush(stdout);
    check(&err, name);
  }
  distag_worker_shutdown(worker, DISTAG_FOREVER, NULL, &err);
  distag_worker_release(worker);
  return err.code != DISTAG_OK;
}
