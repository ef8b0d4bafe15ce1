/* Tensors read and written by many threads at once: by copies, ops, calls, messages on their way and fetches, beside
 * write, assign, add_scaled and the steps of optimizers. All elements are equal before and after each write, and all
 * parameters of an optimizer are: so a reader that sees two numbers saw a mixture. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "capi/check.h"
#include "capi/support/group.h"

enum { kCount = 24 << 10, kRounds = 40, kPartialRounds = 300, kStepRounds = 60, kParameters = 3 };

static distag_worker *workers[2];
static distag_tensor *shared, *column; /* column: a view of a part of `square` */
static distag_tensor *square;
static distag_tensor *parameters[kParameters]; /* of w1, and stepped by w0 */
static distag_tensor *near[kParameters];       /* stepped in this process, without a worker */
static distag_rref *all_parameters;
static atomic_int failures, readers_left;

#define EXPECT(condition)                                             \
  do {                                                                \
    if (!(condition)) {                                               \
      atomic_fetch_add(&failures, 1);                                 \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
    }                                                                 \
  } while (0)

static void expect_ok(const distag_error *err, int line) {
  if (err->code == DISTAG_OK) return;
  atomic_fetch_add(&failures, 1);
  fprintf(stderr, "line %d: %s: %s\n", line, distag_status_get_name(err->code), err->message);
}

/* The number that all elements of some tensors have. */
static float whole(distag_tensor *const *tensors, size_t count, int line) {
  distag_error err = DISTAG_ERROR_INIT;
  float first = 0;
  for (size_t i = 0; i < count; ++i) {
    const size_t size = distag_tensor_get_size(tensors[i]);
    float *data = malloc(size);
    distag_tensor_copy_data(tensors[i], data, size, &err);
    expect_ok(&err, line);
    if (i == 0) first = data[0];
    for (size_t k = 0; err.code == DISTAG_OK && k < size / sizeof(float); ++k) {
      if (data[k] == first) continue;
      atomic_fetch_add(&failures, 1);
      fprintf(stderr, "line %d: element %zu of tensor %zu is %g beside %g\n", line, k, i, data[k], first);
      break;
    }
    free(data);
  }
  return first;
}

#define WHOLE(tensor) whole(&(tensor), 1, __LINE__)

static void whole_value(distag_value *value, int line) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_tensor *tensors[kParameters] = {NULL};
  const size_t count = distag_value_get_kind(value) == DISTAG_VALUE_LIST ? distag_value_get_count(value) : 1;
  for (size_t i = 0; i < count; ++i) {
    distag_value_get_tensor(count == 1 ? value : distag_value_get_item(value, i), &tensors[i], &err);
  }
  expect_ok(&err, line);
  if (err.code == DISTAG_OK) whole(tensors, count, line);
}

static distag_tensor *full(float value, int64_t rows, int64_t columns) {
  distag_error err = DISTAG_ERROR_INIT;
  const int64_t shape[2] = {rows, columns};
  distag_tensor *t = NULL;
  distag_full(value, DISTAG_FLOAT32, shape, 2, &t, &err);
  expect_ok(&err, __LINE__);
  return t;
}

/* ---- functions of the workers ---- */

static distag_status give_parameters(void *user_data, distag_invocation *invocation, distag_error *err) {
  distag_value *items[kParameters], *list = NULL;
  (void)user_data;
  for (int i = 0; i < kParameters; ++i) items[i] = distag_tensor_as_value(parameters[i]);
  distag_value_create_list(items, kParameters, &list, err);
  distag_invocation_return(invocation, list, err);
  distag_value_release(list);
  return err->code;
}

static distag_tensor *sum_of(distag_tensor *const *tensors, distag_error *err) {
  distag_tensor *total = NULL;
  for (int i = 0; i < kParameters; ++i) {
    distag_tensor *sum = NULL, *more = NULL;
    distag_sum(tensors[i], NULL, 0, 0, &sum, err);
    if (total == NULL) {
      total = sum;
      continue;
    }
    distag_add(total, sum, &more, err);
    distag_tensor_release(total);
    distag_tensor_release(sum);
    total = more;
  }
  return total;
}

static distag_status far_loss(void *user_data, distag_invocation *invocation, distag_error *err) {
  distag_tensor *loss = sum_of(parameters, err);
  (void)user_data;
  distag_invocation_return(invocation, distag_tensor_as_value(loss), err);
  distag_tensor_release(loss);
  return err->code;
}

