/* Values of many parts: long lists and maps, thousands of references in a call, optimizers of thousands of tensors. */
#include <stdlib.h>

#include "capi/check.h"
#include "capi/support/group.h"

enum { kFloats = 20000, kEntries = 5000, kReferences = 2000, kTensors = 600, kRrefParameters = 1500 };

static distag_error err = DISTAG_ERROR_INIT;
static distag_worker *workers[2];

static distag_status echo(void *user_data, distag_invocation *invocation, distag_error *e) {
  (void)user_data;
  return distag_invocation_return(invocation, distag_invocation_get_arg(invocation, 0), e);
}

/* The sum of the numbers that the arguments refer to; they live with the caller. */
static distag_status fetch_first_and_last(void *user_data, distag_invocation *invocation, distag_error *e) {
  const size_t count = distag_invocation_get_arg_count(invocation);
  const size_t ends[2] = {0, count - 1};
  int64_t sum = 0;
  distag_value *answer = NULL;
  (void)user_data;
  for (int i = 0; i < 2; ++i) {
    distag_rref *rref = NULL;
    distag_value *value = NULL;
    int64_t number = 0;
    distag_value_get_rref(distag_invocation_get_arg(invocation, ends[i]), &rref, e);
    distag_rref_fetch(rref, NULL, NULL, &value, e);
    distag_value_get_int64(value, &number, e);
    sum += number;
    distag_value_release(value);
  }
  distag_value_create_int64(sum + 10000 * (int64_t)count, &answer, e);
  distag_invocation_return(invocation, answer, e);
  distag_value_release(answer);
  return e->code;
}

static distag_tensor *leaf(distag_error *e) {
  distag_tensor *t = NULL;
  distag_full(1, DISTAG_FLOAT32, NULL, 0, &t, e);
  distag_tensor_set_requires_grad(t, 1, e);
  return t;
}

static distag_status give_tensors(void *user_data, distag_invocation *invocation, distag_error *e) {
  static distag_value *items[kTensors];
  distag_value *list = NULL;
  (void)user_data;
  for (int i = 0; i < kTensors; ++i) items[i] = distag_tensor_as_value(leaf(e));
  distag_value_create_list(items, kTensors, &list, e);
  for (int i = 0; i < kTensors; ++i) distag_value_release(items[i]);
  distag_invocation_return(invocation, list, e);
  distag_value_release(list);
  return e->code;
}

static distag_status give_tensor(void *user_data, distag_invocation *invocation, distag_error *e) {
  distag_tensor *t = leaf(e);
  (void)user_data;
  distag_invocation_return(invocation, distag_tensor_as_value(t), e);
  distag_tensor_release(t);
  return e->code;
}

/* A list of floats i / 2. */
static distag_value *floats(size_t count) {
  distag_value **items = malloc(count * sizeof *items);
  distag_value *list = NULL;
  for (size_t i = 0; i < count; ++i) CHECK_OK(distag_value_create_float64((double)i / 2, &items[i], &err));
  CHECK_OK(distag_value_create_list(items, count, &list, &err));
  for (size_t i = 0; i < count; ++i) distag_value_release(items[i]);
  free(items);
  return list;
}

static distag_value *echoed(distag_value *value) {
  distag_value *answer = NULL;
  CHECK_OK(distag_call(workers[0], NULL, "w1", "echo", &value, 1, NULL, &answer, &err));
  return answer;
}

static void long_lists(void) {
  distag_value *list = floats(kFloats), *answer = echoed(list);
  double number = 0;
  CHECK_INT(distag_value_get_count(answer), kFloats);
  for (size_t i = 0; i < kFloats; i += 999) {
    CHECK_OK(distag_value_get_float64(distag_value_get_item(answer, i), &number, &err));
    CHECK_NEAR(number, (double)i / 2);
  }
  distag_value_release(answer);
  distag_value_release(list);
}

static void long_maps(void) {
  static char names[kEntries][24];
  static const char *keys[kEntries];
  static distag_value *items[kEntries];
  distag_value *map = NULL, *answer = NULL;
  const char *text = NULL;
  for (int i = 0; i < kEntries; ++i) {
    snprintf(names[i], sizeof names[i], "key %d", i);
    keys[i] = names[i];
    CHECK_OK(distag_value_create_text(names[i], &items[i], &err));
  }
  CHECK_OK(distag_value_create_map(keys, items, kEntries, &map, &err));
  answer = echoed(map);
  CHECK_INT(distag_value_get_count(answer), kEntries);
  CHECK_OK(distag_value_get_text(distag_value_get_entry(answer, "key 4321"), &text, &err));
  CHECK_TEXT(text, "key 4321");
  distag_value_release(answer);
  distag_value_release(map);
  for (int i = 0; i < kEntries; ++i) distag_value_release(items[i]);
}

