/* Remote references between two workers of one process: making, fetching, passing on, objects, roots that live
 * elsewhere, failures, release. */
#include <stdatomic.h>

#include "capi/check.h"
#include "capi/support/group.h"

static distag_worker *w0, *w1;
static atomic_int destroyed;

/* ---- functions ---- */

static distag_status echo(void *user_data, distag_invocation *invocation, distag_error *err) {
  (void)user_data;
  return distag_invocation_return(invocation, distag_invocation_get_arg(invocation, 0), err);
}

static distag_status fail_to_make(void *user_data, distag_invocation *invocation, distag_error *err) {
  (void)user_data;
  (void)invocation;
  return distag_error_set(err, 1023, "no such table");
}

typedef struct counter {
  int64_t value;
} counter;

static void destroy_counter(void *object) {
  ((counter *)object)->value = -1;
  atomic_fetch_add(&destroyed, 1);
}

static counter the_counter;

static distag_status make_counter(void *user_data, distag_invocation *invocation, distag_error *err) {
  distag_value *object = NULL;
  (void)user_data;
  distag_value_get_int64(distag_invocation_get_arg(invocation, 0), &the_counter.value, err);
  distag_value_create_object("counter", &the_counter, destroy_counter, &object, err);
  distag_invocation_return(invocation, object, err);
  distag_value_release(object);
  return err->code;
}

static distag_status count_up(void *user_data, distag_invocation *invocation, distag_error *err) {
  void *object = NULL;
  distag_value *answer = NULL;
  (void)user_data;
  if (distag_invocation_get_object(invocation, 0, "counter", &object, err) != DISTAG_OK) return err->code;
  ++((counter *)object)->value;
  distag_value_create_int64(((counter *)object)->value, &answer, err);
  distag_invocation_return(invocation, answer, err);
  distag_value_release(answer);
  return err->code;
}

static distag_status as_model(void *user_data, distag_invocation *invocation, distag_error *err) {
  void *object = NULL;
  (void)user_data;
  return distag_invocation_get_object(invocation, 0, "model", &object, err);
}

static distag_status square(void *user_data, distag_invocation *invocation, distag_error *err) {
  distag_tensor *x = NULL, *y = NULL;
  (void)user_data;
  distag_invocation_get_tensor(invocation, 0, &x, err);
  distag_mul(x, x, &y, err);
  distag_invocation_return(invocation, distag_tensor_as_value(y), err);
  distag_tensor_release(y);
  return err->code;
}

/* ---- checks ---- */

static distag_stats stats_of(distag_worker *worker) {
  distag_stats stats = DISTAG_STATS_INIT;
  distag_error err = DISTAG_ERROR_INIT;
  CHECK_OK(distag_worker_get_stats(worker, &stats, &err));
  return stats;
}

/* Each release goes to the owner on the stream on which this call follows it. */
static int is_anything_left(distag_worker *worker) {
  const distag_stats stats = stats_of(worker);
  return stats.rrefs_owned != 0 || stats.rrefs_used != 0 || stats.rref_forks != 0;
}

/* Calls complete the releases that are on their way. A thread of a pool may hold the arguments of a call for some
 * moments more. */
static void expect_nothing_left(void) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_value *null = NULL;
  CHECK_OK(distag_value_create_null(&null, &err));
  for (int round = 0; round < 1000; ++round) {
    CHECK_OK(distag_call(w0, NULL, "w1", "echo", &null, 1, NULL, NULL, &err));
    CHECK_OK(distag_call(w1, NULL, "w0", "echo", &null, 1, NULL, NULL, &err));
    if (round > 0 && !is_anything_left(w0) && !is_anything_left(w1)) break;
  }
  distag_value_release(null);
  CHECK_INT(is_anything_left(w0), 0);
  CHECK_INT(is_anything_left(w1), 0);
}

