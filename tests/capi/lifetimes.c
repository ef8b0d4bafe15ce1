/* Objects that are released, cancelled or written to while something of them is still under way. */
#include "capi/check.h"
#include "capi/support/group.h"

static distag_error err = DISTAG_ERROR_INIT;

static distag_tensor *make_leaf(double value) {
  const int64_t shape[] = {3};
  distag_tensor *leaf = NULL;
  CHECK_OK(distag_full(value, DISTAG_FLOAT64, shape, 1, &leaf, &err));
  CHECK_OK(distag_tensor_set_requires_grad(leaf, 1, &err));
  return leaf;
}

static double first_of(distag_tensor *tensor) {
  double items[3] = {0};
  CHECK_OK(distag_tensor_copy_data(tensor, items, sizeof items, &err));
  return items[0];
}

/* sum(x * x) of a leaf, whose gradient is 2 x. */
static distag_tensor *make_loss(distag_tensor *x) {
  distag_tensor *square = NULL, *loss = NULL;
  CHECK_OK(distag_mul(x, x, &square, &err));
  CHECK_OK(distag_sum(square, NULL, 0, 0, &loss, &err));
  distag_tensor_release(square);
  return loss;
}

static distag_status same_forward(void *user_data, distag_tensor *const *inputs, size_t input_count,
                                  distag_tensor **out_outputs, size_t output_count, distag_error *error) {
  (void)user_data, (void)input_count, (void)output_count;
  return distag_clone(inputs[0], &out_outputs[0], error);
}

/* Releases the context whose pass it is part of. */
static distag_status releasing_backward(void *user_data, distag_tensor *const *output_gradients, size_t output_count,
                                        distag_tensor **out_input_gradients, size_t input_count, distag_error *error) {
  distag_context **context = user_data;
  (void)output_count, (void)input_count;
  distag_context_release(*context);
  *context = NULL;
  return distag_clone(output_gradients[0], &out_input_gradients[0], error);
}

static void a_pass_outlives_the_last_release_of_its_context(distag_worker *worker) {
  distag_context *context = NULL;
  CHECK_OK(distag_context_create(worker, &context, &err));
  distag_custom_op op = DISTAG_CUSTOM_OP_INIT;
  op.name = "releasing";
  op.forward = same_forward;
  op.backward = releasing_backward;
  op.user_data = &context;
  distag_tensor *x = make_leaf(2), *same = NULL;
  CHECK_OK(distag_apply_custom(&op, &x, 1, &same, 1, &err));
  distag_tensor *loss = make_loss(same);
  CHECK_OK(distag_backward(context, &loss, 1, NULL, &err));
  CHECK(context == NULL);
  distag_tensor_release(loss);
  distag_tensor_release(same);
  distag_tensor_release(x);
}

static void a_snapshot_of_gradients_is_the_readers_own(distag_worker *worker) {
  distag_context *context = NULL;
  distag_gradients *first = NULL, *second = NULL;
  distag_tensor *x = make_leaf(3), *loss = make_loss(x);
  const double ones[3] = {1, 1, 1};
  CHECK_OK(distag_context_create(worker, &context, &err));
  CHECK_OK(distag_backward(context, &loss, 1, NULL, &err));
  CHECK_OK(distag_get_gradients(context, &first, &err));
  CHECK_NEAR(first_of(distag_gradients_find(first, x)), 6);
  CHECK_OK(distag_tensor_write(distag_gradients_find(first, x), ones, sizeof ones, &err));
  CHECK_OK(distag_get_gradients(context, &second, &err));
  CHECK_NEAR(first_of(distag_gradients_find(second, x)), 6);
  distag_gradients_release(first);
  distag_gradients_release(second);
  distag_context_release(context);
  distag_tensor_release(loss);
  distag_tensor_release(x);
}