static void many_references(void) {
  static distag_rref *rrefs[kReferences];
  static distag_value *args[kReferences];
  distag_value *answer = NULL;
  int64_t number = 0;
  for (int i = 0; i < kReferences; ++i) {
    distag_value *value = NULL;
    CHECK_OK(distag_value_create_int64(i, &value, &err));
    CHECK_OK(distag_rref_create(workers[0], value, &rrefs[i], &err));
    args[i] = distag_rref_as_value(rrefs[i]);
    distag_value_release(value);
  }
  CHECK_OK(distag_call(workers[0], NULL, "w1", "fetch_first_and_last", args, kReferences, NULL, &answer, &err));
  CHECK_OK(distag_value_get_int64(answer, &number, &err));
  CHECK_INT(number, 10000 * (int64_t)kReferences + kReferences - 1);
  distag_value_release(answer);
  for (int i = 0; i < kReferences; ++i) distag_rref_release(rrefs[i]);
}

/* A single owner has `count` parameters, and more than 64 KiB of descriptions of the state that is kept for them. */
static void optimizer_of(distag_value *const *parameters, size_t count) {
  distag_optimizer *optimizer = NULL;
  distag_context *context = NULL;
  distag_value *state = NULL;
  int32_t rank = -1;
  size_t stepped = 0;
  CHECK_OK(distag_context_create(workers[0], &context, &err));
  CHECK_OK(distag_optimizer_create(workers[0], "adam", parameters, count, &optimizer, &err));
  CHECK_OK(distag_optimizer_step(optimizer, context, NULL, &err));
  CHECK_OK(distag_optimizer_copy_stepped_ranks(optimizer, &rank, 1, &stepped, &err));
  CHECK_INT(stepped, 1);
  CHECK_INT(rank, 1);
  CHECK_OK(distag_optimizer_save(optimizer, NULL, &state, &err));
  CHECK_OK(distag_optimizer_load(optimizer, state, NULL, &err));
  distag_value_release(state);
  distag_optimizer_release(optimizer);
  distag_context_release(context);
}

static void optimizers_of_many_tensors(void) {
  static distag_rref *rrefs[kRrefParameters];
  static distag_value *parameters[kRrefParameters];
  distag_rref *list = NULL;
  CHECK_OK(distag_remote(workers[0], NULL, "w1", "give_tensors", NULL, 0, NULL, &list, &err));
  parameters[0] = distag_rref_as_value(list);
  optimizer_of(parameters, 1);
  distag_rref_release(list);
  for (int i = 0; i < kRrefParameters; ++i) {
    CHECK_OK(distag_remote(workers[0], NULL, "w1", "give_tensor", NULL, 0, NULL, &rrefs[i], &err));
    parameters[i] = distag_rref_as_value(rrefs[i]);
  }
  optimizer_of(parameters, kRrefParameters);
  for (int i = 0; i < kRrefParameters; ++i) distag_rref_release(rrefs[i]);
}

/* The limit that remains is in the error, and nothing is lost. */
static void above_the_limit(void) {
  enum { kTooMany = 4000000 };
  distag_value *list = floats(kTooMany), *answer = NULL;
  CHECK_FAILS(distag_call(workers[0], NULL, "w1", "echo", &list, 1, NULL, &answer, &err), DISTAG_E_INVALID_ARGUMENT,
              "exceeds the limit of 67100672");
  CHECK(answer == NULL);
  err.code = DISTAG_OK;
  distag_value_release(list);
  long_lists();
}

int main(void) {
  for (int32_t rank = 0; rank < 2; ++rank) {
    const distag_worker_options options = group_options(rank, 2, "inproc://large_values");
    CHECK_OK(distag_worker_create(&options, &workers[rank], &err));
  }
  CHECK_OK(distag_worker_register(workers[1], "echo", echo, NULL, NULL, NULL, &err));
  CHECK_OK(distag_worker_register(workers[1], "fetch_first_and_last", fetch_first_and_last, NULL, NULL, NULL, &err));
  CHECK_OK(distag_worker_register(workers[1], "give_tensors", give_tensors, NULL, NULL, NULL, &err));
  CHECK_OK(distag_worker_register(workers[1], "give_tensor", give_tensor, NULL, NULL, NULL, &err));
  CHECK_INT(group_start(workers, 2), 0);
  long_lists();
  long_maps();
  many_references();
  optimizers_of_many_tensors();
  above_the_limit();
  CHECK_INT(group_shutdown(workers, 2), 0);
  for (int i = 0; i < 2; ++i) distag_worker_release(workers[i]);
  CHECK_INT(distag_get_handle_count(), 0);
  return check_end();
}