static void a_shared_value(void) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_value *text = NULL, *value = NULL, *again = NULL;
  distag_rref *rref = NULL, *seen = NULL;
  CHECK_OK(distag_value_create_text("weights", &text, &err));
  CHECK_OK(distag_rref_create(w0, text, &rref, &err));
  CHECK_INT(distag_value_get_kind(distag_rref_as_value(rref)), DISTAG_VALUE_RREF);
  CHECK_OK(distag_value_get_rref(distag_rref_as_value(rref), &seen, &err));
  CHECK_INT(distag_rref_get_id(seen), distag_rref_get_id(rref));
  CHECK_FAILS(distag_value_get_rref(text, &seen, &err), DISTAG_E_INVALID_ARGUMENT, "text");
  CHECK_TEXT(distag_rref_get_owner(rref), "w0");
  CHECK_INT(distag_rref_is_owner(rref), 1);
  CHECK_INT(distag_rref_is_confirmed(rref), 1);
  CHECK_OK(distag_rref_get_local(rref, &value, &err));
  CHECK_OK(distag_rref_fetch(rref, NULL, NULL, &again, &err));
  const char *inside = NULL;
  CHECK_OK(distag_value_get_text(value, &inside, &err));
  CHECK_TEXT(inside, "weights");
  distag_value_release(again);

  /* Over there and back: the same value, at its owner again. */
  distag_value *back = NULL;
  distag_value *const args[] = {distag_rref_as_value(rref)};
  CHECK_OK(distag_call(w0, NULL, "w1", "echo", args, 1, NULL, &back, &err));
  CHECK_OK(distag_value_get_rref(back, &seen, &err));
  CHECK_INT(distag_rref_is_owner(seen), 1);
  CHECK(distag_rref_get_id(seen) == distag_rref_get_id(rref));
  distag_value_release(back);
  distag_value_release(text);
  distag_rref_release(rref);
  expect_nothing_left();
}

static void a_value_made_elsewhere(void) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_value *number = NULL, *fetched = NULL, *unused = NULL;
  distag_rref *rref = NULL;
  distag_future *future = NULL;
  int64_t seen = 0;
  CHECK_OK(distag_value_create_int64(42, &number, &err));
  CHECK_OK(distag_remote(w0, NULL, "w1", "echo", &number, 1, NULL, &rref, &err));
  CHECK_TEXT(distag_rref_get_owner(rref), "w1");
  CHECK_INT(distag_rref_is_owner(rref), 0);
  CHECK_FAILS(distag_rref_get_local(rref, &unused, &err), DISTAG_E_INVALID_STATE, "w1");
  CHECK_OK(distag_rref_fetch(rref, NULL, NULL, &fetched, &err));
  CHECK_OK(distag_value_get_int64(fetched, &seen, &err));
  CHECK_INT(seen, 42);
  CHECK_INT(distag_rref_is_confirmed(rref), 1);
  distag_value_release(fetched);
  CHECK_OK(distag_rref_fetch_async(rref, NULL, NULL, &future, &err));
  distag_rref_release(rref);
  CHECK_OK(distag_future_wait(future, DISTAG_FOREVER, &err));
  distag_future_release(future);

  /* A list of references as argument and as result. */
  distag_value *items[2], *list = NULL, *answer = NULL;
  distag_rref *first = NULL, *second = NULL, *from_list = NULL;
  CHECK_OK(distag_remote(w0, NULL, "w1", "echo", &number, 1, NULL, &first, &err));
  CHECK_OK(distag_remote(w0, NULL, "w0", "echo", &number, 1, NULL, &second, &err));
  items[0] = distag_rref_as_value(first);
  items[1] = distag_rref_as_value(second);
  CHECK_OK(distag_value_create_list(items, 2, &list, &err));
  distag_rref_release(first);
  distag_rref_release(second);
  CHECK_OK(distag_call(w0, NULL, "w1", "echo", &list, 1, NULL, &answer, &err));
  distag_value_release(list);
  for (size_t i = 0; i < 2; ++i) {
    CHECK_OK(distag_value_get_rref(distag_value_get_item(answer, i), &from_list, &err));
    CHECK_INT(distag_rref_is_owner(from_list), i);
    CHECK_OK(distag_rref_fetch(from_list, NULL, NULL, &fetched, &err));
    CHECK_OK(distag_value_get_int64(fetched, &seen, &err));
    CHECK_INT(seen, 42);
    distag_value_release(fetched);
  }
  distag_value_release(answer);
  distag_value_release(number);
  expect_nothing_left();
}

