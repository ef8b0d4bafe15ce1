#include "shortage/group.h"

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

distag_worker *make_worker_with(run_result *result, distag_worker_options *options) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_worker *worker = NULL;
  options->world_size = 2;
  options->name = options->rank == 0 ? "w0" : "w1";
  options->thread_count = 2;
  options->call_timeout_ns = kCallTime;
  options->lease_ns = kLease;
  for (int tries = 0; worker == NULL && tries < kMostTries; ++tries) {
    if (RUN(result, distag_worker_create(options, &worker, &err)) &&
        !(RUN(result, distag_worker_register(worker, "square", square, NULL, NULL, NULL, &err)) &&
          RUN(result, distag_worker_register(worker, "parameter", parameter, NULL, NULL, NULL, &err)))) {
      distag_worker_release(worker);
      worker = NULL;
    }
  }
  return worker;
}

distag_worker *make_worker(run_result *result, int32_t rank, const char *rendezvous, const char *bind,
                           distag_executor_type executor) {
  distag_worker_options options = DISTAG_WORKER_OPTIONS_INIT;
  options.rank = rank;
  options.rendezvous = rendezvous;
  options.bind = bind;
  options.executor = executor;
  return make_worker_with(result, &options);
}

int run_each(run_result *result, operation begin, const char *name, distag_worker **workers, int count, int64_t timeout,
             outcome_check check) {
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
      distag_status status = DISTAG_E_OUT_OF_MEMORY;
      int is_complete = 0;
      result->doing = "distag_wait_all";
      for (int waits = 0; waits < kMostTries; ++waits) {
        err.code = DISTAG_OK;
        status = distag_wait_all(&futures[i], 1, patience, &err);
        is_complete = distag_future_poll(futures[i]);
        /* Without memory for the wait itself, and where it ends right after a wait in vain, it is waited for again. */
        if (status != DISTAG_E_OUT_OF_MEMORY && !(status == DISTAG_E_DEADLINE && is_complete)) break;
      }
      if (!is_complete) {
        if (patience != 0 || status != DISTAG_E_DEADLINE) run_note(result, "distag_wait_all", status, &err);
        continue;
      }
      is_done[i] = run_note(result, name, status, &err) && (check == NULL || check(result, futures[i]));
      distag_future_release(futures[i]);
      futures[i] = NULL;
    }
    for (int i = 0; i < count; ++i) left += !is_done[i];
    if (left == 0 || result->late > 2) break;
  }
  for (int i = 0; i < count; ++i) distag_future_release(futures[i]);
  return is_done[0] && (count < 2 || is_done[1]);
}

int start_both(run_result *result, distag_worker **workers) {
  return workers[0] != NULL && workers[1] != NULL &&
         run_each(result, distag_worker_start_async, "distag_worker_start_async", workers, 2, kStartTime, NULL);
}

void stop_both(run_result *result, distag_worker **workers) {
  run_each(result, distag_worker_shutdown_async, "distag_worker_shutdown_async", workers, 2, kShutdownTime, NULL);
}

void release_both(run_result *result, distag_worker **workers) {
  for (int i = 0; i < 2; ++i) {
    distag_error err = DISTAG_ERROR_INIT;
    if (workers[i] != NULL) RUN(result, distag_worker_shutdown(workers[i], kShutdownTime, NULL, &err));
    distag_worker_release(workers[i]);
  }
  result->handles = (long long)distag_get_handle_count();
}

int await_future(run_result *result, const char *name, distag_future *future) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_status status = DISTAG_E_OUT_OF_MEMORY;
  if (future == NULL) return 0;
  result->doing = name;
  for (int waits = 0; status == DISTAG_E_OUT_OF_MEMORY && waits < kMostTries; ++waits) {
    err.code = DISTAG_OK;
    status = distag_future_wait(future, kCallTime + DISTAG_SECOND, &err);
    if (distag_future_poll(future)) break;
  }
  return run_note(result, name, status, &err);
}