static distag_status echo(void *user_data, distag_invocation *invocation, distag_error *err) {
  (void)user_data;
  return distag_invocation_return(invocation, distag_invocation_get_arg(invocation, 0), err);
}

/* ---- writers, each until the readers are done ---- */

static void *write_all(void *unused) {
  float *data = malloc(kCount * sizeof(float));
  (void)unused;
  for (int k = 0; atomic_load(&readers_left) > 0; ++k) {
    distag_error err = DISTAG_ERROR_INIT;
    distag_tensor *source = full((float)(k % 100), 1, 1), *ones = full(1, 1, kCount);
    for (size_t i = 0; i < kCount; ++i) data[i] = (float)(k % 100);
    distag_tensor_write(shared, data, kCount * sizeof(float), &err);
    distag_tensor_add_scaled(shared, ones, 0.5, &err);
    distag_tensor_assign(shared, source, &err);
    distag_tensor_assign(column, source, &err);
    distag_tensor_add_scaled(column, source, 2, &err);
    expect_ok(&err, __LINE__);
    distag_tensor_release(source);
    distag_tensor_release(ones);
  }
  free(data);
  return NULL;
}

static void *step_far(void *unused) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_optimizer *optimizer = NULL;
  distag_value *list = distag_rref_as_value(all_parameters);
  (void)unused;
  distag_optimizer_create(workers[0], "adam", &list, 1, &optimizer, &err);
  while (atomic_load(&readers_left) > 0 && err.code == DISTAG_OK) {
    distag_context *context = NULL;
    distag_value *answer = NULL;
    distag_tensor *loss = NULL;
    distag_context_create(workers[0], &context, &err);
    distag_call(workers[0], context, "w1", "far_loss", NULL, 0, NULL, &answer, &err);
    distag_value_get_tensor(answer, &loss, &err);
    distag_backward(context, &loss, 1, NULL, &err);
    distag_optimizer_step(optimizer, context, NULL, &err);
    distag_value_release(answer);
    distag_context_release(context);
  }
  expect_ok(&err, __LINE__);
  distag_optimizer_release(optimizer);
  return NULL;
}

static void *step_near(void *unused) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_optimizer *optimizer = NULL;
  distag_value *items[kParameters];
  (void)unused;
  for (int i = 0; i < kParameters; ++i) items[i] = distag_tensor_as_value(near[i]);
  distag_optimizer_create(NULL, "sgd", items, kParameters, &optimizer, &err);
  while (atomic_load(&readers_left) > 0 && err.code == DISTAG_OK) {
    distag_context *context = NULL;
    distag_tensor *loss = sum_of(near, &err);
    distag_context_create(NULL, &context, &err);
    distag_backward(context, &loss, 1, NULL, &err);
    distag_optimizer_step(optimizer, context, NULL, &err);
    distag_tensor_release(loss);
    distag_context_release(context);
  }
  expect_ok(&err, __LINE__);
  distag_optimizer_release(optimizer);
  return NULL;
}

/* Asks for gradients and hooks of what is read meanwhile, and takes them back. */
static distag_status look(void *user_data, distag_tensor *gradient, distag_tensor **out_gradient, distag_error *err) {
  (void)user_data, (void)gradient, (void)out_gradient, (void)err;
  return DISTAG_OK;
}

static void *change_what_is_asked(void *unused) {
  (void)unused;
  while (atomic_load(&readers_left) > 0) {
    distag_error err = DISTAG_ERROR_INIT;
    uint64_t hook = 0;
    distag_tensor_set_requires_grad(shared, 1, &err);
    distag_tensor_add_hook(shared, look, NULL, NULL, &hook, &err);
    distag_tensor_remove_hook(shared, hook, &err);
    distag_tensor_add_hook(shared, look, NULL, NULL, &hook, &err);
    distag_tensor_set_requires_grad(shared, 0, &err);
    expect_ok(&err, __LINE__);
  }
  return NULL;
}

/* ---- readers ---- */

static void *read_here(void *unused) {
  (void)unused;
  for (int round = 0; round < kRounds; ++round) {
    distag_error err = DISTAG_ERROR_INIT;
    distag_tensor *twice = NULL, *copy = NULL, *half = NULL, *rest = NULL, *joined = NULL;
    WHOLE(shared);
    WHOLE(column);
    distag_add(shared, shared, &twice, &err);
    distag_clone(shared, &copy, &err);
    distag_slice(shared, 1, 0, kCount, 3, &half, &err);
    distag_concat(near, kParameters, 1, &joined, &err);
    distag_sub(near[0], near[kParameters - 1], &rest, &err);
    expect_ok(&err, __LINE__);
    WHOLE(twice);
    WHOLE(copy);
    WHOLE(half);
    WHOLE(joined);
    EXPECT(WHOLE(rest) == 0);
    (void)distag_tensor_get_requires_grad(shared);
    (void)distag_tensor_get_data(shared);
    distag_tensor_release(twice);
    distag_tensor_release(copy);
    distag_tensor_release(half);
    distag_tensor_release(rest);
    distag_tensor_release(joined);
  }
  atomic_fetch_sub(&readers_left, 1);
  return NULL;
}