static void an_object(void) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_value *start = NULL, *answer = NULL, *object = NULL, *list = NULL;
  distag_rref *rref = NULL;
  void *pointer = NULL;
  int64_t seen = 0;
  CHECK_OK(distag_value_create_int64(5, &start, &err));
  CHECK_OK(distag_remote(w0, NULL, "w1", "make_counter", &start, 1, NULL, &rref, &err));
  distag_value *const args[] = {distag_rref_as_value(rref)};
  for (int64_t i = 6; i < 9; ++i) {
    CHECK_OK(distag_call(w0, NULL, "w1", "count_up", args, 1, NULL, &answer, &err));
    CHECK_OK(distag_value_get_int64(answer, &seen, &err));
    CHECK_INT(seen, i);
    distag_value_release(answer);
  }
  CHECK_FAILS(distag_rref_fetch(rref, NULL, NULL, &answer, &err), DISTAG_E_UNSUPPORTED, "counter");
  CHECK_FAILS(distag_call(w0, NULL, "w1", "as_model", args, 1, NULL, NULL, &err), DISTAG_E_INVALID_ARGUMENT, "model");
  CHECK_FAILS(distag_call(w0, NULL, "w0", "count_up", args, 1, NULL, NULL, &err), DISTAG_E_INVALID_ARGUMENT,
              "argument 0 is wanted as an object, but refers to a value of worker \"w1\": call a function there");
  CHECK_FAILS(distag_call(w0, NULL, "w0", "square", args, 1, NULL, NULL, &err), DISTAG_E_INVALID_ARGUMENT,
              "argument 0 is wanted as a tensor, but refers to a value of worker \"w1\": fetch it first");
  CHECK_FAILS(distag_call(w0, NULL, "w1", "square", args, 1, NULL, NULL, &err), DISTAG_E_INVALID_ARGUMENT,
              "argument 0 is wanted as a tensor, but an object came");
  CHECK_FAILS(distag_call(w0, NULL, "w1", "count_up", &start, 1, NULL, NULL, &err), DISTAG_E_INVALID_ARGUMENT,
              "argument 0 is wanted as an object, but an int64 came");
  CHECK_FAILS(distag_call(w0, NULL, "w1", "square", NULL, 0, NULL, NULL, &err), DISTAG_E_INVALID_ARGUMENT,
              "argument 0 is wanted as a tensor, but only 0 came");
  CHECK_FAILS(distag_call(w0, NULL, "w1", "make_counter", &start, 1, NULL, NULL, &err), DISTAG_E_INVALID_ARGUMENT,
              "an object of type \"counter\" cannot travel: it answers only calls whose result stays here");
  atomic_store(&destroyed, 0);
  distag_rref_release(rref);
  distag_value_release(start);
  expect_nothing_left();
  /* Runs on the pool of w1, before the functions that come after it have all returned. */
  CHECK_OK(distag_value_create_object("counter", &the_counter, destroy_counter, &object, &err));
  CHECK_INT(distag_value_get_kind(object), DISTAG_VALUE_OBJECT);
  CHECK_OK(distag_value_get_object(object, "counter", &pointer, &err));
  CHECK(pointer == &the_counter);
  CHECK_FAILS(distag_value_get_object(object, "model", &pointer, &err), DISTAG_E_INVALID_ARGUMENT, "model");
  CHECK(pointer == NULL);
  CHECK_FAILS(distag_value_create_list(&object, 1, &list, &err), DISTAG_E_INVALID_ARGUMENT, "object");
  CHECK_FAILS(distag_call(w0, NULL, "w1", "echo", &object, 1, NULL, NULL, &err), DISTAG_E_INVALID_ARGUMENT, "counter");
  distag_value_release(object);
  const int before = atomic_load(&destroyed);
  CHECK_FAILS(distag_value_create_object(NULL, &the_counter, destroy_counter, &object, &err), DISTAG_E_INVALID_ARGUMENT,
              "type");
  CHECK_INT(atomic_load(&destroyed), before + 1);
}

