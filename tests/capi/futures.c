/* Futures made of futures: values and failures that pass along, chains, cancels, callbacks that call the library. */
#include <pthread.h>
#include <stdatomic.h>

#include "capi/check.h"
#include "capi/support/group.h"

enum { kLong = 10000 };

static distag_worker *w0, *w1;
static atomic_int destroyed, ran;
static _Atomic(distag_reply *) kept_reply;
static distag_future *chain[kLong];

static void count_destroy(void *user_data) { atomic_fetch_add((atomic_int *)user_data, 1); }

static distag_status deferring(void *user_data, distag_invocation *invocation, distag_error *err) {
  distag_reply *reply = NULL;
  (void)user_data;
  if (distag_invocation_defer(invocation, &reply, err) != DISTAG_OK) return err->code;
  atomic_store(&kept_reply, reply);
  return DISTAG_OK;
}

static distag_status echo(void *user_data, distag_invocation *invocation, distag_error *err) {
  (void)user_data;
  return distag_invocation_return(invocation, distag_invocation_get_arg(invocation, 0), err);
}

/* Begins a call that is answered by `*out_reply` alone. */
static distag_future *begin(distag_reply **out_reply) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_future *future = NULL;
  atomic_store(&kept_reply, NULL);
  CHECK_OK(distag_call_async(w0, NULL, "w1", "deferring", NULL, 0, NULL, &future, &err));
  while ((*out_reply = atomic_load(&kept_reply)) == NULL) {
  }
  return future;
}

static void finish(distag_reply *reply, int64_t whole) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_value *value = NULL;
  CHECK_OK(distag_value_create_int64(whole, &value, &err));
  CHECK_OK(distag_reply_finish(reply, value, NULL, &err));
  distag_value_release(value);
  distag_reply_release(reply);
}

static void fail_reply(distag_reply *reply, distag_status status, const char *text) {
  distag_error err = DISTAG_ERROR_INIT, told = DISTAG_ERROR_INIT;
  distag_error_set(&told, status, text);
  CHECK_OK(distag_reply_finish(reply, NULL, &told, &err));
  distag_reply_release(reply);
}

static int64_t whole_of(distag_future *future) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_value *value = NULL;
  int64_t whole = -1;
  CHECK_OK(distag_future_wait(future, 120 * DISTAG_SECOND, &err));
  CHECK_OK(distag_future_get_value(future, &value, &err));
  CHECK_OK(distag_value_get_int64(value, &whole, &err));
  return whole;
}

/* Returns the value plus one, or the failure as it is. */
static distag_status add_one(void *user_data, distag_future *future, distag_value **out_value, distag_error *err) {
  distag_value *value = NULL;
  int64_t whole = 0;
  (void)user_data;
  CHECK(distag_future_poll(future) == 1 && *out_value == NULL && err->code == DISTAG_OK);
  atomic_fetch_add(&ran, 1);
  distag_future_get_value(future, &value, err);
  distag_value_get_int64(value, &whole, err);
  if (err->code != DISTAG_OK) return err->code;
  return distag_value_create_int64(whole + 1, out_value, err);
}

/* Returns 100 if the future before has failed with 1500. */
static distag_status mend(void *user_data, distag_future *future, distag_value **out_value, distag_error *err) {
  distag_error seen = DISTAG_ERROR_INIT;
  (void)user_data;
  CHECK_INT(distag_future_wait(future, 0, &seen), 1500);
  return distag_value_create_int64(100, out_value, err);
}

static distag_status give_nothing(void *user_data, distag_future *future, distag_value **out_value, distag_error *err) {
  (void)user_data;
  (void)future;
  (void)out_value;
  (void)err;
  return DISTAG_OK;
}

/* Fails, although it wrote a value, which must not leak. */
static distag_status refuse(void *user_data, distag_future *future, distag_value **out_value, distag_error *err) {
  (void)user_data;
  (void)future;
  distag_value_create_int64(5, out_value, err);
  return distag_error_set(err, 1700, "not with me");
}

static distag_status write_rubbish(void *user_data, distag_future *future, distag_value **out_value,
                                   distag_error *err) {
  (void)user_data;
  (void)err;
  *out_value = (distag_value *)future;
  return DISTAG_OK;
}