/* Worker 0 waits for worker 1, which does not come yet. */
static void a_cancelled_start_can_be_started_again(void) {
  distag_worker *workers[2] = {NULL, NULL};
  for (int32_t rank = 0; rank < 2; ++rank) {
    const distag_worker_options options = group_options(rank, 2, "inproc://cancelled-start");
    CHECK_OK(distag_worker_create(&options, &workers[rank], &err));
  }
  distag_future *start = NULL;
  CHECK_OK(distag_worker_start_async(workers[0], DISTAG_FOREVER, &start, &err));
  distag_future_cancel(start);
  CHECK_FAILS(distag_future_wait(start, DISTAG_FOREVER, &err), DISTAG_E_CANCELLED, "cancelled");
  distag_future_release(start);
  /* A second start works at once; when it is answered, the first one has left the rendezvous. */
  CHECK_FAILS(distag_worker_start(workers[0], 50 * DISTAG_MILLISECOND, &err), DISTAG_E_DEADLINE, "rank 1");
  CHECK_FAILS(distag_worker_start(workers[1], 100 * DISTAG_MILLISECOND, &err), DISTAG_E_DEADLINE, "rank 0");
  CHECK_INT(group_start(workers, 2), 0);
  CHECK_INT(group_shutdown(workers, 2), 0);
  for (int i = 0; i < 2; ++i) distag_worker_release(workers[i]);
}

static void a_shutdown_cannot_be_cancelled(void) {
  distag_worker *worker = NULL;
  const distag_worker_options options = group_options(0, 1, "inproc://cancelled-shutdown");
  CHECK_OK(distag_worker_create(&options, &worker, &err));
  CHECK_OK(distag_worker_start(worker, 120 * DISTAG_SECOND, &err));
  distag_future *shutdown = NULL;
  CHECK_OK(distag_worker_shutdown_async(worker, 120 * DISTAG_SECOND, &shutdown, &err));
  distag_future_cancel(shutdown);
  CHECK_OK(distag_future_wait(shutdown, DISTAG_FOREVER, &err));
  distag_future_release(shutdown);
  distag_worker_release(worker);
}

/* However a cancel and a verdict race: a pass that was cancelled left nothing. */
static void a_cancelled_pass_leaves_no_gradients(distag_worker *worker) {
  for (int round = 0; round < 500; ++round) {
    distag_context *context = NULL;
    distag_future *pass = NULL;
    distag_gradients *gradients = NULL;
    distag_tensor *x = make_leaf(1), *loss = make_loss(x);
    CHECK_OK(distag_context_create(worker, &context, &err));
    CHECK_OK(distag_backward_async(context, &loss, 1, NULL, &pass, &err));
    for (int spin = 0; spin < round * 8; ++spin) (void)distag_future_poll(pass);
    distag_future_cancel(pass);
    err.code = DISTAG_OK;
    const distag_status ended = distag_future_wait(pass, DISTAG_FOREVER, &err);
    CHECK(ended == DISTAG_OK || ended == DISTAG_E_CANCELLED);
    CHECK_OK(distag_get_gradients(context, &gradients, &err));
    CHECK_INT(distag_gradients_get_count(gradients), ended == DISTAG_OK ? 1 : 0);
    distag_gradients_release(gradients);
    distag_future_release(pass);
    distag_context_release(context);
    distag_tensor_release(loss);
    distag_tensor_release(x);
  }
}

int main(void) {
  a_pass_outlives_the_last_release_of_its_context(NULL);
  a_snapshot_of_gradients_is_the_readers_own(NULL);
  a_cancelled_start_can_be_started_again();
  a_shutdown_cannot_be_cancelled();

  distag_worker *worker = NULL;
  const distag_worker_options options = group_options(0, 1, "inproc://lifetimes");
  CHECK_OK(distag_worker_create(&options, &worker, &err));
  CHECK_OK(distag_worker_start(worker, 120 * DISTAG_SECOND, &err));
  a_pass_outlives_the_last_release_of_its_context(worker);
  a_snapshot_of_gradients_is_the_readers_own(worker);
  a_cancelled_pass_leaves_no_gradients(worker);
  CHECK_OK(distag_worker_shutdown(worker, 120 * DISTAG_SECOND, NULL, &err));
  distag_worker_release(worker);
  return check_end();
}
