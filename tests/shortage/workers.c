/* Two workers: calls, a pass through both, references, an optimizer that steps on both; from their creation to the
 * release. Whatever answers OUT_OF_MEMORY is done again, so that what a failure left behind is used. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shortage/run.h"

enum { kMostTries = 60 };

static const int64_t kStartTime = 3 * DISTAG_SECOND;
/* Messages that a shortage loses on a connection are sent again half a lease later. */
static const int64_t kLease = 2 * DISTAG_SECOND;
static const int64_t kCallTime = 3 * DISTAG_SECOND;
static const int64_t kShutdownTime = 4 * DISTAG_SECOND;

static distag_status square(void *user_data, distag_invocation *invocation, distag_error *err) {
  distag_tensor *x = NULL, *y = NULL;
  (void)user_data;
  distag_invocation_get_tensor(invocation, 0, &x, err);
  distag_mul(x, x, &y, err);
  distag_invocation_return(invocation, distag_tensor_as_value(y), err);
  distag_tensor_release(y);
  return err->code;
}

static distag_status parameter(void *user_data, distag_invocation *invocation, distag_error *err) {
  const double data[2] = {5, 6};
  const int64_t shape[1] = {2};
  distag_tensor *w = NULL;
  (void)user_data;
  distag_tensor_create(data, sizeof data, DISTAG_FLOAT64, shape, 1, &w, err);
  distag_tensor_set_requires_grad(w, 1, err);
  distag_invocation_return(invocation, distag_tensor_as_value(w), err);
  distag_tensor_release(w);
  return err->code;
}

static distag_worker *make_worker(run_result *result, int32_t rank, const char *rendezvous, const char *bind) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_worker_options options = DISTAG_WORKER_OPTIONS_INIT;
  distag_worker *worker = NULL;
  options.rank = rank;
  options.world_size = 2;
  options.name = rank == 0 ? "w0" : "w1";
  options.rendezvous = rendezvous;
  options.bind = bind;
  options.thread_count = 2;
  options.call_timeout_ns = kCallTime;
  options.lease_ns = kLease;
  for (int tries = 0; worker == NULL && tries < kMostTries; ++tries) {
    if (RUN(result, distag_worker_create(&options, &worker, &err)) &&
        !(RUN(result, distag_worker_register(worker, "square", square, NULL, NULL, NULL, &err)) &&
          RUN(result, distag_worker_register(worker, "parameter", parameter, NULL, NULL, NULL, &err)))) {
      distag_worker_release(worker);
      worker = NULL;
    }
  }
  return worker;
}

/* Begins an operation of each worker and waits for all; those that fail are begun again. */
typedef distag_status (*operation)(distag_worker *worker, int64_t timeout, distag_future **out_future,
                                   distag_error *err);

static int run_each(run_result *result, operation begin, const char *name, distag_worker **workers, int count,
                    int64_t timeout) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_future *futures[2] = {NULL, NULL};
  int is_done[2] = {0, 0};
  for (int tries = 0; tries < kMostTries; ++tries) {
    int left = 0;
    for (int i = 0; i < count; ++i) {
      if (is_done[i] || futures[i] != NULL) continue;
      result->doing = name;
      err.code = DISTAG_OK;
      run_note(result, name, begin(workers[i], timeout, &futures[i], &err), &err);
    }
    for (int i = 0; i < count; ++i) {
      if (futures[i] == NULL) continue;
      /* While another one has not begun it does not end: it is looked at again. */
      const int64_t patience = futures[1 - i] == NULL && count == 2 && !is_done[1 - i] ? 0 : timeout + DISTAG_SECOND;
      distag_status status = DISTAG_E_OUT_OF_MEMORY; /* of the wait itself, too: then it is begun again */
      result->doing = "distag_wait_all";
      for (int waits = 0; status == DISTAG_E_OUT_OF_MEMORY && waits < 1000; ++waits) {
        err.code = DISTAG_OK;
        status = distag_wait_all(&futures[i], 1, patience, &err);
      }
      if (!distag_future_poll(futures[i])) {
        if (patience != 0 || status != DISTAG_E_DEADLINE) run_note(result, "distag_wait_all", status, &err);
        continue;
      }
      is_done[i] = run_note(result, name, status, &err);
      distag_future_release(futures[i]);
      futures[i] = NULL;
    }
    for (int i = 0; i < count; ++i) left += !is_done[i];
    if (left == 0 || result->late > 2) break;
  }
  for (int i = 0; i < count; ++i) distag_future_release(futures[i]);
  return is_done[0] && (count < 2 || is_done[1]);
}

static distag_tensor *make_leaf(run_result *result) {
  distag_error err = DISTAG_ERROR_INIT;
  const double data[2] = {2, 3};
  const int64_t shape[1] = {2};
  distag_tensor *x = NULL;
  if (RUN(result, distag_tensor_create(data, sizeof data, DISTAG_FLOAT64, shape, 1, &x, &err)) &&
      !RUN(result, distag_tensor_set_requires_grad(x, 1, &err))) {
    distag_tensor_release(x);
    x = NULL;
  }
  return x;
}

static void check_gradient(run_result *result, distag_gradients *gradients, distag_tensor *x) {
  distag_error err = DISTAG_ERROR_INIT;
  const double expected[2] = {4 * 5, 6 * 6}; /* of sum(x^2 w): 2 x w */
  double data[2] = {0, 0};
  distag_tensor *const gradient = distag_gradients_find(gradients, x);
  if (gradient == NULL) {
    run_note_wrong(result, "distag_gradients_find gave NULL", 0, 1);
  } else if (RUN(result, distag_tensor_copy_data(gradient, data, sizeof data, &err))) {
    for (int i = 0; i < 2; ++i) {
      if (data[i] != expected[i]) run_note_wrong(result, "gradient", data[i], expected[i]);
    }
  }
}