static distag_future *then(distag_future *future, distag_future_continuation continuation) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_future *next = NULL;
  CHECK_OK(distag_future_then(future, continuation, &destroyed, count_destroy, &next, &err));
  return next;
}

static void release_all(distag_future **futures, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    distag_future_release(futures[i]);
    futures[i] = NULL;
  }
}

static void values_and_failures(void) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_value *value = NULL;
  distag_reply *reply = NULL;
  distag_future *f[5] = {NULL};
  atomic_store(&destroyed, 0);

  f[0] = begin(&reply);
  f[1] = then(f[0], add_one);
  f[2] = then(f[1], add_one);
  CHECK_INT(distag_future_poll(f[2]), 0);
  CHECK_INT(atomic_load(&ran), 0);
  finish(reply, 40);
  CHECK_INT(whole_of(f[2]), 42);
  CHECK_INT(whole_of(f[1]), 41);
  CHECK_INT(atomic_load(&destroyed), 2); /* before the next one is complete */
  f[3] = then(f[2], add_one);            /* of a complete future */
  CHECK_INT(whole_of(f[3]), 43);
  f[4] = then(f[3], give_nothing);
  CHECK_OK(distag_future_wait(f[4], DISTAG_FOREVER, &err));
  CHECK_OK(distag_future_get_value(f[4], &value, &err));
  CHECK_INT(distag_value_get_kind(value), DISTAG_VALUE_NULL);
  release_all(f, 5);

  f[0] = begin(&reply); /* a failure goes through, and can be mended */
  f[1] = then(f[0], add_one);
  f[2] = then(f[1], mend);
  fail_reply(reply, 1500, "badly");
  CHECK_INT(whole_of(f[2]), 100);
  CHECK_FAILS(distag_future_wait(f[1], DISTAG_FOREVER, &err), 1500, "badly");
  CHECK_INT(err.origin_rank, 1);
  CHECK_INT(err.flags, DISTAG_ERROR_MAY_HAVE_RUN);
  f[3] = then(f[2], refuse); /* and what a continuation fails with */
  f[4] = then(f[3], add_one);
  CHECK_FAILS(distag_future_wait(f[4], DISTAG_FOREVER, &err), 1700, "not with me");
  release_all(f, 5);

  f[0] = begin(&reply);
  finish(reply, 1);
  f[1] = then(f[0], write_rubbish);
  CHECK_FAILS(distag_future_wait(f[1], DISTAG_FOREVER, &err), DISTAG_E_INVALID_ARGUMENT, "value");
  release_all(f, 2);
}

static void first_error(void) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_reply *slow = NULL, *reply = NULL;
  distag_future *f[4] = {NULL};
  f[0] = begin(&slow);
  f[1] = then(f[0], add_one);
  f[2] = begin(&reply);
  f[3] = then(f[2], refuse);
  finish(reply, 1);
  CHECK_FAILS(distag_wait_all(f, 4, DISTAG_FOREVER, &err), 1700, "not with me");
  CHECK_INT(distag_future_poll(f[1]), 0); /* the others go on */
  finish(slow, 1);
  CHECK_OK(distag_wait_all(f, 3, DISTAG_FOREVER, &err));
  CHECK_INT(whole_of(f[1]), 2);
  release_all(f, 4);
}

static void cancels(void) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_reply *reply = NULL;
  distag_future *f[3] = {NULL};
  const int before = atomic_load(&destroyed), ran_before = atomic_load(&ran);
  f[0] = begin(&reply);
  f[1] = then(f[0], add_one);
  f[2] = then(f[1], add_one);
  distag_future_cancel(f[2]);
  CHECK_FAILS(distag_future_wait(f[2], DISTAG_FOREVER, &err), DISTAG_E_CANCELLED, "then: cancelled by the caller");
  CHECK_FAILS(distag_future_wait(f[0], DISTAG_FOREVER, &err), DISTAG_E_CANCELLED, "(rank 1): cancelled by the caller");
  CHECK(strncmp(err.message, "call \"", 6) == 0);
  while (distag_reply_is_cancelled(reply) == 0) { /* the callee learns of it */
  }
  while (atomic_load(&destroyed) < before + 2) {
  }
  CHECK_INT(atomic_load(&ran), ran_before);
  distag_reply_release(reply);
  release_all(f, 3);
}