static void failures(void) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_rref *rref = NULL, *foreign = NULL;
  distag_value *value = NULL;
  CHECK_OK(distag_remote(w0, NULL, "w1", "fail_to_make", NULL, 0, NULL, &rref, &err));
  for (int i = 0; i < 2; ++i) {
    CHECK_FAILS(distag_rref_fetch(rref, NULL, NULL, &value, &err), 1023, "no such table");
    CHECK_INT(err.origin_rank, 1);
    CHECK_INT(err.flags, DISTAG_ERROR_MAY_HAVE_RUN);
    CHECK(strstr(err.message, "\"fail_to_make\"") != NULL);
  }
  distag_value *const args[] = {distag_rref_as_value(rref)};
  CHECK_FAILS(distag_call(w0, NULL, "w1", "count_up", args, 1, NULL, NULL, &err), 1023, "no such table");
  distag_rref_release(rref);
  CHECK_FAILS(distag_remote(w0, NULL, "w9", "echo", NULL, 0, NULL, &rref, &err), DISTAG_E_NOT_FOUND, "w9");
  CHECK(rref == NULL);
  CHECK_OK(distag_remote(w0, NULL, "w1", "missing", NULL, 0, NULL, &rref, &err));
  CHECK_FAILS(distag_rref_fetch(rref, NULL, NULL, &value, &err), DISTAG_E_NOT_FOUND, "missing");
  distag_rref_release(rref);
  /* A value that never went out fails with its first failure, at once and wherever it is used from here. */
  distag_value *object = NULL;
  CHECK_OK(distag_value_create_object("model", NULL, NULL, &object, &err));
  CHECK_OK(distag_remote(w0, NULL, "w1", "echo", &object, 1, NULL, &rref, &err));
  CHECK_FAILS(distag_rref_fetch(rref, NULL, NULL, &value, &err), DISTAG_E_INVALID_ARGUMENT, "model");
  distag_value *const unmade[] = {distag_rref_as_value(rref)};
  CHECK_FAILS(distag_call(w0, NULL, "w1", "echo", unmade, 1, NULL, NULL, &err), DISTAG_E_INVALID_ARGUMENT, "model");
  distag_rref_release(rref);
  distag_value_release(object);
  /* A reference of another worker of this process has to come in a call. */
  CHECK_OK(distag_value_create_null(&value, &err));
  CHECK_OK(distag_rref_create(w1, value, &foreign, &err));
  distag_value *const foreign_args[] = {distag_rref_as_value(foreign)};
  CHECK_FAILS(distag_call(w0, NULL, "w1", "echo", foreign_args, 1, NULL, NULL, &err), DISTAG_E_INVALID_ARGUMENT,
              "another worker");
  CHECK_FAILS(distag_rref_create(w0, foreign_args[0], &rref, &err), DISTAG_E_INVALID_ARGUMENT, "another worker");
  distag_rref_release(foreign);
  distag_value_release(value);
  expect_nothing_left();
}

/* The loss lives at w1; the pass begins at w0. */
static void a_remote_root(void) {
  distag_error err = DISTAG_ERROR_INIT;
  const double three = 3;
  distag_tensor *x = NULL;
  distag_context *context = NULL;
  distag_rref *loss = NULL;
  distag_gradients *gradients = NULL;
  distag_future *future = NULL;
  double gradient = 0;
  CHECK_OK(distag_tensor_create(&three, sizeof(three), DISTAG_FLOAT64, NULL, 0, &x, &err));
  CHECK_OK(distag_tensor_set_requires_grad(x, 1, &err));
  CHECK_OK(distag_context_create(w0, &context, &err));
  distag_value *const args[] = {distag_tensor_as_value(x)};
  CHECK_OK(distag_remote(w0, context, "w1", "square", args, 1, NULL, &loss, &err));
  distag_backward_options options = DISTAG_BACKWARD_OPTIONS_INIT;
  options.remote_roots = &loss;
  options.remote_root_count = 1;
  options.retain_graph = 1;
  CHECK_OK(distag_backward(context, NULL, 0, &options, &err));
  CHECK_OK(distag_get_gradients(context, &gradients, &err));
  CHECK_OK(distag_tensor_get_item(distag_gradients_find(gradients, x), &gradient, &err));
  CHECK_NEAR(gradient, 6);
  distag_gradients_release(gradients);
  options.retain_graph = 0;
  CHECK_OK(distag_backward_async(context, NULL, 0, &options, &future, &err));
  CHECK_OK(distag_future_wait(future, DISTAG_FOREVER, &err));
  CHECK_OK(distag_get_gradients(context, &gradients, &err));
  CHECK_OK(distag_tensor_get_item(distag_gradients_find(gradients, x), &gradient, &err));
  CHECK_NEAR(gradient, 12);
  distag_gradients_release(gradients);
  distag_future_release(future);
  distag_rref_release(loss);

  CHECK_OK(distag_remote(w0, context, "w1", "fail_to_make", NULL, 0, NULL, &loss, &err));
  CHECK_FAILS(distag_backward(context, NULL, 0, &options, &err), 1023, "no such table");
  CHECK_OK(distag_backward_async(context, NULL, 0, &options, &future, &err));
  CHECK_FAILS(distag_future_wait(future, DISTAG_FOREVER, &err), 1023, "no such table");
  distag_future_release(future);
  distag_rref_release(loss);
  distag_context_release(context);
  distag_tensor_release(x);
  expect_nothing_left();
}

