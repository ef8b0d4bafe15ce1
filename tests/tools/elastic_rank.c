/* A rank of two that may be lost once. The other one calls it, has it kill itself, waits until it is back and calls it
 * again. usage: elastic_rank LOST_RANK FOLDER */
#include <distag.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static distag_status die(void *user_data, distag_invocation *invocation, distag_error *err) {
  (void)user_data, (void)invocation, (void)err;
  return raise(SIGKILL);
}

static double twice_one(distag_worker *worker, const char *to, distag_error *err) {
  distag_tensor *one = NULL, *sum = NULL;
  distag_value *answer = NULL;
  double item = 0;
  distag_full(1, DISTAG_FLOAT32, NULL, 0, &one, err);
  distag_value *args[] = {distag_tensor_as_value(one), distag_tensor_as_value(one)};
  distag_call(worker, NULL, to, "add", args, 2, NULL, &answer, err);
  distag_value_get_tensor(answer, &sum, err);
  distag_tensor_get_item(sum, &item, err);
  distag_value_release(answer);
  distag_tensor_release(one);
  return item;
}

/* Until the gathering of both is done, which those that began with a lost one fail. */
static void meet(distag_worker *worker, distag_error *err) {
  distag_value *nothing = NULL;
  distag_value_create_null(&nothing, err);
  do {
    err->code = DISTAG_OK;
    distag_worker_all_gather(worker, nothing, NULL, 0, 10 * DISTAG_SECOND, NULL, err);
  } while (err->code == DISTAG_E_DISCONNECTED || err->code == DISTAG_E_PEER_RESTARTED);
  distag_value_release(nothing);
}

int main(int argc, char **argv) {
  const int lost = argc > 2 ? atoi(argv[1]) : -1;
  const char *name = lost == 0 ? "worker0" : "worker1";
  distag_error err = DISTAG_ERROR_INIT, ignored = DISTAG_ERROR_INIT;
  distag_worker *worker = NULL;
  if (lost < 0) return 2;
  distag_worker_create(NULL, &worker, &err);
  distag_worker_register(worker, "die", die, NULL, NULL, NULL, &err);
  distag_worker_start(worker, 30 * DISTAG_SECOND, &err);
  if (distag_worker_get_rank(worker) == lost) {
    meet(worker, &err); /* only its second incarnation comes this far: the other one kills it before it gathers */
  } else if (err.code == DISTAG_OK) {
    printf("the first: %g\n", twice_one(worker, name, &err));
    distag_call(worker, NULL, name, "die", NULL, 0, NULL, NULL, &ignored);
    meet(worker, &err);
    printf("the second: %g\n", twice_one(worker, name, &err));
  }
  distag_worker_shutdown(worker, 30 * DISTAG_SECOND, NULL, &err);
  distag_worker_release(worker);
  if (err.code != DISTAG_OK) fprintf(stderr, "%s: %s\n", distag_status_get_name(err.code), err.message);
  return err.code != DISTAG_OK;
}
