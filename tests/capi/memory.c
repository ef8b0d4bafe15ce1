/* The memory of the process does not grow with the number of references, or of contexts, that come and go. */
#include <unistd.h>

#include "capi/check.h"
#include "capi/support/group.h"
#include "capi/support/resident.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { kRrefs = 2000, kContexts = 500, kIsMeasured = 0 };
#else
enum { kRrefs = 25000, kContexts = 5000, kIsMeasured = 1 }; /* a leak of 42 bytes shows in one, of 210 in the other */
#endif
enum { kFirst = 1000, kMostGrowth = 1 << 20 };

static distag_worker *w0, *w1;

static distag_status echo(void *user_data, distag_invocation *invocation, distag_error *err) {
  (void)user_data;
  return distag_invocation_return(invocation, distag_invocation_get_arg(invocation, 0), err);
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

/* References are shared, passed to the other worker and back, and fetched from there; another is made over there. */
static void use_rrefs(distag_tensor *tensor) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_rref *shared = NULL, *made = NULL;
  distag_value *back = NULL, *fetched = NULL;
  CHECK_OK(distag_rref_create(w0, distag_tensor_as_value(tensor), &shared, &err));
  distag_value *const shared_args[] = {distag_rref_as_value(shared)};
  CHECK_OK(distag_remote(w0, NULL, "w1", "echo", shared_args, 1, NULL, &made, &err));
  distag_value *const made_args[] = {distag_rref_as_value(made)};
  CHECK_OK(distag_call(w0, NULL, "w1", "echo", made_args, 1, NULL, &back, &err));
  CHECK_OK(distag_rref_fetch(made, NULL, NULL, &fetched, &err));
  distag_value_release(fetched);
  distag_value_release(back);
  distag_rref_release(made);
  distag_rref_release(shared);
}

static void use_context(distag_tensor *tensor) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_context *context = NULL;
  distag_value *answer = NULL;
  distag_tensor *root = NULL;
  distag_gradients *gradients = NULL;
  CHECK_OK(distag_context_create(w0, &context, &err));
  distag_value *const args[] = {distag_tensor_as_value(tensor)};
  CHECK_OK(distag_call(w0, context, "w1", "square", args, 1, NULL, &answer, &err));
  CHECK_OK(distag_value_get_tensor(answer, &root, &err));
  CHECK_OK(distag_backward(context, &root, 1, NULL, &err));
  CHECK_OK(distag_get_gradients(context, &gradients, &err));
  CHECK(distag_gradients_find(gradients, tensor) != NULL);
  distag_gradients_release(gradients);
  distag_value_release(answer);
  distag_context_release(context);
}

static void check_growth(void (*use)(distag_tensor *), distag_tensor *tensor, int count, const char *what) {
  int64_t before = 0;
  for (int i = 0; i < count && check_failures == 0; ++i) {
    if (i == kFirst) before = resident_bytes();
    use(tensor);
  }
  if (!kIsMeasured) return;
  const int64_t growth = resident_bytes() - before;
  printf("%d %s: %lld bytes more than after %d\n", count, what, (long long)growth, kFirst);
  CHECK(growth < kMostGrowth);
}

int main(void) {
  distag_error err = DISTAG_ERROR_INIT;
  distag_worker *workers[2];
  const double three = 3;
  distag_tensor *tensor = NULL;
  for (int i = 0; i < 2; ++i) {
    const distag_worker_options options = group_options(i, 2, "inproc://memory");
    CHECK_OK(distag_worker_create(&options, &workers[i], &err));
    CHECK_OK(distag_worker_register(workers[i], "echo", echo, NULL, NULL, NULL, &err));
    CHECK_OK(distag_worker_register(workers[i], "square", square, NULL, NULL, NULL, &err));
  }
  if (group_start(workers, 2) != 0) return 1;
  w0 = workers[0];
  w1 = workers[1];
  CHECK_OK(distag_tensor_create(&three, sizeof(three), DISTAG_FLOAT64, NULL, 0, &tensor, &err));
  CHECK_OK(distag_tensor_set_requires_grad(tensor, 1, &err));
  check_growth(use_rrefs, tensor, kRrefs, "rrefs");
  check_growth(use_context, tensor, kContexts, "contexts");
  distag_tensor_release(tensor);
  CHECK_INT(group_shutdown(workers, 2), 0);
  distag_worker_release(w0);
  distag_worker_release(w1);
  return check_end();
}