static void *read_there(void *unused) {
  (void)unused;
  for (int round = 0; round < kRounds; ++round) {
    distag_error err = DISTAG_ERROR_INIT;
    distag_value *fetched = NULL, *negative = NULL, *args[2] = {distag_tensor_as_value(shared), NULL};
    distag_value *items[kParameters], *list = NULL, *echoed = NULL, *zeros = NULL;
    distag_future *pending[4] = {NULL};
    for (int i = 0; i < kParameters; ++i) items[i] = distag_tensor_as_value(near[i]);
    distag_value_create_list(items, kParameters, &list, &err);
    /* These calls are on their way while the tensors are written again. */
    for (int i = 0; i < 3; ++i) distag_call_async(workers[0], NULL, "w1", "echo", args, 1, NULL, &pending[i], &err);
    distag_call_async(workers[0], NULL, "w1", "echo", &list, 1, NULL, &pending[3], &err);
    distag_rref_fetch(all_parameters, NULL, NULL, &fetched, &err);
    distag_call(workers[0], NULL, "w1", "neg", args, 1, NULL, &negative, &err);
    distag_call(workers[0], NULL, "w1", "sub", items, 2, NULL, &zeros, &err);
    distag_wait_all(pending, 4, DISTAG_FOREVER, &err);
    expect_ok(&err, __LINE__);
    if (err.code == DISTAG_OK) {
      whole_value(fetched, __LINE__);
      whole_value(negative, __LINE__);
      whole_value(zeros, __LINE__);
      for (int i = 0; i < 4; ++i) {
        distag_future_get_value(pending[i], &echoed, &err);
        whole_value(echoed, __LINE__);
      }
    }
    for (int i = 0; i < 4; ++i) distag_future_release(pending[i]);
    distag_value_release(fetched);
    distag_value_release(negative);
    distag_value_release(zeros);
    distag_value_release(list);
  }
  atomic_fetch_sub(&readers_left, 1);
  return NULL;
}

/* Ops on the first and the last parameter, and a list of all, as fast as possible. */
static void *compare_parameters(void *unused) {
  (void)unused;
  for (int round = 0; round < kStepRounds; ++round) {
    distag_error err = DISTAG_ERROR_INIT;
    distag_tensor *rest = NULL;
    double item = -1;
    distag_value *items[kParameters], *list = NULL, *echoed = NULL;
    distag_tensor *seen[kParameters] = {NULL};
    for (int i = 0; i < kParameters; ++i) items[i] = distag_tensor_as_value(near[i]);
    distag_value_create_list(items, kParameters, &list, &err);
    distag_call(workers[0], NULL, "w0", "echo", &list, 1, NULL, &echoed, &err);
    for (size_t i = 0; i < kParameters; ++i) {
      distag_value_get_tensor(distag_value_get_item(echoed, i), &seen[i], &err);
    }
    if (err.code == DISTAG_OK) whole(seen, kParameters, __LINE__);
    distag_value_release(echoed);
    distag_value_release(list);
    for (int i = 0; i < 20; ++i) {
      distag_tensor *difference = NULL;
      distag_sub(near[0], near[kParameters - 1], &difference, &err);
      distag_max(difference, NULL, 0, 0, &rest, &err);
      distag_tensor_get_item(rest, &item, &err);
      EXPECT(item == 0);
      distag_tensor_release(difference);
      distag_tensor_release(rest);
    }
    expect_ok(&err, __LINE__);
  }
  atomic_fetch_sub(&readers_left, 1);
  return NULL;
}

static void run_together(void *(*const *bodies)(void *), size_t count) {
  pthread_t threads[8];
  for (size_t i = 0; i < count; ++i) CHECK_INT(pthread_create(&threads[i], NULL, bodies[i], NULL), 0);
  for (size_t i = 0; i < count; ++i) pthread_join(threads[i], NULL);
}

