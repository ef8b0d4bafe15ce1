/* Every function of distag.h beside shutdowns, releases and cancels: two workers, some threads that call anything, and
 * others that end the workers meanwhile. Each call returns with a status that its comment names, within its time; once
 * a worker is down all its futures are complete; destroy functions run exactly once; no handle is left. The threads are
 * cancelled (pthread_cancel) before their first call: none of them ends within a call.
 *
 * shutdown_stress [seconds [seed]]: rounds until the time is up. A round that does not end is reported with the call of
 * each thread. check_shutdown_stress.py checks that no function is missing here. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "capi/check.h"
#include "capi/support/local_round.h"

enum { kActors = 4, kMostFutures = 400, kMostReplies = 16 };

/* No call takes longer than its timeout and this, on the slowest machine under the slowest tool. */
static const int64_t kPatienceMs = 120000;

static int64_t now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* ---- what a call may answer ---- */

/* Any call of a worker that is being ended. A function that drops its reply answers REMOTE, one that fails 1234. */
#define ENDING DISTAG_OK, DISTAG_E_INVALID_STATE, DISTAG_E_CANCELLED, DISTAG_E_DISCONNECTED, DISTAG_E_DEADLINE
static const distag_status kState[] = {DISTAG_OK, DISTAG_E_INVALID_STATE, 0};
static const distag_status kFine[] = {DISTAG_OK, 0};
static const distag_status kNoKeys[] = {DISTAG_E_UNSUPPORTED, DISTAG_E_INVALID_STATE, 0};
static const distag_status kFound[] = {DISTAG_OK, DISTAG_E_INVALID_STATE, DISTAG_E_NOT_FOUND, 0};
static const distag_status kTimed[] = {DISTAG_OK, DISTAG_E_INVALID_STATE, DISTAG_E_NOT_FOUND, DISTAG_E_DEADLINE, 0};
static const distag_status kStart[] = {DISTAG_E_INVALID_STATE, 0, 0};
static const distag_status kCalled[] = {ENDING, DISTAG_E_REMOTE, DISTAG_E_NOT_FOUND, 1234, 0};
static const distag_status kPassed[] = {ENDING, DISTAG_E_GRAPH_FREED, DISTAG_E_INVALID_ARGUMENT,
                                        DISTAG_E_UNREACHED_SEND, 0};
static const distag_status kFetched[] = {ENDING, DISTAG_E_REMOTE, DISTAG_E_NOT_FOUND, DISTAG_E_UNSUPPORTED, 1234, 0};
static const distag_status kStepped[] = {ENDING, DISTAG_E_PEER_RESTARTED, DISTAG_E_INVALID_ARGUMENT, 0};
static const distag_status kMeshed[] = {ENDING, DISTAG_E_PEER_RESTARTED, DISTAG_E_DIVERGED, 0};
static const distag_status kLoaded[] = {ENDING, DISTAG_E_PEER_RESTARTED, DISTAG_E_DIVERGED, DISTAG_E_NOT_FOUND, 0};
static const distag_status kEnded[] = {DISTAG_OK, DISTAG_E_DEADLINE, 0};
static const distag_status kWaited[] = {ENDING,
                                        DISTAG_E_REMOTE,
                                        DISTAG_E_NOT_FOUND,
                                        DISTAG_E_UNSUPPORTED,
                                        DISTAG_E_GRAPH_FREED,
                                        DISTAG_E_INVALID_ARGUMENT,
                                        DISTAG_E_PEER_RESTARTED,
                                        DISTAG_E_UNREACHED_SEND,
                                        DISTAG_E_DIVERGED,
                                        1234,
                                        0};

/* ---- a thread that calls ---- */

typedef struct world world;
typedef struct actor {
  pthread_t thread;
  world *of;
  uint64_t random;
  _Atomic(const char *) doing;
  distag_error err;
  distag_future *futures[kMostFutures];
  size_t future_count;
} actor;

struct world {
  distag_worker *w[2];
  const char *name[2];
  int is_host[2];
  distag_context *context[2];
  distag_rref *rref[2];
  distag_tensor *param, *number_tensor;
  distag_optimizer *optimizer;
  distag_value *state;
  distag_value *number;
  atomic_int stop;
  atomic_int actions;
  actor actors[kActors];
};

static atomic_int given, destroyed, bad;
static atomic_int rounds;
static world *_Atomic shown;

static uint64_t below(actor *a, uint64_t limit) {
  a->random ^= a->random << 13;
  a->random ^= a->random >> 7;
  a->random ^= a->random << 17;
  return a->random % limit;
}

static void check_answer(actor *a, distag_status status, const distag_status *allowed, int64_t took, int line) {
  int is_allowed = status == allowed[0];
  for (const distag_status *s = allowed + 1; !is_allowed && *s != 0; ++s) is_allowed = *s == status;
  if (is_allowed && took <= kPatienceMs) return;
  atomic_fetch_add(&bad, 1);
  fprintf(stderr, "shutdown_stress.c:%d: %s answered %s (%s) after %d ms\n", line, atomic_load(&a->doing),
          distag_status_get_name(status), a->err.message, (int)took);
}

