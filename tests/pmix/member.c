/* A process of a job that its launcher has placed by PMIx. usage: pmix_member CASE [NUMBER]
 * twice: says its place, meets the others, calls the next one, leaves; all that twice, then says its place again.
 * silent NUMBER: the process of that rank never starts, and ends with the job; the others give 2 s to their start.
 * killed NUMBER: the process of that rank ends by a signal before its start.
 * forked: its child asks for its place, and is refused.
 * refused: starts as another rank than the launcher says, and as an open world. */
#define _POSIX_C_SOURCE 200809L
#include <distag.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static distag_error err = DISTAG_ERROR_INIT;

static int fails(const char* what) {
  printf("%s: %s: %s\n", what, distag_status_get_name(err.code), err.message);
  return 1;
}

static int say_place(distag_environment* place) {
  if (distag_get_environment(place, &err) != DISTAG_OK) return fails("place");
  printf("%s rank %d of %d, local %d of %d, node %d of %d\n", place->launcher, place->rank, place->world_size,
         place->local_rank, place->local_size, place->node, place->node_count);
  return 0;
}

static int meet(int64_t timeout, const distag_worker_options* options) {
  distag_worker* worker = NULL;
  distag_tensor* one = NULL;
  distag_value *arg = NULL, *answer = NULL;
  const int64_t size = 1;
  char next[32];
  int bad = distag_worker_create(options, &worker, &err) != DISTAG_OK && fails("create");
  if (!bad) bad = distag_worker_start(worker, timeout, &err) != DISTAG_OK && fails("start");
  if (!bad) {
    snprintf(next, sizeof next, "worker%d",
             (distag_worker_get_rank(worker) + 1) % distag_worker_get_world_size(worker));
    bad = distag_rand(1, DISTAG_FLOAT32, &size, 1, &one, &err) != DISTAG_OK && fails("rand");
    arg = distag_tensor_as_value(one);
    if (!bad) bad = distag_call(worker, NULL, next, "neg", &arg, 1, NULL, &answer, &err) != DISTAG_OK && fails("call");
    if (!bad)
      printf("%s met %d and called %s\n", distag_worker_get_name(worker), distag_worker_get_world_size(worker), next);
  }
  if (distag_worker_shutdown(worker, 120 * DISTAG_SECOND, NULL, &err) != DISTAG_OK) bad = fails("shutdown");
  distag_value_release(answer);
  distag_tensor_release(one);
  distag_worker_release(worker);
  return bad;
}

int main(int argc, char** argv) {
  const char* const which = argc > 1 ? argv[1] : "";
  const int number = argc > 2 ? atoi(argv[2]) : -1;
  distag_environment place = DISTAG_ENVIRONMENT_INIT;
  distag_worker_options options = DISTAG_WORKER_OPTIONS_INIT;
  setvbuf(stdout, NULL, _IOLBF, 1024);
  if (say_place(&place) != 0) return 1;
  if (strcmp(which, "twice") == 0)
    return meet(120 * DISTAG_SECOND, NULL) || meet(120 * DISTAG_SECOND, NULL) || say_place(&place);
  if (strcmp(which, "silent") == 0 && place.rank == number) return poll(NULL, 0, 240000) != 0;
  if (strcmp(which, "silent") == 0) return meet(2 * DISTAG_SECOND, NULL);
  if (strcmp(which, "killed") == 0 && place.rank == number) return raise(SIGKILL);
  if (strcmp(which, "killed") == 0) return meet(120 * DISTAG_SECOND, NULL);
  if (strcmp(which, "forked") == 0) {
    int ended = 0;
    const pid_t child = fork();
    if (child == 0) {
      say_place(&place);
      _exit(0);
    }
    return waitpid(child, &ended, 0) != child || ended != 0 || say_place(&place) != 0;
  }
  options.rendezvous = "pmix://";
  options.rank = (place.rank + 1) % place.world_size;
  options.world_size = place.world_size;
  const int bad = !meet(120 * DISTAG_SECOND, &options);
  options.rank = -1;
  options.world_size = -1;
  return bad || !meet(120 * DISTAG_SECOND, &options);
}
