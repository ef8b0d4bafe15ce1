/* A group of both engines of sockets, in processes of their own: it meets, each member calls each other one, gradients
 * pass through both, and calls to a killed member fail while the survivors go on. Over ipc, tcp, and tcp with the
 * group's key, with either engine at rank 0. */
#define _GNU_SOURCE
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "capi/check.h"
#include "capi/support/group.h"
#include "capi/support/processes.h"

enum { kIpc, kTcp, kTcpWithKey, kWays };
enum { kMembers = 3, kKilled = 2 };
static const char *const kWayNames[kWays] = {"ipc", "tcp", "tcp with a key"};

typedef struct group_plan {
  int way;
  int first_is_zmtp; /* the engine of ranks 0 and 2; rank 1 has the other one */
} group_plan;

static distag_error err = DISTAG_ERROR_INIT;
static sem_t waiting; /* callers of "never" */

/* Passes its argument on to the worker that "to" names, which triples it. */
static distag_status pass_on(void *user_data, distag_invocation *invocation, distag_error *error) {
  distag_value *const arg = distag_invocation_get_arg(invocation, 0);
  distag_value *result = NULL;
  const char *const to = user_data;
  distag_call(distag_invocation_get_worker(invocation), distag_invocation_get_context(invocation), to, "triple",
              (distag_value *[]){arg}, 1, NULL, &result, error);
  distag_invocation_return(invocation, result, error);
  distag_value_release(result);
  return error->code;
}

static distag_status say_hello(void *user_data, distag_invocation *invocation, distag_error *error) {
  (void)user_data, (void)invocation, (void)error;
  return DISTAG_OK;
}

static distag_status never(void *user_data, distag_invocation *invocation, distag_error *error) {
  (void)user_data, (void)invocation, (void)error;
  sem_post(&waiting);
  for (;;) pause();
  return DISTAG_OK;
}

static void check_engine(distag_worker *worker, int is_zmtp) {
  char report[1 << 16];
  size_t size = 0;
  CHECK_OK(distag_worker_copy_report(worker, report, sizeof report, &size, &err));
  CHECK(strstr(report, is_zmtp ? "\"engine\": \"zmtp\"" : "\"engine\": \"zmq\"") != NULL);
}

/* y = 3 * 3 * x by way of both others, whose gradient at x is 9. */
static void check_pass(distag_worker *worker, const char *peer) {
  distag_tensor *x = NULL, *y = NULL, *loss = NULL;
  distag_value *once = NULL, *twice = NULL;
  distag_context *context = NULL;
  distag_gradients *gradients = NULL;
  double value = 0;
  CHECK_OK(distag_full(2, DISTAG_FLOAT64, (const int64_t[]){5}, 1, &x, &err));
  CHECK_OK(distag_tensor_set_requires_grad(x, 1, &err));
  CHECK_OK(distag_context_create(worker, &context, &err));
  CHECK_OK(distag_call(worker, context, peer, "pass_on", (distag_value *[]){distag_tensor_as_value(x)}, 1, NULL, &once,
                       &err));
  CHECK_OK(distag_call(worker, context, peer, "triple", &once, 1, NULL, &twice, &err));
  CHECK_OK(distag_value_get_tensor(twice, &y, &err));
  CHECK_OK(distag_sum(y, NULL, 0, 0, &loss, &err));
  CHECK_OK(distag_tensor_get_item(loss, &value, &err));
  CHECK_NEAR(value, 5 * 2 * 9);
  CHECK_OK(distag_backward(context, &loss, 1, NULL, &err));
  CHECK_OK(distag_get_gradients(context, &gradients, &err));
  distag_tensor *const gradient = distag_gradients_find(gradients, x);
  double slopes[5] = {0};
  CHECK_OK(distag_tensor_copy_data(gradient, slopes, sizeof slopes, &err));
  for (int i = 0; i < 5; ++i) CHECK_NEAR(slopes[i], 9);
  distag_gradients_release(gradients);
  distag_context_release(context);
  distag_tensor_release(loss);
  distag_value_release(twice);
  distag_value_release(once);
  distag_tensor_release(x);
}

static distag_status tell(distag_worker *worker, const char *peer, const char *function) {
  err.code = DISTAG_OK;
  return distag_call(worker, NULL, peer, function, NULL, 0, NULL, NULL, &err);
}

static int run_member(const char *rendezvous, int32_t rank, int32_t count, void *data) {
  const group_plan *const plan = data;
  const char *const names[] = {"w0", "w1", "w2"};
  const char *const next = names[(rank + 1) % kMembers], *const after = names[(rank + 2) % kMembers];
  const int is_zmtp = (rank == 1) != plan->first_is_zmtp;
  distag_security_options security = DISTAG_SECURITY_OPTIONS_INIT;
  distag_worker_options options = group_options(rank, count, rendezvous);
  distag_worker *worker = NULL;
  alarm(500);
  CHECK(sem_init(&waiting, 0, 0) == 0);
  options.no_lane = 1;
  options.thread_count = 4;               /* two are kept by "never" */
  options.lease_ns = 600 * DISTAG_SECOND; /* far beyond what the test waits */
  options.socket_engine = is_zmtp ? DISTAG_SOCKET_ENGINE_ZMTP : DISTAG_SOCKET_ENGINE_ZMQ;
  if (plan->way != kIpc) options.bind = "tcp://127.0.0.1:0";
  security.group_key = "a key of 32 or more characters, of a group";
  if (plan->way == kTcpWithKey) options.security = &security;
  CHECK_OK(distag_worker_create(&options, &worker, &err));
  CHECK_OK(distag_worker_register(worker, "triple", group_triple, NULL, NULL, NULL, &err));
  CHECK_OK(distag_worker_register(worker, "pass_on", pass_on, (void *)next, NULL, NULL, &err));
  CHECK_OK(distag_worker_register(worker, "hello", say_hello, NULL, NULL, NULL, &err));
  CHECK_OK(distag_worker_register(worker, "never", never, NULL, NULL, NULL, &err));
  CHECK_OK(distag_worker_start(worker, 120 * DISTAG_SECOND, &err));
  if (check_failures != 0) return 1;
  check_engine(worker, is_zmtp);
  check_pass(worker, next);
  check_pass(worker, after);
  if (rank == kKilled) { /* once the others have no more to ask of it */
    for (int i = 0; i < kMembers - 1; ++i) CHECK(sem_wait(&waiting) == 0);
    if (check_failures == 0) kill(getpid(), SIGKILL);
    return 1;
  }
  CHECK_INT(tell(worker, names[kKilled], "never"), DISTAG_E_DISCONNECTED);
  CHECK_OK(tell(worker, names[1 - rank], "hello"));
  CHECK_OK(distag_worker_shutdown(worker, 120 * DISTAG_SECOND, NULL, &err));
  distag_worker_release(worker);
  return check_end();
}

int main(void) {
  for (int way = 0; way < kWays; ++way) {
    for (int first_is_zmtp = 0; first_is_zmtp < 2; ++first_is_zmtp) {
      group_plan plan = {way, first_is_zmtp};
      processes group;
      const int started = CHECK_INT(processes_start(&group, kMembers, run_member, &plan), 0);
      const int ended = CHECK_INT(processes_end(&group, kKilled), 0);
      if (!started || !ended) {
        fprintf(stderr, "over %s, rank 0 by %s\n", kWayNames[way], first_is_zmtp ? "zmtp" : "libzmq");
      }
    }
  }
  return check_end();
}