/* Any call; a clean error each, so that failures do not pass through. */
#define ASK(allowed, call)                                          \
  do {                                                              \
    const int64_t begun_ = now_ms();                                \
    a->err.code = DISTAG_OK;                                        \
    a->err.message[0] = 0;                                          \
    atomic_store(&a->doing, #call);                                 \
    const distag_status status_ = call;                             \
    check_answer(a, status_, allowed, now_ms() - begun_, __LINE__); \
  } while (0)

#define MUST(condition)                                                            \
  do {                                                                             \
    if (!(condition)) {                                                            \
      atomic_fetch_add(&bad, 1);                                                   \
      fprintf(stderr, "shutdown_stress.c:%d: not so: %s\n", __LINE__, #condition); \
    }                                                                              \
  } while (0)

/* Keeps a future, which may be NULL, until the end of the round. */
static void keep(actor *a, distag_future *future) {
  if (future == NULL) return;
  if (a->future_count == kMostFutures) {
    distag_future_release(future);
    return;
  }
  a->futures[a->future_count++] = future;
}

static void count_destroyed(void *user_data) {
  (void)user_data;
  atomic_fetch_add(&destroyed, 1);
}

static const char kTraceparent[] = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

static distag_call_options quick(actor *a) {
  distag_call_options options = DISTAG_CALL_OPTIONS_INIT;
  if (below(a, 2) == 0) options.traceparent = kTraceparent;
  options.timeout_ns = (int64_t)(1 + below(a, 50)) * DISTAG_MILLISECOND;
  options.label = "stress";
  return options;
}

/* ---- functions of the workers ---- */

static pthread_mutex_t reply_mutex = PTHREAD_MUTEX_INITIALIZER;
static distag_reply *replies[kMostReplies];

/* Takes a reply out of the drawer, or puts one in and takes what was there. */
static distag_reply *swap_reply(size_t place, distag_reply *reply) {
  pthread_mutex_lock(&reply_mutex);
  distag_reply *before = replies[place % kMostReplies];
  replies[place % kMostReplies] = reply;
  pthread_mutex_unlock(&reply_mutex);
  return before;
}

static distag_status echo(void *user_data, distag_invocation *invocation, distag_error *err) {
  (void)user_data;
  distag_value *arg = distag_invocation_get_arg(invocation, 0);
  return arg == NULL ? DISTAG_OK : distag_invocation_return(invocation, arg, err);
}

static distag_status look(void *user_data, distag_invocation *invocation, distag_error *err) {
  (void)user_data;
  distag_tensor *tensor = NULL;
  void *object = NULL;
  MUST(distag_invocation_get_worker(invocation) != NULL);
  MUST(distag_invocation_get_caller(invocation) != NULL);
  MUST(strcmp(distag_invocation_get_function(invocation), "look") == 0);
  const char *traceparent = distag_invocation_get_traceparent(invocation);
  MUST(traceparent == NULL || strcmp(traceparent, kTraceparent) == 0);
  distag_context_get_id(distag_invocation_get_context(invocation));
  for (size_t i = 0; i < distag_invocation_get_arg_count(invocation); ++i) {
    distag_invocation_get_tensor(invocation, i, &tensor, NULL);
    distag_invocation_get_object(invocation, i, "thing", &object, NULL);
  }
  for (int spins = 0; spins < 2000 && !distag_invocation_is_cancelled(invocation); ++spins) {
    if (distag_invocation_get_time_left(invocation) == 0) break;
  }
  return distag_error_set(err, 1234, "looked");
}

/* Calls the other worker, or this one, within the call. */
static distag_status nest(void *user_data, distag_invocation *invocation, distag_error *err) {
  distag_call_options options = DISTAG_CALL_OPTIONS_INIT;
  distag_value *result = NULL, *arg = distag_invocation_get_arg(invocation, 0);
  options.within = invocation;
  options.timeout_ns = 20 * DISTAG_MILLISECOND;
  const distag_status status = distag_call(distag_invocation_get_worker(invocation), NULL, user_data, "echo", &arg,
                                           arg != NULL, &options, &result, err);
  if (status == DISTAG_OK) distag_invocation_return(invocation, result, err);
  distag_value_release(result);
  return status;
}

static distag_status defer(void *user_data, distag_invocation *invocation, distag_error *err) {
  static atomic_uint place;
  (void)user_data;
  distag_reply *reply = NULL;
  const distag_status status = distag_invocation_defer(invocation, &reply, err);
  distag_reply_release(swap_reply(atomic_fetch_add(&place, 1), reply));
  return status;
}

static const char *const kFunctions[] = {"echo", "look", "nest", "defer", "neg", "offered"};

/* ---- actions ---- */

static void finish_a_reply(actor *a) {
  distag_reply *reply = swap_reply((size_t)below(a, kMostReplies), NULL);
  if (reply == NULL) return;
  distag_reply_retain(reply);
  distag_reply_is_cancelled(reply);
  distag_error failure = DISTAG_ERROR_INIT;
  distag_error_set(&failure, 1234, "finished so");
  const int fails = below(a, 2) == 0;
  ASK(kState, distag_reply_finish(reply, fails ? NULL : a->of->number, fails ? &failure : NULL, &a->err));
  distag_reply_release(reply);
  ASK(kStart, distag_reply_finish(reply, NULL, NULL, &a->err)); /* a second time */
  distag_reply_release(reply);
}

static void on_done(void *user_data, distag_future *future) {
  (void)user_data;
  MUST(distag_future_poll(future) == 1);
}

static distag_status go_on(void *user_data, distag_future *future, distag_value **out_value, distag_error *err) {
  (void)user_data;
  distag_value *value = NULL;
  const distag_status status = distag_future_get_value(future, &value, err);
  if (status == DISTAG_OK) distag_value_retain(value), *out_value = value;
  return status;
}

/* Everything that can be done to a future; takes it. */
static void use_future(actor *a, distag_future *future) {
  if (future == NULL) return;
  distag_value *value = NULL;
  distag_future *next = NULL;
  if (below(a, 2) == 0) {
    atomic_fetch_add(&given, 1);
    ASK(kState, distag_future_on_done(future, on_done, NULL, count_destroyed, &a->err));
  }
  if (below(a, 2) == 0) {
    atomic_fetch_add(&given, 1);
    ASK(kState, distag_future_then(future, go_on, NULL, count_destroyed, &next, &a->err));
  }
  if (below(a, 2) == 0) ASK(kState, distag_future_post(future, a->of->w[below(a, 2)], 1, &a->err));
  if (below(a, 4) == 0) distag_future_cancel(next != NULL && below(a, 2) == 0 ? next : future);
  if (below(a, 2) == 0) {
    distag_future *both[2] = {future, next};
    ASK(kWaited, distag_wait_all(both, next == NULL ? 1 : 2, 3 * DISTAG_MILLISECOND, &a->err));
  }
  if (below(a, 2) == 0) ASK(kWaited, distag_future_wait(future, 3 * DISTAG_MILLISECOND, &a->err));
  ASK(kWaited, distag_future_get_value(future, &value, &a->err));
  distag_future_retain(future);
  keep(a, future);
  distag_future_release(future);
  keep(a, next);
}

static void call(actor *a) {
  world *of = a->of;
  const size_t from = (size_t)below(a, 2), to = (size_t)below(a, 2);
  const char *function = kFunctions[below(a, 6)];
  distag_call_options options = quick(a);
  distag_value *args[1] = {of->number}, *result = NULL;
  distag_future *future = NULL;
  if (below(a, 3) == 0) args[0] = distag_rref_as_value(of->rref[from]);
  if (strcmp(function, "neg") == 0) args[0] = distag_tensor_as_value(of->param);
  if (below(a, 2) == 0) {
    ASK(kCalled, distag_call(of->w[from], NULL, of->name[to], function, args, 1, &options, &result, &a->err));
    distag_value_release(result);
  } else {
    ASK(kCalled, distag_call_async(of->w[from], NULL, of->name[to], function, args, 1, &options, &future, &a->err));
    use_future(a, future);
  }
}

static void refer(actor *a) {
  world *of = a->of;
  const size_t here = (size_t)below(a, 2);
  distag_call_options options = quick(a);
  distag_rref *made = NULL, *again = NULL;
  distag_value *value = NULL;
  distag_future *future = NULL;
  if (below(a, 2) == 0) {
    ASK(kState, distag_rref_create(of->w[here], of->number, &made, &a->err));
  } else {
    ASK(kCalled, distag_remote(of->w[here], NULL, of->name[below(a, 2)], kFunctions[below(a, 4)], &of->number, 1,
                               &options, &made, &a->err));
  }
  distag_rref *rref = made != NULL && below(a, 2) == 0 ? made : of->rref[here];
  ASK(kFetched, distag_rref_get_local(rref, &value, &a->err));
  ASK(kFetched, distag_value_get_rref(distag_rref_as_value(rref), &again, &a->err));
  MUST(distag_rref_get_owner(rref) != NULL && distag_rref_get_id(again) == distag_rref_get_id(rref));
  (void)(distag_rref_is_owner(rref) + distag_rref_is_confirmed(rref));
  distag_rref_retain(rref);
  if (below(a, 2) == 0) {
    value = NULL;
    ASK(kFetched, distag_rref_fetch(rref, NULL, &options, &value, &a->err));
    distag_value_release(value);
  } else {
    ASK(kFetched, distag_rref_fetch_async(rref, NULL, &options, &future, &a->err));
    use_future(a, future);
  }
  distag_rref_release(rref);
  distag_rref_release(made);
}

static void read_gradients(actor *a, distag_context *context, distag_tensor *x) {
  distag_gradients *gradients = NULL;
  distag_future *settled = NULL;
  ASK(kPassed, distag_context_settle_async(context, &settled, &a->err));
  use_future(a, settled);
  ASK(kPassed, distag_get_gradients(context, &gradients, &a->err));
  if (gradients == NULL) return;
  distag_gradients_retain(gradients);
  if (distag_gradients_get_count(gradients) > 0) {
    MUST(distag_gradients_get_tensor(gradients, 0) != NULL && distag_gradients_get_gradient(gradients, 0) != NULL);
  }
  (void)distag_gradients_find(gradients, x);
  distag_gradients_release(gradients);
  distag_gradients_release(gradients);
}

static void look_at_context(actor *a, distag_context *context) {
  distag_context_info info = DISTAG_CONTEXT_INFO_INIT;
  int32_t ranks[2];
  size_t count = 0;
  char text[256];
  distag_context_retain(context);
  (void)distag_context_get_id(context);
  ASK(kState, distag_context_get_info(context, &info, &a->err));
  ASK(kState, distag_context_copy_known_ranks(context, ranks, 2, &count, &a->err));
  ASK(kTimed, distag_context_copy_report(context, text, sizeof text, &count, &a->err));
  distag_context_release(context);
}

static void train(actor *a) {
  world *of = a->of;
  const size_t here = (size_t)below(a, 2);
  distag_call_options options = quick(a);
  distag_backward_options pass = DISTAG_BACKWARD_OPTIONS_INIT;
  distag_context *context = NULL;
  distag_tensor *y = NULL;
  distag_value *arg = distag_tensor_as_value(of->param), *result = NULL;
  distag_future *future = NULL;
  pass.mode = below(a, 4) == 0 ? DISTAG_BACKWARD_FAST : DISTAG_BACKWARD_SMART;
  pass.timeout_ns = 50 * DISTAG_MILLISECOND;
  if (below(a, 2) == 0) {
    ASK(kState, distag_context_create(of->w[here], &context, &a->err));
  } else {
    context = of->context[here];
    distag_context_retain(context);
  }
  if (context == NULL) return;
  ASK(kCalled, distag_call(of->w[here], context, of->name[below(a, 2)], "neg", &arg, 1, &options, &result, &a->err));
  if (result != NULL && distag_value_get_tensor(result, &y, NULL) == DISTAG_OK) {
    if (below(a, 2) == 0) {
      ASK(kPassed, distag_backward(context, &y, 1, &pass, &a->err));
    } else {
      ASK(kPassed, distag_backward_async(context, &y, 1, &pass, &future, &a->err));
      use_future(a, future);
    }
  }
  distag_value_release(result);
  read_gradients(a, context, of->param);
  look_at_context(a, context);
  distag_context_release(context);
}

static void optimize(actor *a) {
  world *of = a->of;
  const size_t here = (size_t)below(a, 2);
  distag_call_options options = quick(a);
  distag_value *parameters[1] = {distag_rref_as_value(of->rref[here])}, *state = NULL;
  distag_optimizer *made = NULL, *optimizer = of->optimizer;
  distag_future *future = NULL;
  int32_t ranks[2];
  size_t count = 0;
  double norm = 0;
  if (below(a, 3) == 0) {
    ASK(kStepped, distag_optimizer_create(of->w[here], "adam", parameters, 1, &made, &a->err));
    if (made != NULL) optimizer = made;
  }
  distag_context *context = of->context[made == NULL ? 0 : here];
  distag_optimizer_retain(optimizer);
  ASK(kStepped, distag_optimizer_set(optimizer, "lr", 0.001, &a->err));
  switch (below(a, 8)) {
    case 5:
      ASK(kStepped, distag_optimizer_clip_async(optimizer, context, 1, &options, &future, &a->err));
      use_future(a, future);
      break;
    case 6:
      ASK(kStepped, distag_optimizer_save_async(optimizer, &options, &future, &a->err));
      use_future(a, future);
      break;
    case 7:
      if (optimizer != of->optimizer) break;
      ASK(kStepped, distag_optimizer_load_async(optimizer, of->state, &options, &future, &a->err));
      use_future(a, future);
      break;
    case 0:
      ASK(kStepped, distag_optimizer_step(optimizer, context, &options, &a->err));
      break;
    case 1:
      ASK(kStepped, distag_optimizer_step_async(optimizer, context, &options, &future, &a->err));
      use_future(a, future);
      break;
    case 2:
      ASK(kStepped, distag_optimizer_clip(optimizer, context, 1, &options, &norm, &a->err));
      break;
    case 3:
      ASK(kStepped, distag_optimizer_save(optimizer, below(a, 2) == 0 ? &options : NULL, &state, &a->err));
      distag_value_release(state);
      break;
    default:
      if (optimizer == of->optimizer) ASK(kStepped, distag_optimizer_load(optimizer, of->state, &options, &a->err));
  }
  ASK(kStepped, distag_optimizer_copy_stepped_ranks(optimizer, ranks, 2, &count, &a->err));
  distag_optimizer_release(optimizer);
  distag_optimizer_release(made);
}

static void look_at_worker(actor *a, distag_worker *worker) {
  distag_member member = DISTAG_MEMBER_INIT;
  distag_stats stats = DISTAG_STATS_INIT;
  int32_t ranks[2];
  size_t count = 0;
  char text[256];
  MUST(distag_worker_get_name(worker) != NULL);
  (void)(distag_worker_get_rank(worker) + distag_worker_get_world_size(worker));
  (void)distag_worker_get_fd(worker);
  ASK(kFound, distag_worker_get_member(worker, 1, &member, &a->err));
  ASK(kFound, distag_worker_get_member_by_name(worker, "s0", &member, &a->err));
  ASK(kFound, distag_worker_copy_ranks(worker, "", ranks, 2, &count, &a->err));
  ASK(kState, distag_worker_get_stats(worker, &stats, &a->err));
  const distag_trace_options nowhere = {sizeof nowhere, 0, 0, "/nowhere"};
  uint64_t span = 0;
  ASK(kStart, distag_worker_start_trace(worker, &nowhere, &a->err)); /* a thread of its own is not what is stressed */
  ASK(kState, distag_trace_begin(worker, "look", &span, &a->err));
  distag_trace_end(worker, span);
  ASK(kTimed, distag_worker_stop_trace(worker, &a->err));
  ASK(kState, distag_worker_copy_metrics(worker, text, sizeof text, &count, &a->err));
  ASK(kTimed, distag_worker_copy_report(worker, text, sizeof text, &count, &a->err));
  ASK(kTimed, distag_worker_copy_group_report(worker, DISTAG_SECOND / 50, text, sizeof text, &count, &a->err));
  distag_key_pair keys = DISTAG_KEY_PAIR_INIT;
  const char *const peer = "s1", *const key = keys.public_key;
  ASK(kFine, distag_security_create_keys(&keys, &a->err));
  ASK(kNoKeys, distag_worker_set_peers(worker, &peer, &key, 1, &a->err));
}

static void use_worker(actor *a) {
  world *of = a->of;
  const size_t which = (size_t)below(a, 2);
  distag_worker *worker = of->w[which];
  distag_future *future = NULL;
  distag_value *values = NULL;
  char name[32];
  distag_worker_retain(worker);
  switch (below(a, 5)) {
    case 0:
      look_at_worker(a, worker);
      break;
    case 1:
      snprintf(name, sizeof name, "f%d", (int)below(a, 3));
      atomic_fetch_add(&given, 1);
      ASK(kState, distag_worker_register(worker, name, echo, NULL, count_destroyed, NULL, &a->err));
      ASK(kTimed, distag_worker_unregister(worker, name, 3 * DISTAG_MILLISECOND, &a->err));
      break;
    case 2:
      ASK(kStart, distag_worker_start(worker, DISTAG_SECOND, &a->err));
      a->err.code = DISTAG_OK;
      distag_worker_start_async(worker, DISTAG_SECOND, &future, &a->err);
      if (future != NULL) ASK(kStart, distag_future_wait(future, DISTAG_FOREVER, &a->err));
      keep(a, future);
      break;
    case 3:
      ASK(kCalled, distag_worker_all_gather_async(worker, of->number, NULL, 0,
                                                  (int64_t)below(a, 4) * DISTAG_MILLISECOND, &future, &a->err));
      use_future(a, future);
      break;
    default:
      ASK(kCalled, distag_worker_all_gather(worker, of->number, NULL, 0, (int64_t)below(a, 4) * DISTAG_MILLISECOND,
                                            &values, &a->err));
      distag_value_release(values);
  }
  distag_worker_release(worker);
}

/* Finishes what it takes, once or not at all. */
static void take_event(actor *a, distag_worker *worker) {
  distag_event event = DISTAG_EVENT_INIT;
  const int64_t timeout = (int64_t)below(a, 3) * DISTAG_MILLISECOND;
  ASK(kTimed, distag_worker_take_event(worker, timeout, &event, &a->err));
  if (event.kind == DISTAG_EVENT_FUTURE) keep(a, event.future);
  if (event.kind != DISTAG_EVENT_CALL || below(a, 4) == 0) return;
  distag_value *arg = distag_invocation_get_arg(event.invocation, 0);
  ASK(kState, distag_invocation_finish(event.invocation, arg, NULL, &a->err));
}

static void poll(actor *a) {
  size_t done = 0;
  if (below(a, 2) == 0) take_event(a, a->of->w[below(a, 2)]);
  for (int i = 0; i < 2; ++i) {
    if (below(a, 8) == 0) ASK(kTimed, distag_worker_wait(a->of->w[i], DISTAG_MILLISECOND, &a->err));
    ASK(kState, distag_worker_poll(a->of->w[i], 0, DISTAG_MILLISECOND, &done, &a->err));
  }
}

/* Shuts down from a thread that acts, beside the others. */
static void shut_down(actor *a, distag_worker *worker) {
  const int64_t timeout = (int64_t)below(a, 30) * DISTAG_MILLISECOND;
  distag_value *report = NULL;
  distag_future *future = NULL;
  if (below(a, 2) == 0) {
    ASK(kEnded, distag_worker_shutdown(worker, timeout, &report, &a->err));
    distag_value_release(report);
  } else {
    ASK(kEnded, distag_worker_shutdown_async(worker, timeout, &future, &a->err));
    distag_future_cancel(future);
    if (below(a, 2) == 0) ASK(kEnded, distag_future_wait(future, timeout, &a->err));
    keep(a, future);
  }
}

static distag_status feed_numbers(void *user_data, uint64_t number, const int64_t *rows, size_t row_count,
                                  distag_value **out_batch, distag_error *err) {
  (void)user_data, (void)rows;
  const int64_t shape[] = {(int64_t)row_count, 2};
  distag_tensor *numbers = NULL;
  distag_full((double)number, DISTAG_FLOAT64, shape, 2, &numbers, err);
  *out_batch = distag_tensor_as_value(numbers);
  return err->code;
}

/* A loader of such a mesh. */
static void load(actor *a, distag_mesh *made) {
  const int64_t timeout = (int64_t)below(a, 5) * DISTAG_MILLISECOND;
  distag_loader_options options = DISTAG_LOADER_OPTIONS_INIT;
  distag_loader_info info = DISTAG_LOADER_INFO_INIT;
  distag_loader *loader = NULL;
  distag_value *batch = NULL;
  distag_future *future = NULL;
  options.mode = DISTAG_BATCH_ROWS;
  options.row_count = options.batch_rows = 4;
  options.epochs = DISTAG_FOREVER;
  options.shuffle = 1;
  ASK(kMeshed, distag_loader_create(made, feed_numbers, NULL, NULL, &options, &loader, &a->err));
  if (loader == NULL) return;
  ASK(kMeshed, distag_loader_next(loader, timeout, &batch, &a->err));
  distag_value_release(batch);
  batch = NULL;
  ASK(kMeshed, distag_loader_next_async(loader, timeout, &future, &a->err));
  use_future(a, future);
  ASK(kMeshed, distag_loader_save(loader, &batch, &a->err));
  ASK(kMeshed, distag_loader_get_info(loader, &info, &a->err));
  distag_value_release(batch);
  distag_loader_retain(loader);
  distag_loader_release(loader);
  distag_loader_release(loader);
}

/* A plan for a tensor on such a mesh. */
static void plan(actor *a, distag_mesh *made) {
  static const int64_t shape[] = {3, 2};
  const char *const name = "x", *const spec = "('axis0', None)";
  distag_plan_options options = DISTAG_PLAN_OPTIONS_INIT;
  distag_tensor *x = NULL;
  distag_plan *planned = NULL;
  size_t size = 0;
  ASK(kMeshed, distag_full(1, DISTAG_FLOAT64, shape, 2, &x, &a->err));
  options.names = options.patterns = &name;
  options.leaves = &x;
  options.specs = &spec;
  options.leaf_count = options.rule_count = 1;
  options.source = below(a, 2) == 0 ? -1 : 0;
  ASK(kMeshed, distag_plan_create(made, NULL, 0, &options, &planned, &a->err));
  if (planned != NULL && distag_plan_get_spec(planned, name) != NULL) {
    ASK(kMeshed, distag_plan_apply(planned, made, &a->err));
    ASK(kMeshed, distag_plan_copy_report(planned, NULL, 0, &size, &a->err));
    distag_plan_retain(planned);
    distag_plan_release(planned);
    distag_plan_release(planned);
  }
  distag_tensor_release(x);
}

/* Sharded tensors of a mesh that may be at its end, or whose other member does something else. */
static void shards(actor *a, distag_mesh *made) {
  static const char spec[] = "('axis0', None)";
  static const int64_t shape[] = {3, 2};
  const int64_t timeout = (int64_t)(1 + below(a, 5)) * DISTAG_MILLISECOND;
  distag_tensor *x = NULL, *whole = NULL, *local = NULL, *again = NULL;
  distag_context *context = NULL;
  distag_future *future = NULL;
  if (below(a, 2) == 0) {
    ASK(kMeshed, distag_full(1, DISTAG_FLOAT64, shape, 2, &x, &a->err));
  } else {
    ASK(kMeshed, distag_tensor_create_deferred(DISTAG_FLOAT64, shape, 2, NULL, &x, &a->err));
  }
  ASK(kMeshed, distag_tensor_mark_sharding(x, made, spec, -1, &a->err));
  if (distag_tensor_get_mesh(x) != NULL && distag_tensor_get_spec(x) != NULL) {
    ASK(kMeshed, distag_redistribute(x, "(None, None)", 0, &whole, &a->err));
    ASK(kMeshed, distag_tensor_to_local(x, NULL, &local, &a->err));
    if (below(a, 4) == 0) { /* nowhere, so that nothing is left */
      const char *const key = "x";
      distag_value *const item = distag_tensor_as_value(x);
      distag_value *map = NULL;
      ASK(kMeshed, distag_value_create_map(&key, &item, 1, &map, &a->err));
      ASK(kMeshed, distag_checkpoint_save(made, "/proc/none/of/these", map, timeout, &a->err));
      ASK(kLoaded, distag_checkpoint_load(made, "/proc/none/of/these", map, timeout, NULL, &a->err));
      ASK(kMeshed, distag_checkpoint_save_async(made, "/proc/none/of/these", map, timeout, &future, &a->err));
      use_future(a, future);
      future = NULL;
      ASK(kLoaded, distag_checkpoint_load_async(made, "/proc/none/of/these", map, timeout, &future, &a->err));
      use_future(a, future);
      future = NULL;
      distag_value_release(map);
    }
    if (local != NULL) ASK(kMeshed, distag_tensor_from_local(made, local, spec, shape, 2, NULL, &again, &a->err));
    distag_tensor_release(again);
    distag_tensor_release(local);
    distag_tensor_release(whole);
    whole = NULL;
    ASK(kMeshed, distag_tensor_gather(x, -1, timeout, &whole, &a->err));
    distag_tensor_release(whole);
    ASK(kMeshed, distag_tensor_gather_async(x, -1, timeout, &future, &a->err));
    use_future(a, future);
  }
  ASK(kMeshed, distag_context_create_joint(made, &context, &a->err));
  distag_context_release(context);
  distag_tensor_release(x);
}

/* A mesh of both workers; each actor runs the program of one: mostly no other member comes, or with another program. */
static void mesh(actor *a) {
  static const char spec[] = "('axis0', None)";
  static const int64_t shape[] = {3, 2};
  distag_worker *worker = a->of->w[below(a, 2)];
  distag_mesh_options options = DISTAG_MESH_OPTIONS_INIT;
  distag_collective_options call = DISTAG_COLLECTIVE_OPTIONS_INIT;
  distag_mesh_info info = DISTAG_MESH_INFO_INIT;
  distag_mesh_stats stats = DISTAG_MESH_STATS_INIT;
  distag_mesh *made = NULL, *line = NULL;
  distag_future *future = NULL;
  distag_tensor *y = NULL;
  int64_t offset[2], extent[2], replica = 0;
  size_t size = 0;
  char text[64];
  options.timeout_ns = (int64_t)(1 + below(a, 20)) * DISTAG_MILLISECOND;
  call.timeout_ns = (int64_t)(1 + below(a, 5)) * DISTAG_MILLISECOND;
  if (below(a, 2) == 0) {
    ASK(kMeshed, distag_mesh_create(worker, NULL, 0, NULL, NULL, 0, &options, &made, &a->err));
  } else {
    ASK(kMeshed, distag_mesh_create_async(worker, NULL, 0, NULL, NULL, 0, &options, &made, &future, &a->err));
    use_future(a, future);
  }
  if (made == NULL) return;
  distag_mesh_retain(made);
  distag_mesh_release(made);
  ASK(kMeshed, distag_mesh_get_info(made, &info, &a->err));
  ASK(kMeshed, distag_mesh_copy_box(made, spec, shape, 2, 0, offset, extent, &replica, &a->err));
  ASK(kMeshed, distag_mesh_copy_spec(made, spec, 2, DISTAG_SPEC_HLO, text, sizeof text, &size, &a->err));
  ASK(kMeshed, distag_visualize_sharding(made, spec, shape, 2, NULL, text, sizeof text, &size, &a->err));
  ASK(kMeshed, distag_mesh_open_line(made, "b", &line, &a->err));
  for (int i = (int)below(a, 3); i > 0; --i) {
    future = NULL;
    ASK(kMeshed, distag_collective_async(line == NULL ? made : line, DISTAG_ALL_REDUCE, NULL, a->of->number_tensor,
                                         &call, &future, &a->err));
    use_future(a, future);
    ASK(kMeshed, distag_collective(made, DISTAG_BROADCAST, "axis0", a->of->number_tensor, &call, &y, &a->err));
    distag_tensor_release(y);
    y = NULL;
  }
  if (below(a, 2) == 0) shards(a, made);
  if (below(a, 3) == 0) load(a, made);
  if (below(a, 3) == 0) plan(a, made);
  ASK(kMeshed, distag_mesh_get_stats(made, &stats, &a->err));
  ASK(kMeshed, distag_mesh_copy_report(made, text, sizeof text, &size, &a->err));
  distag_mesh_release(line);
  distag_mesh_release(made);
}

static void act(actor *a) {
  switch (below(a, 11)) {
    case 10:
      mesh(a);
      break;
    case 0:
      if (local_round(a->random) != 0) atomic_fetch_add(&bad, 1);
      break;
    case 1:
      finish_a_reply(a);
      break;
    case 2:
    case 3:
      refer(a);
      break;
    case 4:
      train(a);
      break;
    case 5:
      optimize(a);
      break;
    case 6:
      use_worker(a);
      break;
    default:
      call(a);
  }
  poll(a);
}

static void *run_actor(void *user_data) {
  actor *a = user_data;
  pthread_cancel(pthread_self());
  while (!atomic_load(&a->of->stop)) {
    act(a);
    atomic_fetch_add(&a->of->actions, 1);
  }
  atomic_store(&a->doing, "(over)");
  pthread_testcancel();
  return NULL;
}

/* ---- a round ---- */

static void make_workers(world *of, actor *a) {
  static char rendezvous[64];
  distag_future *started[2] = {NULL};
  snprintf(rendezvous, sizeof rendezvous, "inproc://stress-%d", atomic_load(&rounds));
  const int is_open = below(a, 2) == 0;
  for (int i = 0; i < 2; ++i) {
    distag_worker_options options = DISTAG_WORKER_OPTIONS_INIT;
    of->name[i] = i == 0 ? "s0" : "s1";
    of->is_host[i] = below(a, 4) == 0;
    options.executor = of->is_host[i] ? DISTAG_EXECUTOR_HOST : DISTAG_EXECUTOR_POOL;
    options.rank = i;
    options.world_size = is_open ? -1 : 2;
    options.thread_count = 1 + (uint32_t)below(a, 2);
    options.name = of->name[i];
    options.rendezvous = rendezvous;
    options.call_timeout_ns = 100 * DISTAG_MILLISECOND;
    options.destroy = count_destroyed;
    atomic_fetch_add(&given, 1 + 4);
    ASK(kState, distag_worker_create(&options, &of->w[i], &a->err));
    ASK(kState, distag_worker_register(of->w[i], "echo", echo, NULL, count_destroyed, NULL, &a->err));
    ASK(kState, distag_worker_register(of->w[i], "look", look, NULL, count_destroyed, NULL, &a->err));
    ASK(kState, distag_worker_register(of->w[i], "nest", nest, i == 0 ? "s1" : "s0", count_destroyed, NULL, &a->err));
    ASK(kState, distag_worker_register(of->w[i], "defer", defer, NULL, count_destroyed, NULL, &a->err));
    ASK(kState, distag_worker_offer(of->w[i], "offered", 1, NULL, &a->err));
    ASK(kState, distag_worker_start_async(of->w[i], 60 * DISTAG_SECOND, &started[i], &a->err));
  }
  ASK(kFine, distag_wait_all(started, 2, DISTAG_FOREVER, &a->err));
  for (int i = 0; i < 2; ++i) distag_future_release(started[i]);
}

static void make_values(world *of, actor *a) {
  ASK(kFine, distag_value_create_int64(42, &of->number, &a->err));
  ASK(kFine, distag_ones(DISTAG_FLOAT64, NULL, 0, &of->param, &a->err));
  ASK(kFine, distag_tensor_set_requires_grad(of->param, 1, &a->err));
  ASK(kFine, distag_ones(DISTAG_FLOAT64, NULL, 0, &of->number_tensor, &a->err));
  distag_value *parameter = distag_tensor_as_value(of->param);
  for (int i = 0; i < 2; ++i) {
    ASK(kFine, distag_context_create(of->w[i], &of->context[i], &a->err));
    ASK(kFine, distag_rref_create(of->w[i], parameter, &of->rref[i], &a->err));
  }
  ASK(kFine, distag_optimizer_create(of->w[0], "sgd", &parameter, 1, &of->optimizer, &a->err));
  ASK(kFine, distag_optimizer_save(of->optimizer, NULL, &of->state, &a->err));
}

/* Ends the workers beside the actors, several times over; or leaves that to their last release. 1: they are down. */
static int end_workers(world *of, actor *a) {
  const int until = (int)below(a, 200);
  while (atomic_load(&of->actions) < until) sched_yield();
  const int by_release = below(a, 5) == 0 && !of->is_host[0] && !of->is_host[1];
  if (by_release || below(a, 2) == 0) atomic_store(&of->stop, 1);
  if (by_release) return 0;
  for (int i = 0; i < 3; ++i) shut_down(a, of->w[below(a, 2)]);
  for (int i = 0; i < 2; ++i) {
    const int64_t begun = now_ms();
    while (distag_worker_shutdown(of->w[i], 20 * DISTAG_MILLISECOND, NULL, &a->err) != DISTAG_OK) {
      MUST(a->err.code == DISTAG_E_DEADLINE && now_ms() - begun < kPatienceMs);
      a->err.code = DISTAG_OK;
    }
  }
  /* For a while they act on workers that are down. */
  const int more = atomic_load(&of->actions) + 20;
  while (!atomic_load(&of->stop) && atomic_load(&of->actions) < more) sched_yield();
  atomic_store(&of->stop, 1);
  return 1;
}

static void release_replies(void) {
  for (size_t i = 0; i < kMostReplies; ++i) distag_reply_release(swap_reply(i, NULL));
}

static void release_values(world *of) {
  release_replies();
  for (int i = 0; i < 2; ++i) {
    distag_context_release(of->context[i]);
    distag_rref_release(of->rref[i]);
  }
  distag_optimizer_release(of->optimizer);
  distag_value_release(of->state);
  distag_value_release(of->number);
  distag_tensor_release(of->param);
  distag_tensor_release(of->number_tensor);
}

/* Futures of workers that are down are complete; those of released workers soon are. */
static void release_futures(world *of, int are_down) {
  for (int t = 0; t < kActors; ++t) {
    actor *a = &of->actors[t];
    for (size_t i = 0; i < a->future_count; ++i) {
      const int64_t begun = now_ms();
      while (!are_down && !distag_future_poll(a->futures[i]) && now_ms() - begun < kPatienceMs) sched_yield();
      MUST(distag_future_poll(a->futures[i]) == 1);
      distag_future_release(a->futures[i]);
    }
  }
}

static void run_round(uint64_t seed) {
  world *of = calloc(1, sizeof *of);
  actor self = {.of = of, .random = seed | 1, .err = DISTAG_ERROR_INIT};
  actor *a = &self;
  atomic_store(&a->doing, "(begin)");
  make_workers(of, a);
  make_values(of, a);
  for (int t = 0; t < kActors; ++t) {
    of->actors[t].of = of;
    of->actors[t].random = (seed + 977u * (uint64_t)(t + 1)) | 1;
    of->actors[t].err.struct_size = sizeof(distag_error);
    atomic_store(&of->actors[t].doing, "(begin)");
  }
  atomic_store(&shown, of);
  for (int t = 0; t < kActors; ++t) pthread_create(&of->actors[t].thread, NULL, run_actor, &of->actors[t]);
  const int are_down = end_workers(of, a);
  for (int t = 0; t < kActors; ++t) {
    void *end = NULL;
    pthread_join(of->actors[t].thread, &end);
    MUST(end == PTHREAD_CANCELED && strcmp(atomic_load(&of->actors[t].doing), "(over)") == 0);
  }
  for (int i = 0; i < 2; ++i) distag_worker_release(of->w[i]);
  for (size_t i = 0; i < self.future_count; ++i) distag_future_release(self.futures[i]);
  release_values(of);
  release_futures(of, are_down);
  const int64_t begun = now_ms();
  /* A function of a worker that was released may still run, and put its reply into the drawer. */
  while (distag_get_handle_count() != 0 && now_ms() - begun < kPatienceMs) {
    release_replies();
    sched_yield();
  }
  MUST(distag_get_handle_count() == 0);
  MUST(distag_get_misuse_count() == 0);
  while (atomic_load(&destroyed) != atomic_load(&given) && now_ms() - begun < kPatienceMs) sched_yield();
  MUST(atomic_load(&destroyed) == atomic_load(&given));
  MUST(local_round_destroyed() == local_round_given());
  atomic_store(&shown, NULL);
  atomic_fetch_add(&rounds, 1);
  free(of);
}

/* A round that does not end: the program ends here, so it says what it can. */
static void on_alarm(int number) {
  world *of = atomic_load(&shown);
  (void)number;
  fprintf(stderr, "round %d does not end\n", atomic_load(&rounds));
  for (int t = 0; of != NULL && t < kActors; ++t) fprintf(stderr, "  %s\n", atomic_load(&of->actors[t].doing));
  abort();
}

int main(int argc, char **argv) {
  const int64_t until = now_ms() + (argc > 1 ? atoi(argv[1]) : 12) * (int64_t)1000;
  uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 0) : (uint64_t)now_ms();
  fprintf(stderr, "seed %" PRIu64 "\n", seed);
  signal(SIGALRM, on_alarm);
  while (now_ms() < until && atomic_load(&bad) == 0) {
    alarm((unsigned)(3 * kPatienceMs / 1000));
    run_round(seed += 0x9e3779b97f4a7c15u);
  }
  alarm(0);
  fprintf(stderr, "%d rounds\n", atomic_load(&rounds));
  check_failures += atomic_load(&bad);
  return check_end();
}
