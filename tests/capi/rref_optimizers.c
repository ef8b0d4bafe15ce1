/* Optimizers of parameters that live on two workers: as in one process, for every kind; clipping, saving, loading. */
#include <semaphore.h>

#include "capi/check.h"
#include "capi/support/group.h"

enum { kParameters = 4, kSteps = 5 };

static distag_error err = DISTAG_ERROR_INIT;
static distag_worker *workers[2];
static distag_tensor *far[kParameters]; /* the parameters on w1 */

/* Also for functions, which have an error of their own. */
static distag_tensor *leaf(int index, distag_error *e) {
  const double start[2] = {0.5 + index, -1.0 - index};
  const int64_t shape[1] = {2};
  distag_tensor *t = NULL;
  CHECK_INT(distag_tensor_create(start, sizeof(start), DISTAG_FLOAT64, shape, 1, &t, e), DISTAG_OK);
  CHECK_INT(distag_tensor_set_requires_grad(t, 1, e), DISTAG_OK);
  return t;
}

/* The sum of index * p^2 over a list of parameters here. */
static distag_tensor *loss_of(distag_tensor *const *parameters, size_t count, distag_error *e) {
  distag_tensor *total = NULL;
  for (size_t i = 0; i < count; ++i) {
    distag_tensor *square = NULL, *sum = NULL, *scaled = NULL, *more = NULL;
    distag_mul(parameters[i], parameters[i], &square, e);
    distag_sum(square, NULL, 0, 0, &sum, e);
    distag_mul_scalar(sum, (double)(i + 1), &scaled, e);
    if (total != NULL) {
      distag_add(total, scaled, &more, e);
      distag_tensor_release(total);
      distag_tensor_release(scaled);
      total = more;
    } else {
      total = scaled;
    }
    distag_tensor_release(square);
    distag_tensor_release(sum);
  }
  return total;
}

/* Gives a parameter, by its index. */
static distag_status give_parameter(void *user_data, distag_invocation *invocation, distag_error *e) {
  int64_t index = 0;
  (void)user_data;
  distag_value_get_int64(distag_invocation_get_arg(invocation, 0), &index, e);
  far[index] = leaf((int)index, e);
  return distag_invocation_return(invocation, distag_tensor_as_value(far[index]), e);
}

static distag_status give_two(void *user_data, distag_invocation *invocation, distag_error *e) {
  distag_value *items[2], *list = NULL;
  (void)user_data;
  for (int i = 0; i < 2; ++i) {
    far[2 + i] = leaf(2 + i, e);
    items[i] = distag_tensor_as_value(far[2 + i]);
  }
  distag_value_create_list(items, 2, &list, e);
  distag_invocation_return(invocation, list, e);
  distag_value_release(list);
  return e->code;
}

/* The part of the loss that depends on what is here, each parameter taken with its index: 2 p1^2 + 3 p2^2 + 4 p3^2. */
static distag_status far_loss(void *user_data, distag_invocation *invocation, distag_error *e) {
  distag_tensor *zero = leaf(0, e), *all[kParameters], *loss = NULL;
  (void)user_data;
  distag_tensor_set_requires_grad(zero, 0, e);
  all[0] = zero;
  for (int i = 1; i < kParameters; ++i) all[i] = far[i];
  loss = loss_of(all, kParameters, e);
  distag_invocation_return(invocation, distag_tensor_as_value(loss), e);
  distag_tensor_release(loss);
  distag_tensor_release(zero);
  return e->code;
}

static void expect_equal(distag_tensor *a, distag_tensor *b) {
  double x[2] = {0, 0}, y[2] = {1, 1};
  CHECK_OK(distag_tensor_copy_data(a, x, sizeof(x), &err));
  CHECK_OK(distag_tensor_copy_data(b, y, sizeof(y), &err));
  for (int i = 0; i < 2; ++i) CHECK(fabs(x[i] - y[i]) <= 1e-12);
}

