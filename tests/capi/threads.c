/* Handles shared by threads: calls, futures, lent items, references and passes side by side. */
#include <pthread.h>
#include <stdatomic.h>

#include "capi/check.h"
#include "capi/support/group.h"

enum { kThreads = 6, kRounds = 40 };

static distag_worker *w0, *w1;
static distag_value *list;
static distag_gradients *gradients;
static distag_tensor *leaf;
static distag_future *shared_future;
static atomic_int callbacks, destroyed, failures;

#define EXPECT(condition)                                             \
  do {                                                                \
    if (!(condition)) {                                               \
      atomic_fetch_add(&failures, 1);                                 \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
    }                                                                 \
  } while (0)

static void count_callback(void *user_data, distag_future *future) {
  EXPECT(distag_future_poll(future) == 1);
  atomic_fetch_add((atomic_int *)user_data, 1);
}

static void count_destroy(void *user_data) {
  (void)user_data;
  atomic_fetch_add(&destroyed, 1);
}

static distag_status echo(void *user_data, distag_invocation *invocation, distag_error *told) {
  (void)user_data;
  return distag_invocation_return(invocation, distag_invocation_get_arg(invocation, 0), told);
}

/* All threads that ask the same handles are lent from one place. */
static void read_shared(void) {
  for (size_t i = 0; i < distag_value_get_count(list); ++i) {
    distag_value *item = distag_value_get_item(list, i);
    int64_t whole = -1;
    distag_value_retain(item);
    EXPECT(item == distag_value_get_item(list, i));
    EXPECT(distag_value_get_int64(item, &whole, NULL) == DISTAG_OK && whole == (int64_t)i);
    distag_value_release(item);
  }
  distag_value *seen = NULL;
  EXPECT(distag_future_wait(shared_future, DISTAG_FOREVER, NULL) == DISTAG_OK);
  EXPECT(distag_future_get_value(shared_future, &seen, NULL) == DISTAG_OK && seen != NULL);
  EXPECT(distag_gradients_find(gradients, leaf) == distag_gradients_get_gradient(gradients, 0));
  EXPECT(distag_gradients_get_tensor(gradients, 0) != NULL);
}

static void call_and_look_back(int64_t number) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_value *arg = NULL, *result = NULL;
  distag_future *future = NULL;
  int64_t whole = -1;
  distag_value_create_int64(number, &arg, &err);
  distag_call_async(w0, NULL, "w1", "echo", &arg, 1, NULL, &future, &err);
  distag_future_on_done(future, count_callback, &callbacks, count_destroy, &err);
  distag_call(w1, NULL, "w0", "echo", &arg, 1, NULL, &result, &err);
  distag_value_get_int64(result, &whole, &err);
  EXPECT(whole == number);
  distag_wait_all(&future, 1, DISTAG_FOREVER, &err);
  EXPECT(err.code == DISTAG_OK);
  distag_value_release(result);
  distag_value_release(arg);
  distag_future_release(future);
}

/* d/dx exp(x) at 0, with exp on the other worker. */
static void train(void) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_context *context = NULL;
  distag_gradients *found = NULL;
  distag_tensor *x = NULL, *y = NULL;
  distag_value *args[1], *result = NULL;
  double item = -1;
  distag_context_create(w0, &context, &err);
  distag_zeros(DISTAG_FLOAT64, NULL, 0, &x, &err);
  distag_tensor_set_requires_grad(x, 1, &err);
  args[0] = distag_tensor_as_value(x);
  distag_call(w0, context, "w1", "exp", args, 1, NULL, &result, &err);
  distag_value_get_tensor(result, &y, &err);
  distag_backward(context, &y, 1, NULL, &err);
  distag_get_gradients(context, &found, &err);
  distag_tensor_get_item(distag_gradients_find(found, x), &item, &err);
  EXPECT(err.code == DISTAG_OK && fabs(item - 1) < 1e-12);
  if (err.code != DISTAG_OK) fprintf(stderr, "%d: %s\n", (int)err.code, err.message);
  distag_gradients_release(found);
  distag_value_release(result);
  distag_tensor_release(x);
  distag_context_release(context);
}

static void *run(void *unused) {
  (void)unused;
  for (int round = 0; round < kRounds; ++round) {
    read_shared();
    call_and_look_back(round);
    train();
  }
  return NULL;
}

static void prepare(void) {
  int64_t numbers[16];
  distag_error err = DISTAG_ERROR_INIT;
  distag_context *context = NULL;
  distag_tensor *y = NULL;
  for (int64_t i = 0; i < 16; ++i) numbers[i] = i;
  CHECK_OK(distag_value_create_int64_list(numbers, 16, &list, &err));
  CHECK_OK(distag_call_async(w0, NULL, "w1", "echo", &list, 1, NULL, &shared_future, &err));
  CHECK_OK(distag_context_create(NULL, &context, &err));
  CHECK_OK(distag_ones(DISTAG_FLOAT32, NULL, 0, &leaf, &err));
  CHECK_OK(distag_tensor_set_requires_grad(leaf, 1, &err));
  CHECK_OK(distag_neg(leaf, &y, &err));
  CHECK_OK(distag_backward(context, &y, 1, NULL, &err));
  CHECK_OK(distag_get_gradients(context, &gradients, &err));
  distag_tensor_release(y);
  distag_context_release(context);
}

int main(void) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_worker *both[2] = {NULL, NULL};
  pthread_t threads[kThreads];
  for (int32_t rank = 0; rank < 2; ++rank) {
    const distag_worker_options options = group_options(rank, 2, "inproc://threads");
    CHECK_OK(distag_worker_create(&options, &both[rank], &err));
    CHECK_OK(distag_worker_register(both[rank], "echo", echo, NULL, NULL, NULL, &err));
  }
  w0 = both[0];
  w1 = both[1];
  CHECK_INT(group_start(both, 2), 0);
  prepare();
  for (int i = 0; i < kThreads; ++i) CHECK_INT(pthread_create(&threads[i], NULL, run, NULL), 0);
  for (int i = 0; i < kThreads; ++i) pthread_join(threads[i], NULL);
  distag_value_release(list);
  distag_gradients_release(gradients);
  distag_tensor_release(leaf);
  distag_future_release(shared_future);
  CHECK_INT(group_shutdown(both, 2), 0);
  CHECK_INT(atomic_load(&callbacks), kThreads * kRounds); /* the shutdown waited for them */
  CHECK_INT(atomic_load(&destroyed), kThreads * kRounds);
  CHECK_INT(atomic_load(&failures), 0);
  distag_worker_release(w0);
  distag_worker_release(w1);
  return check_end();
}