/* loss = sum(square(x) * w), where the other worker squares and owns w; then a step of w over there. */
static int train_once(run_result *result, distag_worker *worker) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_tensor *x = make_leaf(result), *squared = NULL, *w = NULL, *product = NULL, *loss = NULL;
  distag_rref *rref = NULL;
  distag_value *answer = NULL, *fetched = NULL;
  distag_context *context = NULL;
  distag_gradients *gradients = NULL;
  distag_optimizer *optimizer = NULL;
  int is_ok = x != NULL && RUN(result, distag_context_create(worker, &context, &err)) &&
              RUN(result, distag_remote(worker, NULL, "w1", "parameter", NULL, 0, NULL, &rref, &err)) &&
              RUN(result, distag_rref_fetch(rref, context, NULL, &fetched, &err)) &&
              RUN(result, distag_value_get_tensor(fetched, &w, &err));
  if (is_ok) {
    distag_value *const args[1] = {distag_tensor_as_value(x)};
    is_ok = RUN(result, distag_call(worker, context, "w1", "square", args, 1, NULL, &answer, &err)) &&
            RUN(result, distag_value_get_tensor(answer, &squared, &err)) &&
            RUN(result, distag_mul(squared, w, &product, &err)) &&
            RUN(result, distag_sum(product, NULL, 0, 0, &loss, &err)) &&
            RUN(result, distag_backward(context, &loss, 1, NULL, &err)) &&
            RUN(result, distag_get_gradients(context, &gradients, &err));
  }
  if (is_ok) check_gradient(result, gradients, x);
  if (is_ok) {
    distag_value *const parameters[1] = {distag_rref_as_value(rref)};
    is_ok = RUN(result, distag_optimizer_create(worker, "sgd", parameters, 1, &optimizer, &err)) &&
            RUN(result, distag_optimizer_step(optimizer, context, NULL, &err));
  }
  distag_optimizer_release(optimizer);
  distag_gradients_release(gradients);
  distag_tensor_release(loss);
  distag_tensor_release(product);
  distag_value_release(answer);
  distag_value_release(fetched);
  distag_rref_release(rref);
  distag_context_release(context);
  distag_tensor_release(x);
  return is_ok;
}

static void train(run_result *result, distag_worker *worker) {
  int tries = 0;
  while (tries < kMostTries && result->late < 3 && !train_once(result, worker)) ++tries;
  if (tries == kMostTries) ++result->others;
}

void run_in_process(const run_plan *plan, run_result *result) {
  distag_worker *workers[2] = {NULL, NULL};
  allocations_count_from_here(&plan->missing);
  for (int i = 0; i < 2; ++i) workers[i] = make_worker(result, i, "inproc://shortage", NULL);
  if (workers[0] != NULL && workers[1] != NULL &&
      run_each(result, distag_worker_start_async, "distag_worker_start_async", workers, 2, kStartTime)) {
    train(result, workers[0]);
    run_each(result, distag_worker_shutdown_async, "distag_worker_shutdown_async", workers, 2, kShutdownTime);
  }
  result->allocations = allocations_stop();
  for (int i = 0; i < 2; ++i) {
    distag_error err = DISTAG_ERROR_INIT;
    if (workers[i] != NULL) RUN(result, distag_worker_shutdown(workers[i], kShutdownTime, NULL, &err));
    distag_worker_release(workers[i]);
  }
  result->handles = (long long)distag_get_handle_count();
}

/* One of two processes; `plan` is NULL in the one that gets all memory it asks for. */
static void run_member(int32_t rank, const run_plan *plan, const char *directory, run_result *result) {
  distag_error err = DISTAG_ERROR_INIT;
  char rendezvous[512];
  snprintf(rendezvous, sizeof rendezvous, "file://%s", directory);
  allocations_count_from_here(plan == NULL ? NULL : &plan->missing);
  distag_worker *worker = make_worker(result, rank, rendezvous, "tcp://127.0.0.1:0");
  if (worker != NULL) {
    if (run_each(result, distag_worker_start_async, "distag_worker_start_async", &worker, 1, kStartTime)) {
      if (rank == 0) train(result, worker);
      run_each(result, distag_worker_shutdown_async, "distag_worker_shutdown_async", &worker, 1, 2 * kShutdownTime);
    }
    result->allocations = allocations_stop();
    RUN(result, distag_worker_shutdown(worker, kShutdownTime, NULL, &err));
    distag_worker_release(worker);
  }
  result->handles = (long long)distag_get_handle_count();
}

/* The other process is this one's child. Its findings count too, once this process is well. */
static void run_tcp(const run_plan *plan, run_result *result, int32_t short_rank) {
  run_result *const other = mmap(NULL, sizeof *other, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (other == MAP_FAILED) return run_note_wrong(result, "mmap", 0, 1);
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    run_member(1 - short_rank, NULL, plan->directory, other);
    _exit(0);
  }
  run_member(short_rank, plan, plan->directory, result);
  waitpid(child, NULL, 0);
  result->late += other->late;
  result->others += other->others;
  result->wrong += other->wrong;
  result->refusals += other->refusals;
  result->handles += other->handles;
  if (result->note[0] == '\0') memcpy(result->note, other->note, sizeof result->note);
}

void run_tcp_caller(const run_plan *plan, run_result *result) { run_tcp(plan, result, 0); }
void run_tcp_server(const run_plan *plan, run_result *result) { run_tcp(plan, result, 1); }