/* Waiting for a value of its own that a call makes: the error names the call, its function and its worker. */
static void cancels_a_fetch_at_the_owner(void) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_reply *reply = NULL;
  distag_rref *rref = NULL;
  distag_future *fetch = NULL;
  atomic_store(&kept_reply, NULL);
  CHECK_OK(distag_remote(w1, NULL, "w1", "deferring", NULL, 0, NULL, &rref, &err));
  while ((reply = atomic_load(&kept_reply)) == NULL) {
  }
  CHECK_OK(distag_rref_fetch_async(rref, NULL, NULL, &fetch, &err));
  distag_future_cancel(fetch);
  CHECK_FAILS(distag_future_wait(fetch, DISTAG_FOREVER, &err), DISTAG_E_CANCELLED,
              "rref_fetch of the value of call \"deferring\" on \"w1\" from \"w1\": cancelled by the caller");
  finish(reply, 1); /* the call goes on, and others may fetch what it makes */
  distag_future_release(fetch);
  CHECK_OK(distag_rref_fetch_async(rref, NULL, NULL, &fetch, &err));
  CHECK_INT(whole_of(fetch), 1);
  distag_future_release(fetch);
  distag_rref_release(rref);
}

/* Makes a long chain of futures behind `first`. */
static void make_chain(distag_future *first) {
  chain[0] = then(first, add_one);
  for (int i = 1; i < kLong; ++i) chain[i] = then(chain[i - 1], add_one);
}

/* Runs on a small stack. */
static void *long_chains(void *unused) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_reply *reply = NULL;
  distag_future *last = NULL;
  (void)unused;
  distag_future *first = begin(&reply);
  make_chain(first);
  release_all(chain, kLong - 1); /* futures in between need not be held */
  last = chain[kLong - 1];
  finish(reply, 0);
  CHECK_INT(whole_of(last), kLong);
  distag_future_release(last);
  distag_future_release(first);

  first = begin(&reply);
  make_chain(first);
  distag_future_cancel(chain[kLong - 1]);
  CHECK_FAILS(distag_future_wait(first, DISTAG_FOREVER, &err), DISTAG_E_CANCELLED, "cancel");
  distag_reply_release(reply);
  distag_future_release(first);
  release_all(chain, kLong);
  return NULL;
}

static void long_chains_on_a_small_stack(void) {
  pthread_attr_t attributes;
  pthread_t thread;
  CHECK_INT(pthread_attr_init(&attributes), 0);
  CHECK_INT(pthread_attr_setstacksize(&attributes, 512 * 1024), 0);
  CHECK_INT(pthread_create(&thread, &attributes, long_chains, NULL), 0);
  pthread_join(thread, NULL);
  pthread_attr_destroy(&attributes);
}

/* Calls, waits, goes on with another continuation, and releases its own future. */
static distag_status busy(void *user_data, distag_future *future, distag_value **out_value, distag_error *err) {
  distag_value *args[1] = {NULL}, *answer = NULL;
  distag_future *asked = NULL, *next = NULL;
  int64_t whole = 0;
  distag_future_get_value(future, &args[0], err);
  CHECK_INT(distag_call(w0, NULL, "w1", "echo", args, 1, NULL, &answer, err), DISTAG_OK);
  CHECK_INT(distag_call_async(w0, NULL, "w0", "echo", args, 1, NULL, &asked, err), DISTAG_OK);
  CHECK_INT(distag_future_then(asked, add_one, NULL, NULL, &next, err), DISTAG_OK);
  CHECK_INT(distag_future_wait(next, DISTAG_FOREVER, err), DISTAG_OK);
  CHECK_INT(distag_worker_shutdown(w0, 0, NULL, NULL), DISTAG_E_INVALID_STATE);
  distag_future_get_value(next, &args[0], err);
  distag_value_get_int64(args[0], &whole, err);
  distag_value_release(answer);
  distag_future_release(asked);
  distag_future_release(next);
  distag_future_release(user_data);
  return distag_value_create_int64(10 * whole, out_value, err);
}

