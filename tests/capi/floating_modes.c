/* A host that rounds in another direction, takes subnormal numbers as 0 or has traps: results and files are those of
 * the default mode, nothing traps, and the mode of the host is as it was, in its callbacks too. */
#define _GNU_SOURCE
#include <fenv.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "capi/check.h"
#include "capi/support/group.h"

enum { kTraps = FE_DIVBYZERO | FE_INVALID | FE_OVERFLOW | FE_UNDERFLOW, kSmallestAreZero = 0x8040 };

static distag_error err = DISTAG_ERROR_INIT;

/* Copies the elements of `y`, and releases it. */
static void use(distag_tensor *y, double *out, size_t count) {
  CHECK_OK(distag_tensor_copy_data(y, out, count * sizeof(double), &err));
  distag_tensor_release(y);
}

enum { kCount = 8, kOps = 9 };
static const double kNumbers[kCount] = {0.5, 1.5, -2.5, 1.0 / 3, 1e300, 0.0, -800.0, 123456.789};

static void run_ops(double out[kOps][kCount]) {
  static const char *const by_name[] = {"round", "elu", "sin", "reciprocal", "log"};
  const int64_t shape[] = {kCount, 1};
  distag_tensor *x = NULL, *y = NULL;
  CHECK_OK(distag_tensor_create(kNumbers, sizeof kNumbers, DISTAG_FLOAT64, shape, 2, &x, &err));
  for (int i = 0; i < 5; ++i) {
    CHECK_OK(distag_apply(by_name[i], &x, 1, NULL, 0, &y, 1, &err));
    use(y, out[i], kCount);
  }
  CHECK_OK(distag_mul(x, x, &y, &err));
  use(y, out[5], kCount);
  CHECK_OK(distag_mul_scalar(x, 1e-310, &y, &err));
  use(y, out[6], kCount);
  distag_tensor *row = NULL;
  CHECK_OK(distag_transpose(x, 0, 1, &row, &err));
  CHECK_OK(distag_matmul(row, x, &y, &err));
  use(y, out[7], 1);
  CHECK_OK(distag_sum(x, NULL, 0, 0, &y, &err));
  use(y, out[8], 1);
  distag_tensor_release(row);
  distag_tensor_release(x);
}