/* References held while the workers shut down are reported, and safe to use afterwards. */
static void a_shutdown_with_references(void) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_worker_options options[2] = {group_options(0, 2, "inproc://leaks"), group_options(1, 2, "inproc://leaks")};
  distag_worker *workers[2] = {NULL, NULL};
  distag_value *number = NULL, *report = NULL, *value = NULL;
  distag_rref *rref = NULL, *own = NULL;
  distag_future *stopping = NULL;
  int32_t clean = 1;
  for (int i = 0; i < 2; ++i) {
    CHECK_OK(distag_worker_create(&options[i], &workers[i], &err));
    CHECK_OK(distag_worker_register(workers[i], "echo", echo, NULL, NULL, NULL, &err));
  }
  CHECK_OK(distag_value_create_int64(1, &number, &err));
  CHECK_OK(distag_rref_create(workers[0], number, &own, &err)); /* before the start */
  CHECK_INT(group_start(workers, 2), 0);
  distag_call_options call = DISTAG_CALL_OPTIONS_INIT;
  call.label = "table of users";
  CHECK_OK(distag_remote(workers[0], NULL, "w1", "echo", &number, 1, &call, &rref, &err));
  CHECK_OK(distag_rref_fetch(rref, NULL, NULL, &value, &err));
  distag_value_release(value);
  distag_value *const args[] = {distag_rref_as_value(own)};
  CHECK_OK(distag_call(workers[0], NULL, "w1", "echo", args, 1, NULL, NULL, &err));
  CHECK_OK(distag_worker_shutdown_async(workers[0], DISTAG_FOREVER, &stopping, &err));
  CHECK_OK(distag_worker_shutdown(workers[1], DISTAG_FOREVER, &report, &err));
  CHECK_OK(distag_future_wait(stopping, DISTAG_FOREVER, &err));
  CHECK_OK(distag_value_get_bool(distag_value_get_entry(report, "clean"), &clean, &err));
  CHECK_INT(clean, 0);
  distag_value *leaked = distag_value_get_entry(report, "leaked_rrefs");
  CHECK_INT(distag_value_get_count(leaked), 1);
  const char *line = "";
  CHECK_OK(distag_value_get_text(distag_value_get_item(leaked, 0), &line, &err));
  CHECK(strstr(line, "table of users") != NULL && strstr(line, "w0") != NULL);
  CHECK_FAILS(distag_rref_fetch(rref, NULL, NULL, &value, &err), DISTAG_E_INVALID_STATE, "shut down");
  CHECK_FAILS(distag_rref_get_local(own, &value, &err), DISTAG_E_INVALID_STATE, "shut down");
  distag_future_release(stopping);
  distag_value_release(report);
  distag_worker_release(workers[0]);
  distag_worker_release(workers[1]);
  CHECK_FAILS(distag_rref_fetch(own, NULL, NULL, &value, &err), DISTAG_E_INVALID_STATE, "shut down");
  CHECK_TEXT(distag_rref_get_owner(rref), "w1");
  distag_rref_release(rref);
  distag_rref_release(own);
  distag_value_release(number);
}

int main(void) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_worker *workers[2];
  for (int i = 0; i < 2; ++i) {
    const distag_worker_options options = group_options(i, 2, "inproc://rrefs");
    CHECK_OK(distag_worker_create(&options, &workers[i], &err));
    CHECK_OK(distag_worker_register(workers[i], "echo", echo, NULL, NULL, NULL, &err));
    CHECK_OK(distag_worker_register(workers[i], "count_up", count_up, NULL, NULL, NULL, &err));
    CHECK_OK(distag_worker_register(workers[i], "as_model", as_model, NULL, NULL, NULL, &err));
    CHECK_OK(distag_worker_register(workers[i], "make_counter", make_counter, NULL, NULL, NULL, &err));
    CHECK_OK(distag_worker_register(workers[i], "fail_to_make", fail_to_make, NULL, NULL, NULL, &err));
    CHECK_OK(distag_worker_register(workers[i], "square", square, NULL, NULL, NULL, &err));
  }
  if (group_start(workers, 2) != 0) return 1;
  w0 = workers[0];
  w1 = workers[1];
  a_shared_value();
  a_value_made_elsewhere();
  an_object();
  failures();
  a_remote_root();
  a_shutdown_with_references();
  CHECK_INT(group_shutdown(workers, 2), 0);
  distag_worker_release(w0);
  distag_worker_release(w1);
  return check_end();
}