static void a_kind(const char *kind) {
  distag_tensor *near = leaf(0, &err), *here[kParameters];
  distag_rref *one = NULL, *two = NULL;
  distag_value *index = NULL, *parameters[3], *here_values[kParameters], *state = NULL;
  distag_optimizer *spread = NULL, *local = NULL, *again = NULL;
  CHECK_OK(distag_value_create_int64(1, &index, &err));
  CHECK_OK(distag_remote(workers[0], NULL, "w1", "give_parameter", &index, 1, NULL, &one, &err));
  CHECK_OK(distag_remote(workers[0], NULL, "w1", "give_two", NULL, 0, NULL, &two, &err));
  distag_value_release(index);
  parameters[0] = distag_tensor_as_value(near);
  parameters[1] = distag_rref_as_value(one);
  parameters[2] = distag_rref_as_value(two);
  CHECK_OK(distag_optimizer_create(workers[0], kind, parameters, 3, &spread, &err));
  CHECK_OK(distag_optimizer_create(workers[0], kind, parameters, 3, &again, &err));
  for (int i = 0; i < kParameters; ++i) {
    here[i] = leaf(i, &err);
    here_values[i] = distag_tensor_as_value(here[i]);
  }
  CHECK_OK(distag_optimizer_create(NULL, kind, here_values, kParameters, &local, &err));
  for (int step = 0; step < kSteps; ++step) {
    distag_context *context = NULL, *local_context = NULL;
    distag_value *part = NULL;
    distag_tensor *far_part = NULL, *near_part = NULL, *loss = NULL, *local_loss = NULL;
    double norm = 0, local_norm = 0;
    int32_t ranks[2] = {-1, -1};
    size_t count = 0;
    CHECK_OK(distag_context_create(workers[0], &context, &err));
    /* The first call also waits until the parameters of w1 are there. */
    CHECK_OK(distag_call(workers[0], context, "w1", "far_loss", parameters + 1, 2, NULL, &part, &err));
    CHECK_OK(distag_value_get_tensor(part, &far_part, &err));
    near_part = loss_of(&near, 1, &err);
    CHECK_OK(distag_add(near_part, far_part, &loss, &err));
    CHECK_OK(distag_backward(context, &loss, 1, NULL, &err));
    CHECK_OK(distag_optimizer_clip(spread, context, 3.0, NULL, &norm, &err));
    CHECK_OK(distag_optimizer_step(spread, context, NULL, &err));
    CHECK_OK(distag_optimizer_copy_stepped_ranks(spread, ranks, 2, &count, &err));
    CHECK_INT(count, 2);
    CHECK_INT(ranks[0], 0);
    CHECK_INT(ranks[1], 1);

    CHECK_OK(distag_context_create(NULL, &local_context, &err));
    local_loss = loss_of(here, kParameters, &err);
    CHECK_OK(distag_backward(local_context, &local_loss, 1, NULL, &err));
    CHECK_OK(distag_optimizer_clip(local, local_context, 3.0, NULL, &local_norm, &err));
    CHECK_OK(distag_optimizer_step(local, local_context, NULL, &err));
    CHECK_NEAR(norm, local_norm);
    expect_equal(near, here[0]);
    for (int i = 1; i < kParameters; ++i) expect_equal(far[i], here[i]);

    /* Half of the steps are done by an optimizer that took over its state, at another rate. */
    CHECK_OK(distag_optimizer_save(spread, NULL, &state, &err));
    CHECK_OK(distag_optimizer_load(again, state, NULL, &err));
    distag_value_release(state);
    distag_optimizer *other = spread;
    spread = again;
    again = other;
    CHECK_OK(distag_optimizer_set(spread, "lr", 0.02 + 0.01 * step, &err));
    CHECK_OK(distag_optimizer_set(local, "lr", 0.02 + 0.01 * step, &err));
    distag_value_release(part);
    distag_tensor_release(near_part);
    distag_tensor_release(loss);
    distag_tensor_release(local_loss);
    distag_context_release(context);
    distag_context_release(local_context);
  }
  distag_optimizer_release(spread);
  distag_optimizer_release(again);
  distag_optimizer_release(local);
  distag_rref_release(one);
  distag_rref_release(two);
  distag_tensor_release(near);
  for (int i = 0; i < kParameters; ++i) distag_tensor_release(here[i]);
  for (int i = 1; i < kParameters; ++i) distag_tensor_release(far[i]);
}

static void refusals(void) {
  distag_tensor *t = leaf(0, &err);
  distag_value *text = NULL, *number = NULL;
  distag_rref *rref = NULL, *of_number = NULL;
  distag_optimizer *optimizer = NULL;
  distag_context *context = NULL;
  CHECK_OK(distag_value_create_text("p", &text, &err));
  CHECK_OK(distag_value_create_int64(3, &number, &err));
  CHECK_FAILS(distag_optimizer_create(workers[0], "sgd", &text, 1, &optimizer, &err), DISTAG_E_INVALID_ARGUMENT,
              "text");
  CHECK_OK(distag_rref_create(workers[0], distag_tensor_as_value(t), &rref, &err));
  distag_value *const twice[] = {distag_rref_as_value(rref), distag_rref_as_value(rref)};
  CHECK_FAILS(distag_optimizer_create(workers[0], "sgd", twice, 2, &optimizer, &err), DISTAG_E_INVALID_ARGUMENT,
              "twice");
  CHECK_FAILS(distag_optimizer_create(workers[1], "sgd", twice, 1, &optimizer, &err), DISTAG_E_INVALID_ARGUMENT,
              "another worker");
  CHECK_FAILS(distag_optimizer_create(NULL, "sgd", twice, 1, &optimizer, &err), DISTAG_E_INVALID_ARGUMENT, "rref");
  CHECK_OK(distag_rref_create(workers[0], number, &of_number, &err));
  distag_value *const wrong[] = {distag_rref_as_value(of_number)};
  CHECK_OK(distag_optimizer_create(workers[0], "sgd", wrong, 1, &optimizer, &err));
  CHECK_OK(distag_context_create(workers[0], &context, &err));
  CHECK_FAILS(distag_optimizer_step(optimizer, context, NULL, &err), DISTAG_E_INVALID_ARGUMENT, "int64");
  distag_context_release(context);
  distag_optimizer_release(optimizer);
  distag_rref_release(rref);
  distag_rref_release(of_number);
  distag_value_release(text);
  distag_value_release(number);
  distag_tensor_release(t);
}