static void results_do_not_follow_the_mode(void) {
  static const int modes[] = {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
  double usual[kOps][kCount] = {{0}}, seen[kOps][kCount] = {{0}};
  run_ops(usual);
  CHECK(usual[0][0] == 0 && usual[0][1] == 2 && usual[0][2] == -2 && usual[6][0] > 0);
  for (int i = 0; i < 3; ++i) {
    CHECK_INT(fesetround(modes[i]), 0);
    run_ops(seen);
    CHECK_INT(fegetround(), modes[i]);
    CHECK_INT(fesetround(FE_TONEAREST), 0);
    CHECK(memcmp(usual, seen, sizeof seen) == 0);
  }
  CHECK(feenableexcept(kTraps) != -1);
  run_ops(seen);
  CHECK_INT(fegetexcept(), kTraps);
  fedisableexcept(kTraps);
  CHECK(memcmp(usual, seen, sizeof seen) == 0);
#if defined(__x86_64__)
  const unsigned before = _mm_getcsr();
  _mm_setcsr(before | kSmallestAreZero);
  run_ops(seen);
  CHECK_INT(_mm_getcsr() & kSmallestAreZero, kSmallestAreZero);
  _mm_setcsr(before);
  CHECK(memcmp(usual, seen, sizeof seen) == 0);
#endif
}

static distag_status seen_in_forward(void *user_data, distag_tensor *const *inputs, size_t input_count,
                                     distag_tensor **out_outputs, size_t output_count, distag_error *told) {
  CHECK(input_count == 1 && output_count == 1);
  *(int *)user_data = fegetround();
  const distag_status status = distag_apply("round", inputs, 1, NULL, 0, out_outputs, 1, told);
  CHECK_INT(fegetround(), FE_UPWARD);
  fesetround(FE_DOWNWARD); /* ends with the callback */
  return status;
}

static void a_callback_has_the_mode_of_its_thread(void) {
  int seen = -1;
  double number = 0;
  distag_tensor *x = NULL, *y = NULL;
  distag_custom_op op = DISTAG_CUSTOM_OP_INIT;
  op.name = "seen";
  op.forward = seen_in_forward;
  op.user_data = &seen;
  CHECK_OK(distag_full(2.5, DISTAG_FLOAT64, NULL, 0, &x, &err));
  fesetround(FE_UPWARD);
  CHECK_OK(distag_apply_custom(&op, &x, 1, &y, 1, &err));
  CHECK_INT(fegetround(), FE_UPWARD);
  fesetround(FE_TONEAREST);
  CHECK_INT(seen, FE_UPWARD);
  use(y, &number, 1);
  CHECK(number == 2);
  distag_tensor_release(x);
}

/* ---- threads of distag: a hook may give them a mode ---- */

static void round_down(void *user_data, const char *thread_name) {
  (void)user_data, (void)thread_name;
  fesetround(FE_DOWNWARD);
}

static distag_status mode_of_thread(void *user_data, distag_invocation *invocation, distag_error *told) {
  (void)user_data;
  distag_value *mode = NULL;
  distag_status status = distag_value_create_int64(fegetround(), &mode, told);
  if (status == DISTAG_OK) status = distag_invocation_return(invocation, mode, told);
  distag_value_release(mode);
  return status;
}

static void a_number_is_saved_as_ever(distag_worker *worker) {
  char folder[] = "/tmp/distag_modes_XXXXXX", remove_all[96];
  const char *key = "tenth";
  const int32_t self = 0;
  double loaded = 0;
  distag_value *tenth = NULL, *map = NULL, *all = NULL;
  distag_mesh *mesh = NULL;
  CHECK(mkdtemp(folder) != NULL);
  CHECK_OK(distag_mesh_create(worker, &self, 1, NULL, NULL, 0, NULL, &mesh, &err));
  CHECK_OK(distag_value_create_float64(0.1, &tenth, &err));
  CHECK_OK(distag_value_create_map(&key, &tenth, 1, &map, &err));
  CHECK_OK(distag_checkpoint_save(mesh, folder, map, 0, &err));
  CHECK_OK(distag_checkpoint_load(NULL, folder, NULL, 0, &all, &err));
  CHECK_OK(distag_value_get_float64(distag_value_get_entry(all, key), &loaded, &err));
  CHECK(loaded == 0.1);
  distag_value_release(all);
  distag_value_release(map);
  distag_value_release(tenth);
  distag_mesh_release(mesh);
  snprintf(remove_all, sizeof remove_all, "rm -rf '%s'", folder);
  CHECK(system(remove_all) == 0);
}

static void threads_of_a_worker(void) {
  double number = 0;
  int64_t mode = -1;
  distag_worker *worker = NULL;
  distag_tensor *x = NULL, *y = NULL;
  distag_value *answer = NULL;
  distag_worker_options options = group_options(0, 1, "inproc://floating_modes");
  options.on_thread_start = round_down;
  fesetround(FE_UPWARD);
  CHECK_OK(distag_worker_create(&options, &worker, &err));
  CHECK_OK(distag_worker_register(worker, "mode", mode_of_thread, NULL, NULL, NULL, &err));
  CHECK_OK(distag_worker_start(worker, DISTAG_FOREVER, &err));
  CHECK_OK(distag_call(worker, NULL, "w0", "mode", NULL, 0, NULL, &answer, &err));
  CHECK_OK(distag_value_get_int64(answer, &mode, &err));
  CHECK_INT(mode, FE_DOWNWARD);
  distag_value_release(answer);
  CHECK_OK(distag_full(1.0, DISTAG_FLOAT64, NULL, 0, &x, &err));
  CHECK_OK(distag_tensor_set_requires_grad(x, 1, &err));
  distag_value *const arg = distag_tensor_as_value(x);
  CHECK_OK(distag_call(worker, NULL, "w0", "exp", &arg, 1, NULL, &answer, &err));
  CHECK_OK(distag_value_get_tensor(answer, &y, &err));
  CHECK_OK(distag_tensor_get_item(y, &number, &err));
  distag_value_release(answer);
  a_number_is_saved_as_ever(worker);
  CHECK_OK(distag_worker_shutdown(worker, DISTAG_FOREVER, NULL, &err));
  distag_worker_release(worker);
  CHECK_INT(fegetround(), FE_UPWARD);
  fesetround(FE_TONEAREST);
  CHECK_OK(distag_exp(x, &y, &err));
  double usual = 0;
  use(y, &usual, 1);
  CHECK(number == usual);
  distag_tensor_release(x);
}

int main(void) {
  results_do_not_follow_the_mode();
  a_callback_has_the_mode_of_its_thread();
  threads_of_a_worker();
  return check_end();
}