static void nobody_sees_a_mixture(void) {
  void *(*const bodies[])(void *) = {write_all, step_far,  step_near, change_what_is_asked,
                                     read_here, read_here, read_there};
  atomic_store(&readers_left, 3);
  run_together(bodies, sizeof(bodies) / sizeof(bodies[0]));
}

static void a_step_is_one_write(void) {
  void *(*const bodies[])(void *) = {step_near, compare_parameters};
  atomic_store(&readers_left, 1);
  run_together(bodies, sizeof(bodies) / sizeof(bodies[0]));
}

/* ---- writers of parts of one storage ---- */

static void *add_to_part(distag_tensor *part) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_tensor *one = full(1, 1, 1);
  for (int i = 0; i < kPartialRounds; ++i) distag_tensor_add_scaled(part, one, 1, &err);
  expect_ok(&err, __LINE__);
  distag_tensor_release(one);
  return NULL;
}

static distag_tensor *parts[4]; /* even and odd columns, and all of them twice */
static void *add_to_even(void *unused) { return (void)unused, add_to_part(parts[0]); }
static void *add_to_odd(void *unused) { return (void)unused, add_to_part(parts[1]); }
static void *add_to_all(void *unused) { return (void)unused, add_to_part(parts[2]); }

/* Keeps what it sees for a while, so that writers find the buffer held. */
static void *hold_on(void *unused) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_tensor *kept[4] = {NULL};
  (void)unused;
  for (int i = 0; i < kPartialRounds; ++i) {
    distag_tensor_release(kept[i % 4]);
    distag_cast(parts[3], DISTAG_FLOAT32, &kept[i % 4], &err);
  }
  expect_ok(&err, __LINE__);
  for (int i = 0; i < 4; ++i) distag_tensor_release(kept[i]);
  return NULL;
}

static void no_write_is_lost(void) {
  void *(*const bodies[])(void *) = {add_to_even, add_to_odd, add_to_all, add_to_all, hold_on};
  distag_error err = DISTAG_ERROR_INIT;
  parts[2] = full(0, 64, 16);
  parts[3] = parts[2];
  CHECK_OK(distag_slice(parts[2], 1, 0, 16, 2, &parts[0], &err));
  CHECK_OK(distag_slice(parts[2], 1, 1, 16, 2, &parts[1], &err));
  run_together(bodies, sizeof(bodies) / sizeof(bodies[0]));
  CHECK_NEAR(WHOLE(parts[2]), 3.0 * kPartialRounds);
  distag_tensor_release(parts[0]);
  distag_tensor_release(parts[1]);
  distag_tensor_release(parts[2]);
}

int main(void) {
  distag_error err = DISTAG_ERROR_INIT;
  for (int32_t rank = 0; rank < 2; ++rank) {
    const distag_worker_options options = group_options(rank, 2, "inproc://shared_tensors");
    CHECK_OK(distag_worker_create(&options, &workers[rank], &err));
    CHECK_OK(distag_worker_register(workers[rank], "give_parameters", give_parameters, NULL, NULL, NULL, &err));
    CHECK_OK(distag_worker_register(workers[rank], "far_loss", far_loss, NULL, NULL, NULL, &err));
    CHECK_OK(distag_worker_register(workers[rank], "echo", echo, NULL, NULL, NULL, &err));
  }
  CHECK_INT(group_start(workers, 2), 0);
  shared = full(0, 1, kCount);
  square = full(0, 64, 64);
  CHECK_OK(distag_slice(square, 1, 3, 40, 2, &column, &err));
  for (int i = 0; i < kParameters; ++i) {
    parameters[i] = full(0, 1, kCount);
    near[i] = full(0, 1, kCount);
    CHECK_OK(distag_tensor_set_requires_grad(parameters[i], 1, &err));
    CHECK_OK(distag_tensor_set_requires_grad(near[i], 1, &err));
  }
  CHECK_OK(distag_remote(workers[0], NULL, "w1", "give_parameters", NULL, 0, NULL, &all_parameters, &err));
  nobody_sees_a_mixture();
  a_step_is_one_write();
  no_write_is_lost();
  CHECK_INT(atomic_load(&failures), 0);
  distag_rref_release(all_parameters);
  distag_tensor_release(shared);
  distag_tensor_release(column);
  distag_tensor_release(square);
  for (int i = 0; i < kParameters; ++i) {
    distag_tensor_release(parameters[i]);
    distag_tensor_release(near[i]);
  }
  CHECK_INT(group_shutdown(workers, 2), 0);
  distag_worker_release(workers[0]);
  distag_worker_release(workers[1]);
  return check_end();
}