/* Gives a parameter once it is let go. */
static sem_t let_go;
static distag_tensor *late;

static distag_status give_late(void *user_data, distag_invocation *invocation, distag_error *told) {
  (void)user_data;
  sem_wait(&let_go);
  return distag_invocation_return(invocation, distag_tensor_as_value(late), told);
}

/* A single parameter under two names. */
static void given_twice(void) {
  distag_tensor *t = leaf(0, &err), *other = leaf(1, &err);
  distag_tensor *both[] = {other, t};
  distag_value *items[] = {distag_tensor_as_value(both[0]), distag_tensor_as_value(both[1])}, *list = NULL;
  distag_rref *rref = NULL, *again = NULL, *of_list = NULL, *to_come = NULL;
  distag_optimizer *optimizer = NULL;
  distag_context *context = NULL;
  CHECK_OK(distag_value_create_list(items, 2, &list, &err));
  CHECK_OK(distag_rref_create(workers[0], distag_tensor_as_value(t), &rref, &err));
  CHECK_OK(distag_rref_create(workers[0], distag_tensor_as_value(t), &again, &err));
  CHECK_OK(distag_rref_create(workers[0], list, &of_list, &err));
  distag_value *const forms[] = {distag_tensor_as_value(t), distag_rref_as_value(rref), distag_rref_as_value(again),
                                 distag_rref_as_value(of_list)};
  for (int a = 0; a < 4; ++a) {
    for (int b = 0; b < 4; ++b) {
      distag_value *const two[] = {forms[a], forms[b]};
      CHECK_FAILS(distag_optimizer_create(workers[0], "sgd", two, 2, &optimizer, &err), DISTAG_E_INVALID_ARGUMENT,
                  "parameter 1 is given twice");
    }
  }
  /* A parameter that is not there yet is found by the first step. */
  late = t;
  sem_init(&let_go, 0, 0);
  CHECK_OK(distag_remote(workers[0], NULL, "w0", "give_late", NULL, 0, NULL, &to_come, &err));
  distag_value *const two[] = {forms[0], distag_rref_as_value(to_come)};
  CHECK_OK(distag_optimizer_create(workers[0], "sgd", two, 2, &optimizer, &err));
  sem_post(&let_go);
  distag_value *came = NULL;
  CHECK_OK(distag_rref_fetch(to_come, NULL, NULL, &came, &err));
  CHECK_OK(distag_context_create(workers[0], &context, &err));
  CHECK_FAILS(distag_optimizer_step(optimizer, context, NULL, &err), DISTAG_E_INVALID_ARGUMENT, "given twice");
  distag_optimizer_release(optimizer);
  CHECK_FAILS(distag_optimizer_create(workers[0], "sgd", two, 2, &optimizer, &err), DISTAG_E_INVALID_ARGUMENT,
              "given twice");
  distag_context_release(context);
  distag_value_release(came);
  distag_value_release(list);
  distag_rref_release(rref);
  distag_rref_release(again);
  distag_rref_release(of_list);
  distag_rref_release(to_come);
  distag_tensor_release(t);
  distag_tensor_release(other);
}

int main(void) {
  static const char *const kKinds[] = {"sgd", "adagrad", "adam", "adamw", "adadelta", "rmsprop", "adamax", "rprop"};
  for (int i = 0; i < 2; ++i) {
    const distag_worker_options options = group_options(i, 2, "inproc://rref_optimizers");
    CHECK_OK(distag_worker_create(&options, &workers[i], &err));
  }
  CHECK_OK(distag_worker_register(workers[1], "give_parameter", give_parameter, NULL, NULL, NULL, &err));
  CHECK_OK(distag_worker_register(workers[1], "give_two", give_two, NULL, NULL, NULL, &err));
  CHECK_OK(distag_worker_register(workers[1], "far_loss", far_loss, NULL, NULL, NULL, &err));
  CHECK_OK(distag_worker_register(workers[0], "give_late", give_late, NULL, NULL, NULL, &err));
  if (group_start(workers, 2) != 0) return 1;
  for (size_t i = 0; i < sizeof(kKinds) / sizeof(kKinds[0]); ++i) a_kind(kKinds[i]);
  refusals();
  given_twice();
  CHECK_INT(group_shutdown(workers, 2), 0);
  distag_worker_release(workers[0]);
  distag_worker_release(workers[1]);
  return check_end();
}