static void callbacks_call_back(void) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_reply *reply = NULL;
  distag_future *next = NULL;
  distag_future *first = begin(&reply);
  CHECK_OK(distag_future_then(first, busy, first, NULL, &next, &err));
  finish(reply, 6);
  CHECK_INT(whole_of(next), 70);
  distag_future_release(next);
}

/* With the host executor a continuation runs where the host polls or waits, and nowhere else. */
static void polled(void) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_worker *worker = NULL;
  distag_value *args[1] = {NULL};
  distag_future *first = NULL;
  distag_worker_options options = group_options(0, 1, "inproc://futures-polled");
  const int before = atomic_load(&ran);
  options.executor = DISTAG_EXECUTOR_HOST;
  CHECK_OK(distag_worker_create(&options, &worker, &err));
  CHECK_OK(distag_worker_register(worker, "echo", echo, NULL, NULL, NULL, &err));
  CHECK_OK(distag_worker_start(worker, 120 * DISTAG_SECOND, &err));
  CHECK_OK(distag_value_create_int64(1, &args[0], &err));
  CHECK_OK(distag_call_async(worker, NULL, "w0", "echo", args, 1, NULL, &first, &err));
  distag_future *next = then(first, add_one);
  while (distag_future_poll(next) == 0) {
    CHECK_INT(atomic_load(&ran), before);
    CHECK_OK(distag_worker_poll(worker, 1, DISTAG_FOREVER, NULL, &err));
  }
  CHECK_INT(atomic_load(&ran), before + 1);
  CHECK_INT(whole_of(next), 2);
  distag_value_release(args[0]);
  distag_future_release(first);
  distag_future_release(next);
  CHECK_OK(distag_worker_shutdown(worker, 120 * DISTAG_SECOND, NULL, &err));
  distag_worker_release(worker);
}

/* A shutdown ends what is open, in chains of any length, and later ones are refused. */
static void shutdown(void) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_reply *reply = NULL;
  distag_future *none = NULL;
  distag_future *first = begin(&reply);
  const int before = atomic_load(&destroyed);
  make_chain(first);
  /* On a slow machine the chain takes longer to end than a shutdown waits: then the next one waits for it. */
  const distag_status status = distag_worker_shutdown(w0, 0, NULL, &err);
  CHECK(status == DISTAG_OK || status == DISTAG_E_DEADLINE);
  CHECK_OK(distag_worker_shutdown(w0, 60 * DISTAG_SECOND, NULL, &err));
  CHECK_FAILS(distag_future_wait(chain[kLong - 1], 0, &err), DISTAG_E_CANCELLED, "shut down");
  CHECK_INT(atomic_load(&destroyed), before + kLong);
  CHECK_FAILS(distag_future_then(first, add_one, &destroyed, count_destroy, &none, &err), DISTAG_E_INVALID_STATE,
              "down");
  CHECK_INT(atomic_load(&destroyed), before + kLong + 1);
  release_all(chain, kLong);
  distag_future_release(first);
  distag_reply_release(reply);
  CHECK_OK(distag_worker_shutdown(w1, 0, NULL, &err));
  distag_worker_release(w0);
  distag_worker_release(w1);
}

int main(void) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_worker *both[2];
  distag_worker_options options = group_options(0, 2, "inproc://futures");
  CHECK_OK(distag_worker_create(&options, &w0, &err));
  options = group_options(1, 2, "inproc://futures");
  CHECK_OK(distag_worker_create(&options, &w1, &err));
  CHECK_OK(distag_worker_register(w1, "deferring", deferring, NULL, NULL, NULL, &err));
  CHECK_OK(distag_worker_register(w0, "echo", echo, NULL, NULL, NULL, &err));
  CHECK_OK(distag_worker_register(w1, "echo", echo, NULL, NULL, NULL, &err));
  both[0] = w0;
  both[1] = w1;
  CHECK_INT(group_start(both, 2), 0);
  values_and_failures();
  first_error();
  cancels();
  cancels_a_fetch_at_the_owner();
  long_chains_on_a_small_stack();
  callbacks_call_back();
  polled();
  shutdown();
  return check_end();
}
