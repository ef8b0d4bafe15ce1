/* The asynchronous twins: gatherings, the settling of a context, and what an optimizer does, each by its future. */
#include "shortage/group.h"

/* ---- gatherings ---- */

static distag_status begin_gather(distag_worker *worker, int64_t timeout, distag_future **out_future,
                                  distag_error *err) {
  distag_value *mine = NULL;
  if (distag_value_create_int64(10 + distag_worker_get_rank(worker), &mine, err) == DISTAG_OK) {
    distag_worker_all_gather_async(worker, mine, NULL, 0, timeout, out_future, err);
  }
  distag_value_release(mine);
  return err->code;
}

static int check_gathered(run_result *result, distag_future *future) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_value *all = NULL;
  int64_t items[2] = {0, 0};
  size_t count = 0;
  int tries = 0;
  /* The gathering itself went well: only the look at its values is repeated. */
  while (!(RUN(result, distag_future_get_value(future, &all, &err)) &&
           RUN(result, distag_value_copy_int64s(all, items, 2, &count, &err)))) {
    if (++tries == kMostTries) return 0;
  }
  if (count != 2) run_note_wrong(result, "gathered", (double)count, 2);
  for (int i = 0; i < 2; ++i) {
    if (items[i] != 10 + i) run_note_wrong(result, "gathered", (double)items[i], 10 + i);
  }
  return 1;
}

/* ---- a pass and a step ---- */

typedef struct training {
  distag_worker *worker;
  distag_context *context;
  distag_rref *rref;
  distag_value *fetched;
  distag_optimizer *optimizer;
  distag_future *futures[7];
  int count; /* of futures */
} training;

/* Begins an operation by a call that writes its future to `*next`, and waits for it. */
#define RUN_ASYNC(result, t, call) \
  ((next = &(t)->futures[(t)->count++], RUN(result, call)) && await_future(result, #call, *next))

static int fetch(run_result *result, training *t, distag_tensor **out_w) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_future **next = NULL;
  distag_value *fetched = NULL;
  return RUN(result, distag_remote(t->worker, NULL, "w1", "parameter", NULL, 0, NULL, &t->rref, &err)) &&
         RUN_ASYNC(result, t, distag_rref_fetch_async(t->rref, t->context, NULL, next, &err)) &&
         RUN(result, distag_future_get_value(*next, &fetched, &err)) &&
         RUN(result, distag_value_get_tensor(fetched, out_w, &err));
}

/* The gradient of sum(w^2) is 2 w = [10 12], at the worker that owns w. */
static int differentiate(run_result *result, training *t, distag_tensor *w) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_future **next = NULL;
  distag_tensor *square = NULL, *loss = NULL;
  const int is_ok = RUN(result, distag_mul(w, w, &square, &err)) &&
                    RUN(result, distag_sum(square, NULL, 0, 0, &loss, &err)) &&
                    RUN_ASYNC(result, t, distag_backward_async(t->context, &loss, 1, NULL, next, &err)) &&
                    RUN_ASYNC(result, t, distag_context_settle_async(t->context, next, &err));
  distag_tensor_release(loss);
  distag_tensor_release(square);
  return is_ok;
}

/* A clip that changes nothing tells the norm, however often it is repeated. */
static int clip_and_step(run_result *result, training *t) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_future **next = NULL;
  distag_value *norm = NULL, *state = NULL;
  distag_value *const parameters[1] = {distag_rref_as_value(t->rref)};
  double squared = 0;
  const int is_clipped =
      RUN(result, distag_optimizer_create(t->worker, "adam", parameters, 1, &t->optimizer, &err)) &&
      RUN_ASYNC(result, t, distag_optimizer_clip_async(t->optimizer, t->context, 1000, NULL, next, &err)) &&
      RUN(result, distag_future_get_value(*next, &norm, &err)) &&
      RUN(result, distag_value_get_float64(norm, &squared, &err));
  if (!is_clipped) return 0;
  squared *= squared;
  if (squared < 243.999 || squared > 244.001) run_note_wrong(result, "norm squared", squared, 244);
  return RUN_ASYNC(result, t, distag_optimizer_step_async(t->optimizer, t->context, NULL, next, &err)) &&
         RUN_ASYNC(result, t, distag_optimizer_save_async(t->optimizer, NULL, next, &err)) &&
         RUN(result, distag_future_get_value(*next, &state, &err)) &&
         RUN_ASYNC(result, t, distag_optimizer_load_async(t->optimizer, state, NULL, next, &err));
}

static int train_once(run_result *result, distag_worker *worker) {
  distag_error err = DISTAG_ERROR_INIT;
  training t = {0};
  distag_tensor *w = NULL;
  t.worker = worker;
  const int is_ok = RUN(result, distag_context_create(worker, &t.context, &err)) && fetch(result, &t, &w) &&
                    differentiate(result, &t, w) && clip_and_step(result, &t);
  distag_optimizer_release(t.optimizer);
  for (int i = 0; i < t.count; ++i) distag_future_release(t.futures[i]);
  distag_rref_release(t.rref);
  distag_context_release(t.context);
  return is_ok;
}

void run_twins(const run_plan *plan, run_result *result) {
  distag_worker *workers[2] = {NULL, NULL};
  int tries = 0;
  allocations_count_from_here(&plan->missing);
  for (int i = 0; i < 2; ++i) workers[i] = make_worker(result, i, "inproc://twins", NULL, DISTAG_EXECUTOR_POOL);
  if (start_both(result, workers)) {
    run_each(result, begin_gather, "distag_worker_all_gather_async", workers, 2, kCallTime, check_gathered);
    while (tries < kMostTries && result->late < 3 && !train_once(result, workers[0])) ++tries;
    if (tries == kMostTries) run_note_wrong(result, "tries", tries, 0);
    run_each(result, begin_gather, "distag_worker_all_gather_async", workers, 2, kCallTime, check_gathered);
    stop_both(result, workers);
  }
  result->allocations = allocations_stop();
  release_both(result, workers);
}
