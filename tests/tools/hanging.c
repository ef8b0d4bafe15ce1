/* A rank of a group that hangs, until its input ends. usage: hanging SCENARIO PREFIX */
#include <distag.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char names[4][64];
static distag_worker *worker;

/* Host code that hangs, outside of distag. */
static void hang(void) {
  char byte;
  while (read(0, &byte, 1) > 0) continue;
}

static distag_status hold(void *user_data, distag_invocation *invocation, distag_error *err) {
  (void)user_data, (void)invocation, (void)err;
  hang();
  return DISTAG_OK;
}

static distag_status pass_on(void *user_data, distag_invocation *invocation, distag_error *err) {
  (void)user_data;
  distag_call_options options = DISTAG_CALL_OPTIONS_INIT;
  options.timeout_ns = DISTAG_FOREVER;
  options.within = invocation;
  return distag_call(worker, NULL, names[2], "hold", NULL, 0, &options, NULL, err);
}

static void gather(distag_error *err) {
  distag_value *nothing = NULL;
  distag_value_create_null(&nothing, err);
  distag_worker_all_gather(worker, nothing, NULL, 0, DISTAG_FOREVER, NULL, err);
  distag_value_release(nothing);
}

static distag_status gather_there(void *user_data, distag_invocation *invocation, distag_error *err) {
  (void)user_data, (void)invocation;
  gather(err);
  return DISTAG_OK;
}

/* Until this process is killed, or the callee is. */
static void call(const char *callee, const char *function, distag_error *err) {
  distag_call_options options = DISTAG_CALL_OPTIONS_INIT;
  options.timeout_ns = DISTAG_FOREVER;
  distag_call(worker, NULL, callee, function, NULL, 0, &options, NULL, err);
}

/* A callee that starts still runs functions, and registers this one after that. */
static void call_once_there_is(const char *callee, const char *function, distag_error *err) {
  do {
    *err = (distag_error)DISTAG_ERROR_INIT;
    call(callee, function, err);
  } while (err->code == DISTAG_E_NOT_FOUND);
}

static void act(const char *scenario, int rank, distag_error *err) {
  const int is_first = rank == 0;
  if (strcmp(scenario, "function") == 0 && is_first) call(names[1], "hold", err);
  if (strcmp(scenario, "chain") == 0 && is_first) call(names[1], "pass_on", err);
  if (strcmp(scenario, "cycle") == 0 && is_first) call(names[1], "gather_there", err);
  if (strcmp(scenario, "unpolled") == 0 && is_first) call_once_there_is(names[1], "hold", err);
  if (strcmp(scenario, "unpolled") == 0 && rank == 1)
    distag_worker_register(worker, "hold", hold, NULL, NULL, NULL, err);
  if (strcmp(scenario, "missing") == 0 && rank != 2) gather(err);
  if (strcmp(scenario, "stopped") == 0 && is_first) call(names[1], "hold", err);
  if (strcmp(scenario, "stopped") == 0 && rank == 1) raise(SIGSTOP);
  hang();
}

int main(int argc, char **argv) {
  distag_worker_options options = DISTAG_WORKER_OPTIONS_INIT;
  distag_error err = DISTAG_ERROR_INIT;
  const char *rank = getenv("DISTAG_RANK");
  if (argc != 3 || rank == NULL) return 2;
  for (int i = 0; i < 4; ++i) snprintf(names[i], sizeof names[i], "%s%d", argv[2], i);
  options.name = names[atoi(rank) % 4];
  options.job = argv[2];
  options.rank = -1;
  options.lease_ns = 120 * DISTAG_SECOND; /* a member that is stopped is not lost meanwhile */
  options.executor = strcmp(argv[1], "unpolled") == 0 ? DISTAG_EXECUTOR_HOST : DISTAG_EXECUTOR_POOL;
  if (strcmp(argv[1], "tcp") == 0) options.bind = "tcp://127.0.0.1:0";
  if (strcmp(argv[1], "alone") == 0 && atoi(rank) > 0) hang();
  distag_worker_create(&options, &worker, &err);
  if (options.executor == DISTAG_EXECUTOR_POOL) distag_worker_register(worker, "hold", hold, NULL, NULL, NULL, &err);
  distag_worker_register(worker, "pass_on", pass_on, NULL, NULL, NULL, &err);
  distag_worker_register(worker, "gather_there", gather_there, NULL, NULL, NULL, &err);
  distag_worker_start(worker, 60 * DISTAG_SECOND, &err);
  if (err.code == DISTAG_OK) printf("started\n");
  fflush(stdout);
  if (err.code == DISTAG_OK) act(argv[1], atoi(rank), &err);
  if (err.code != DISTAG_OK) fprintf(stderr, "%s: %s\n", distag_status_get_name(err.code), err.message);
  return err.code != DISTAG_OK;
}
